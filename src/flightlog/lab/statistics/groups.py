"""Sort samples, sessions and branches into groups of comparable trials.

Two responses take the same action when they call the same tools with the same arguments in the same
order, ignoring what does not change the effect: the order of keys, a tool's free description, the
path of the work directory, trailing spaces. Text, thinking and ids do not count. Pure.
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
    """An action: its `tool` (or tools), the `key` it is counted by, and a `label` for people."""

    tool: str
    key: str
    label: str = ""


def action_of_response(
    content: Iterable[Mapping[str, Any]], stop_reason: str, work_dir: str = ""
) -> Action:
    blocks = list(content)
    calls = []
    for block in (block for block in blocks if block.get("type") == "tool_use"):
        arguments = block.get("input")
        calls.append(
            (str(block.get("name") or "?"), arguments if isinstance(arguments, dict) else {})
        )
    has_words = any(
        str(block.get("text") or "").strip() for block in blocks if block.get("type") == "text"
    )
    return _build_action(calls, stop_reason, work_dir, has_words=has_words)


def action_of_step(step: Step, work_dir: str = "") -> Action:
    has_words = any(getattr(block, "text", "").strip() for block in step.content)
    calls = [(call.name, call.input) for call in step.tool_calls]
    return _build_action(calls, step.stop_reason, work_dir, has_words=has_words)


def action_by_tool(action: Action) -> Action:
    return Action(action.tool, action.tool, action.tool)


def _build_action(
    calls: Sequence[tuple[str, dict[str, Any]]], stop: str, work_dir: str, *, has_words: bool
) -> Action:
    if not calls:
        word = {"max_tokens": CUT, "refusal": REFUSED}.get(stop, TEXT if has_words else NOTHING)
        return Action(word, word, word)
    normalized = [
        (name, _normalize_argument(arguments, work_dir.rstrip("/"))) for name, arguments in calls
    ]
    keys = [
        f"{name} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"
        for name, arguments in normalized
    ]
    labels = [f"{name} {format_arguments(arguments)}".strip() for name, arguments in normalized]
    tool = _BETWEEN.join(name for name, _ in normalized)
    return Action(tool, _BETWEEN.join(keys), _BETWEEN.join(labels))


def _normalize_argument(value: Any, work_dir: str) -> Any:
    if isinstance(value, dict):
        return {
            str(key): _normalize_argument(item, work_dir)
            for key, item in value.items()
            if key not in _ASIDE
        }
    if isinstance(value, list):
        return [_normalize_argument(item, work_dir) for item in value]
    if not isinstance(value, str):
        return value
    if work_dir:
        value = re.sub(
            rf"{re.escape(work_dir)}(?:/|(?![^\s/'\";:,)]))",
            lambda match: "./" if match[0][-1] == "/" else ".",
            value,
        )
    return _ENDS.sub("", value).strip()


class Trial(Struct, frozen=True):
    """One answer or one session; `place` is its file or directory relative to the run.

    `action` is None for a whole session; `outcomes` says for each verifier whether it passed.
    """

    address: str
    action: Action | None = None
    outcomes: Mapping[str, bool] = {}
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class TrialGroup(Struct, frozen=True):
    """Trials of the same request; `is_stopped_early` if a stopping rule set their number."""

    name: str
    trials: tuple[Trial, ...]
    label: str = ""
    model: str = ""
    is_stopped_early: bool = False
    failures: tuple[str, ...] = ()


class ComparisonQuestion(Struct, frozen=True):
    """Groups to compare, the unchanged one first, and the recorded action."""

    name: str
    groups: tuple[TrialGroup, ...]
    recorded_action: Action | None = None


class RecordedAction(Struct, frozen=True):
    """The action of the recorded answer, and its model."""

    action: Action
    model: str


class SampleContext(Struct, frozen=True):
    """Facts for grouping samples: recorded actions, variants, and where a stopping rule applied."""

    recorded: Mapping[Where, RecordedAction]
    variants: Sequence[Variant]
    stopped: Collection[tuple[str, int, int]]
    work_dir: str
    prefix: str
    normalize: Callable[[Action], Action]


def questions_from_samples(
    samples: Iterable[Sample], facts: SampleContext
) -> list[ComparisonQuestion]:
    """Return one question for each sampled request; its groups are variants and models."""
    requests: dict[Where, dict[tuple[int, str], list[Sample]]] = {}
    for sample in samples:
        groups = requests.setdefault((sample.session, sample.request), {})
        groups.setdefault((sample.variant, sample.model), []).append(sample)
    return [_build_question(where, groups, facts) for where, groups in sorted(requests.items())]


def _build_question(
    request: Where, samples: Mapping[tuple[int, str], list[Sample]], facts: SampleContext
) -> ComparisonQuestion:
    recorded_answer = facts.recorded.get(request)
    own_model = recorded_answer.model if recorded_answer else None
    order = sorted(samples, key=lambda key: (key[0], own_model not in (None, key[1]), key[1]))
    if not order or order[0][0]:
        # An empty base group: the unchanged request was not sampled.
        order.insert(0, (0, recorded_answer.model if recorded_answer else ""))
    base_model = order[0][1]
    own = [item for item in facts.variants if (item.session, item.request) == request]
    labels = {item.number: item.label for item in own}
    groups = []
    for variant, model in order:
        name = sample_dir(*request, variant).rpartition("/")[2] + (
            f" {model}" if model != base_model else ""
        )
        label = labels.get(variant, "") if variant else AS_RECORDED
        groups.append(
            _build_group(
                name, (label, model), samples.get((variant, model), []), (*request, variant), facts
            )
        )
    recorded = facts.normalize(recorded_answer.action) if recorded_answer else None
    return ComparisonQuestion(
        f"{facts.prefix.strip('./')} {request[0]} request {request[1]}".strip(),
        tuple(groups),
        recorded,
    )


def _build_group(
    name: str,
    label_and_model: tuple[str, str],
    samples: Sequence[Sample],
    key: tuple[str, int, int],
    facts: SampleContext,
) -> TrialGroup:
    answered = [sample for sample in samples if not sample.error]
    failed = tuple(facts.prefix + sample.path for sample in samples if sample.error)
    trials = tuple(_sample_trial(sample, facts) for sample in answered)
    return TrialGroup(name, trials, *label_and_model, key in facts.stopped, failed)


def _sample_trial(sample: Sample, facts: SampleContext) -> Trial:
    action = facts.normalize(action_of_response(sample.content, sample.stop_reason, facts.work_dir))
    usage = sample.usage
    address = facts.prefix + sample.path
    return Trial(address, action, {}, usage.prompt_tokens, usage.output_tokens, sample.cost_usd)


def question_from_sessions(
    runs: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], index: int
) -> ComparisonQuestion:
    """Return the question about one session of several runs; `runs` are names and meta rows."""
    groups = []
    for name, sessions in runs:
        rows = [row for row in sessions if row["session_index"] == index and row["finished_at"]]
        groups.append(TrialGroup(name, tuple(_session_trial(name, row) for row in rows)))
    return ComparisonQuestion(f"session {index}", tuple(groups))


class BranchTrial(Struct, frozen=True):
    """The counted facts of a replay: its source turn, its prompt, its first action."""

    run: str
    source: tuple[str, str, int]
    prompt: str
    session: Mapping[str, Any]
    action: Action | None
    recorded: Action | None = None


def questions_from_branches(branches: Iterable[BranchTrial]) -> list[ComparisonQuestion]:
    """Return one question for each source turn; branches without a prompt come first."""
    turns: dict[tuple[str, str, int], dict[str, list[BranchTrial]]] = {}
    for branch in branches:
        turns.setdefault(branch.source, {}).setdefault(branch.prompt, []).append(branch)
    questions = []
    for (run, session, turn), prompts in sorted(turns.items()):
        groups = []
        for number, prompt in enumerate(sorted({"", *prompts})):
            trials = tuple(
                _session_trial(branch.run, branch.session, branch.action)
                for branch in prompts.get(prompt, [])
            )
            groups.append(TrialGroup(f"prompt {number}" if prompt else "no prompt", trials, prompt))
        recorded = next(
            (branch.recorded for group in prompts.values() for branch in group if branch.recorded),
            None,
        )
        name = f"branches of {run} {session} turn {turn}"
        questions.append(ComparisonQuestion(name, tuple(groups), recorded))
    return questions


def _session_trial(run: str, meta: Mapping[str, Any], action: Action | None = None) -> Trial:
    outcomes = {str(verifier["name"]): bool(verifier["passed"]) for verifier in meta["verifiers"]}
    address = f"../{run}/{meta['session_dir']}"
    return Trial(address, action, outcomes, cost_usd=meta["total_cost_usd"])
