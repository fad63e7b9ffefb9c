"""All findings of a session: merged where they overlap, priced, and ranked by cost."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from flightlog.analysis.findings import ActionThread, Finding, FindingDraft, list_threads
from flightlog.analysis.findings.edits import (
    find_discarded_work,
    find_edit_undos,
    find_untested_change,
)
from flightlog.analysis.findings.failures import find_repeated_failures
from flightlog.analysis.findings.permissions import find_denied_retries
from flightlog.analysis.findings.reads import find_forgotten, find_repeated_reads
from flightlog.analysis.findings.waste import find_interruptions, find_tool_loops, find_wrong_turns
from flightlog.model.session import Session, Step, Subagent
from flightlog.views.session.timeline import group_by_call

FINDINGS_MAX = 5  # of a session: more would not be read
EVIDENCE_MAX = 12  # addresses of a finding: enough to check it
_OVERLAP_MIN = 0.5  # of the steps of two findings; from here on both are about the same thing
# The most specific first: of two findings about the same steps, that one is kept.
_DETECTORS: tuple[Callable[[ActionThread], Iterator[FindingDraft]], ...] = (
    find_denied_retries,
    find_repeated_failures,
    find_discarded_work,
    find_edit_undos,
    find_forgotten,
    find_repeated_reads,
    find_tool_loops,
    find_interruptions,
    find_wrong_turns,
    find_untested_change,
)


def find_findings(session: Session) -> tuple[Finding, ...]:
    """Return the most expensive findings of a session; those of unknown cost come last."""
    threads = list_threads(session)
    drafts = [draft for detect in _DETECTORS for thread in threads for draft in detect(thread)]
    if not drafts:
        return ()
    addresses = (address for thread in threads for address, _ in thread.steps)
    positions = {address: position for position, address in enumerate(addresses)}
    subagents = group_by_call(session.subagents)
    found = [
        Finding(
            draft.kind,
            min(draft.evidence, key=positions.__getitem__),
            draft.title,
            _sum_costs((step for _, step in draft.spent), subagents),
            tuple(sorted(draft.evidence, key=positions.__getitem__))[:EVIDENCE_MAX],
        )
        for draft in _drop_near_identical(_merge_kinds(drafts, positions))
    ]
    found.sort(key=lambda finding: (-(finding.cost_usd or 0.0), positions[finding.address]))
    return tuple(found[:FINDINGS_MAX])


def _merge_kinds(
    drafts: Iterable[FindingDraft], positions: Mapping[str, int]
) -> Iterator[FindingDraft]:
    """Merge the drafts of one kind that happened at the same time into one."""
    kinds: dict[str, list[FindingDraft]] = {}
    for draft in drafts:
        kinds.setdefault(draft.kind, []).append(draft)
    for same in kinds.values():
        group: list[FindingDraft] = []
        end = -1
        for draft in sorted(same, key=lambda draft: _span(draft, positions)):
            start, last = _span(draft, positions)
            if group and start > end:
                yield _merge_group(group)
                group = []
            group.append(draft)
            end = max(end, last)
        yield _merge_group(group)


def _span(draft: FindingDraft, positions: Mapping[str, int]) -> tuple[int, int]:
    places = [positions[address] for address in draft.evidence]
    return min(places), max(places)


def _merge_group(group: Sequence[FindingDraft]) -> FindingDraft:
    if len(group) == 1:
        return group[0]
    main = max(group, key=lambda draft: len(draft.spent))
    more = f"{main.title} (and {len(group) - 1} more like it)"
    evidence = dict.fromkeys(address for draft in [main, *group] for address in draft.evidence)
    spent = {address: step for draft in group for address, step in draft.spent}
    return FindingDraft(main.kind, more, tuple(evidence), tuple(spent.items()))


def _drop_near_identical(drafts: Iterable[FindingDraft]) -> Iterator[FindingDraft]:
    """Leave out a draft that is about the same steps as a more specific one."""
    sets_by_step: dict[str, list[set[str]]] = {}
    for draft in drafts:
        steps = {address for address, _ in draft.spent}
        others = {id(other): other for step in steps for other in sets_by_step.get(step, ())}
        if not any(_overlap(steps, other) >= _OVERLAP_MIN for other in others.values()):
            yield draft
            for step in steps:
                sets_by_step.setdefault(step, []).append(steps)


def _overlap(steps: set[str], other: set[str]) -> float:
    """Return the share of the steps of both that they have in common."""
    common = len(steps & other)
    return common / (len(steps) + len(other) - common)


def _sum_costs(steps: Iterable[Step], subagents: Mapping[str, Iterable[Subagent]]) -> float | None:
    """Return the known costs of steps and of the subagents that they started; None if none is known.

    `subagents` are those that each call started.
    """
    waiting = list(steps)
    seen = {id(step) for step in waiting}
    costs: list[float] = []
    while waiting:
        step = waiting.pop()
        costs += [] if step.cost_usd is None else [step.cost_usd]
        started = [one for call in step.tool_calls for one in subagents.get(call.id, ())]
        for inner in (inner for one in started for turn in one.turns for inner in turn.steps):
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)
    return sum(costs) if costs else None
