"""Trials, groups, actions.

Two responses take the same action when they call the same tools with the same arguments, in the
same order, once what does not change what is done is put aside: the order of keys, a tool's free
description of itself, the name of the work directory, spaces at the ends of lines. Words, thoughts and
ids do not count. Pure.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.lab.resample.layout import sample_dir
from flightlog.lab.resample.samples import Sample, Variant
from flightlog.model.session import Step
from flightlog.views.transcript import format_arguments

TEXT = "(words only)"
CUT = "(cut off)"
REFUSED = "(refused)"
NOTHING = "(nothing)"
_ASIDE = frozenset({"description"})
_ENDS = re.compile(r"[ \t]+$", re.MULTILINE)
_BETWEEN = " + "
Where = tuple[str, int]
AS_RECORDED = "as recorded"


class Action(Struct, frozen=True, order=True):
    """An action: its `tool` (or tools), and `key`, by which it is counted; `label` is for people."""

    tool: str
    key: str
    label: str = ""


def action_of_response(content: Iterable[Mapping[str, Any]], stop_reason: str, work_dir: str = "") -> Action:
    """The action of a response as the API gives it."""
    blocks = list(content)
    used = [block for block in blocks if block.get("type") == "tool_use"]
    calls = [(str(each.get("name") or "?"), each.get("input")) for each in used]
    has_words = any(str(block.get("text") or "").strip() for block in blocks if block.get("type") == "text")
    return _build_action([(name, given if isinstance(given, dict) else {}) for name, given in calls], stop_reason,
                   work_dir, has_words=has_words)  # fmt: skip


def action_of_step(step: Step, work_dir: str = "") -> Action:
    """The action of a recorded step."""
    has_words = any(getattr(block, "text", "").strip() for block in step.content)
    return _build_action(
        [(call.name, call.input) for call in step.calls], step.stop_reason, work_dir, has_words=has_words
    )


def action_by_tool(action: Action) -> Action:
    """The same action, told by its tools alone."""
    return Action(action.tool, action.tool, action.tool)


def _build_action(calls: Sequence[tuple[str, dict[str, Any]]], stop: str, work_dir: str, *, has_words: bool) -> Action:
    if not calls:
        word = {"max_tokens": CUT, "refusal": REFUSED}.get(stop, TEXT if has_words else NOTHING)
        return Action(word, word, word)
    plain = [(name, _normalize_argument(given, work_dir.rstrip("/"))) for name, given in calls]
    keys = [f"{name} {json.dumps(given, sort_keys=True, ensure_ascii=False)}" for name, given in plain]
    labels = [f"{name} {format_arguments(given)}".strip() for name, given in plain]
    return Action(_BETWEEN.join(name for name, _ in plain), _BETWEEN.join(keys), _BETWEEN.join(labels))


def _normalize_argument(value: Any, work_dir: str) -> Any:
    if isinstance(value, dict):
        return {str(key): _normalize_argument(each, work_dir) for key, each in value.items() if key not in _ASIDE}
    if isinstance(value, list):
        return [_normalize_argument(each, work_dir) for each in value]
    if not isinstance(value, str):
        return value
    if work_dir:
        value = re.sub(
            rf"{re.escape(work_dir)}(?:/|(?![^\s/'\";:,)]))", lambda found: "./" if found[0][-1] == "/" else ".", value
        )
    return _ENDS.sub("", value).strip()


class Trial(Struct, frozen=True):
    """One answer or one session; `place` is its file or directory from the run's, by which it is shown.

    `action` is None for a whole session; `outcomes` says of each verifier whether it passed.
    """

    place: str
    action: Action | None = None
    outcomes: Mapping[str, bool] = {}
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class TrialGroup(Struct, frozen=True):
    """Trials that were asked the same. `stopped` says that a stopping rule decided how many there are."""

    name: str
    trials: tuple[Trial, ...]
    label: str = ""
    model: str = ""
    stopped: bool = False
    failed: tuple[str, ...] = ()


class ComparisonQuestion(Struct, frozen=True):
    """Groups that can be compared: the first is the one as recorded. `recorded` is what was done then."""

    name: str
    groups: tuple[TrialGroup, ...]
    recorded: Action | None = None
    recorded_place: str = ""


class RecordedAction(Struct, frozen=True):
    """What was done when a request was first answered, and by which model."""

    action: Action
    model: str


class SampleContext(Struct, frozen=True):
    """What else bears on samples: what was recorded, which variants there are, where a stopping rule decided."""

    recorded: Mapping[Where, RecordedAction]
    variants: Sequence[Variant]
    stopped: Collection[tuple[str, int, int]]
    work_dir: str
    prefix: str
    told_by: Callable[[Action], Action]


def questions_from_samples(samples: Iterable[Sample], known: SampleContext) -> list[ComparisonQuestion]:
    """One question for each request that was asked again; its groups are variants and models."""
    requests: dict[Where, dict[tuple[int, str], list[Sample]]] = {}
    for sample in samples:
        groups = requests.setdefault((sample.session, sample.request), {})
        groups.setdefault((sample.variant, sample.model), []).append(sample)
    return [_build_question(where, groups, known) for where, groups in sorted(requests.items())]


def _build_question(
    where: Where, found: Mapping[tuple[int, str], list[Sample]], known: SampleContext
) -> ComparisonQuestion:
    then = known.recorded.get(where)
    order = sorted(found, key=lambda each: (each[0], then is not None and each[1] != then.model, each[1]))
    if not order or order[0][0]:
        order.insert(0, (0, then.model if then else ""))  # Nobody asked it as it was: there is nothing to compare with.
    base_model = order[0][1]
    labels = {each.number: each.label for each in known.variants if (each.session, each.request) == where}
    groups = []
    for variant, model in order:
        name = sample_dir(*where, variant).rpartition("/")[2] + (f" {model}" if model != base_model else "")
        label = labels.get(variant, "") if variant else AS_RECORDED
        groups.append(_build_group(name, (label, model), found.get((variant, model), []), (*where, variant), known))
    recorded = known.told_by(then.action) if then else None
    return ComparisonQuestion(
        f"{known.prefix.strip('./')} {where[0]} request {where[1]}".strip(), tuple(groups), recorded
    )


def _build_group(
    name: str, said: tuple[str, str], samples: Sequence[Sample], where: tuple[str, int, int], known: SampleContext
) -> TrialGroup:
    answered = [sample for sample in samples if not sample.error]
    failed = tuple(known.prefix + sample.path for sample in samples if sample.error)
    trials = tuple(_sample_trial(each, known) for each in answered)
    return TrialGroup(name, trials, *said, where in known.stopped, failed)


def _sample_trial(sample: Sample, known: SampleContext) -> Trial:
    action = known.told_by(action_of_response(sample.content, sample.stop_reason, known.work_dir))
    used = sample.usage
    return Trial(known.prefix + sample.path, action, {}, used.prompt, used.output, sample.cost_usd)


def question_from_sessions(runs: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], index: int) -> ComparisonQuestion:
    """One session of several runs, its replicates as trials; `runs` are names and what their pages say of sessions."""
    groups = []
    for name, sessions in runs:
        rows = [session for session in sessions if session["session_index"] == index and session["finished_at"]]
        groups.append(TrialGroup(name, tuple(_session_trial(name, row) for row in rows)))
    return ComparisonQuestion(f"session {index}", tuple(groups))


class BranchTrial(Struct, frozen=True):
    """A replay, as much of it as is counted: where it went back to, with which prompt, and what it did first."""

    run: str
    source: tuple[str, str, int]
    prompt: str
    session: Mapping[str, Any]
    action: Action | None
    recorded: Action | None = None


def questions_from_branches(branches: Iterable[BranchTrial]) -> list[ComparisonQuestion]:
    """One question for each turn that was gone back to; the branches without a prompt are the first group."""
    turns: dict[tuple[str, str, int], dict[str, list[BranchTrial]]] = {}
    for branch in branches:
        turns.setdefault(branch.source, {}).setdefault(branch.prompt, []).append(branch)
    made = []
    for (run, session, turn), prompts in sorted(turns.items()):
        groups = []
        for number, prompt in enumerate(sorted({"", *prompts})):
            found = prompts.get(prompt, [])
            trials = tuple(_session_trial(each.run, each.session, each.action) for each in found)
            groups.append(TrialGroup(f"prompt {number}" if prompt else "no prompt", trials, prompt))
        recorded = next((each.recorded for some in prompts.values() for each in some if each.recorded), None)
        made.append(ComparisonQuestion(f"branches of {run} {session} turn {turn}", tuple(groups), recorded))
    return made


def _session_trial(run: str, said: Mapping[str, Any], action: Action | None = None) -> Trial:
    outcomes = {str(each["name"]): bool(each["passed"]) for each in said["verifiers"]}
    return Trial(f"../{run}/{said['session_dir']}", action, outcomes, cost_usd=said["total_cost_usd"])
