"""Samples, branches and replicates as questions: what was asked the same is one group, the recorded one first. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.lab.resampling.layout import folder
from flightlog.lab.resampling.reading import Sample, Variant
from flightlog.lab.statistics.actions import Action, of_response
from flightlog.lab.statistics.groups import Group, Question, Trial

Where = tuple[str, int]
AS_RECORDED = "as recorded"


class Recorded(Struct, frozen=True):
    """What was done when a request was first answered, and by which model."""

    action: Action
    model: str


class Known(Struct, frozen=True):
    """What else bears on samples: what was recorded, which variants there are, where a stopping rule decided."""

    recorded: Mapping[Where, Recorded]
    variants: Sequence[Variant]
    stopped: Collection[tuple[str, int, int]]
    work_dir: str
    prefix: str
    told_by: Callable[[Action], Action]


def resampled(samples: Iterable[Sample], known: Known) -> list[Question]:
    """One question for each request that was asked again; its groups are variants and models."""
    requests: dict[Where, dict[tuple[int, str], list[Sample]]] = {}
    for each in samples:
        groups = requests.setdefault((each.session, each.request), {})
        groups.setdefault((each.variant, each.model), []).append(each)
    return [_question(where, groups, known) for where, groups in sorted(requests.items())]


def _question(where: Where, found: Mapping[tuple[int, str], list[Sample]], known: Known) -> Question:
    then = known.recorded.get(where)
    order = sorted(found, key=lambda each: (each[0], then is not None and each[1] != then.model, each[1]))
    if not order or order[0][0]:
        order.insert(0, (0, then.model if then else ""))  # Nobody asked it as it was: there is nothing to compare with.
    base_model = order[0][1]
    labels = {each.number: each.label for each in known.variants if (each.session, each.request) == where}
    groups = []
    for variant, model in order:
        name = folder(*where, variant).rpartition("/")[2] + (f" {model}" if model != base_model else "")
        label = labels.get(variant, "") if variant else AS_RECORDED
        groups.append(_group(name, (label, model), found.get((variant, model), []), (*where, variant), known))
    recorded = known.told_by(then.action) if then else None
    return Question(f"{known.prefix.strip('./')} {where[0]} request {where[1]}".strip(), tuple(groups), recorded)


def _group(
    name: str, said: tuple[str, str], samples: Sequence[Sample], where: tuple[str, int, int], known: Known
) -> Group:
    answered = [each for each in samples if not each.error]
    failed = tuple(known.prefix + each.path for each in samples if each.error)
    trials = tuple(_trial(each, known) for each in answered)
    return Group(name, trials, *said, where in known.stopped, failed)


def _trial(sample: Sample, known: Known) -> Trial:
    action = known.told_by(of_response(sample.content, sample.stop_reason, known.work_dir))
    used = sample.usage
    return Trial(known.prefix + sample.path, action, {}, used.prompt, used.output, sample.cost_usd)


def sessions_of(runs: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], index: int) -> Question:
    """One session of several runs, its replicates as trials; `runs` are names and what their pages say of sessions."""
    groups = []
    for name, sessions in runs:
        rows = [each for each in sessions if each["session_index"] == index and each["finished_at"]]
        groups.append(Group(name, tuple(_session(name, each) for each in rows)))
    return Question(f"session {index}", tuple(groups))


class Branch(Struct, frozen=True):
    """A replay, as much of it as is counted: where it went back to, with which prompt, and what it did first."""

    run: str
    source: tuple[str, str, int]
    prompt: str
    session: Mapping[str, Any]
    action: Action | None
    recorded: Action | None = None


def branched(branches: Iterable[Branch]) -> list[Question]:
    """One question for each turn that was gone back to; the branches without a prompt are the first group."""
    turns: dict[tuple[str, str, int], dict[str, list[Branch]]] = {}
    for each in branches:
        turns.setdefault(each.source, {}).setdefault(each.prompt, []).append(each)
    made = []
    for (run, session, turn), prompts in sorted(turns.items()):
        groups = []
        for number, prompt in enumerate(sorted({"", *prompts})):
            found = prompts.get(prompt, [])
            trials = tuple(_session(each.run, each.session, each.action) for each in found)
            groups.append(Group(f"prompt {number}" if prompt else "no prompt", trials, prompt))
        recorded = next((each.recorded for some in prompts.values() for each in some if each.recorded), None)
        made.append(Question(f"branches of {run} {session} turn {turn}", tuple(groups), recorded))
    return made


def _session(run: str, said: Mapping[str, Any], action: Action | None = None) -> Trial:
    outcomes = {str(each["name"]): bool(each["passed"]) for each in said["verifiers"]}
    return Trial(f"../{run}/{said['session_dir']}", action, outcomes, cost_usd=said["total_cost_usd"])
