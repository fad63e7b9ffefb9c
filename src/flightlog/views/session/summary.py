"""Put the rows of a session's threads together: subagents, summary, most expensive prompt."""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from flightlog.model.session import Session, Step, Subagent
from flightlog.model.usage import Cost, CostSource, Usage, usage_fields
from flightlog.views.session.outline import (
    SessionOutline,
    SessionSummary,
    SubagentSummary,
    TurnCost,
)
from flightlog.views.session.rows import Location, RowBuilder
from flightlog.views.session.timeline import RowMark, describe_uncalled, group_by_call


def outline_session(
    session: Session, locations: Mapping[str, Location] | None = None, files: Iterable[str] = ()
) -> SessionOutline:
    """Return the outline of a whole session; without `locations` its rows have no records."""
    rows = {"": RowBuilder(), **{subagent.id: RowBuilder() for subagent in session.subagents}}
    rows[""].add(session.turns, locations)
    for subagent in session.subagents:
        rows[subagent.id].add(subagent.turns, locations)
    return build_outline(session, rows, session.subagents, files)


def find_own_prompt(session: Session, copied_message_ids: frozenset[str]) -> TurnCost | None:
    """Return the prompt that cost most, without steps copied from another session."""
    turns = tuple(
        replace(
            turn,
            items=tuple(
                item
                for item in turn.items
                if not (isinstance(item, Step) and item.message_id in copied_message_ids)
            ),
        )
        for turn in session.turns
    )
    return outline_session(replace(session, turns=turns)).summary.most_expensive_prompt


def build_outline(
    session: Session,
    rows: Mapping[str, RowBuilder],
    subagent_ids: Sequence[Subagent],
    files: Iterable[str],
) -> SessionOutline:
    """Return the outline made of the rows of all threads; `subagents` are linked to their calls."""
    header = replace(session, title=session.heading, turns=(), subagents=())
    # In this order, because sums of floats depend on it.
    rows = {"": rows[""], **{subagent.id: rows[subagent.id] for subagent in subagent_ids}}
    subagents = tuple(_summarize_subagent(subagent, rows[subagent.id]) for subagent in subagent_ids)
    summary = _summarize_session(header, rows, subagents)
    for subagent in subagent_ids:
        if not subagent.tool_call_id:
            rows[""].add_subagent(subagent.id, describe_uncalled(subagent))
    threads = {name: builder.to_outline() for name, builder in rows.items()}
    return SessionOutline(header, summary, tuple(files), subagents, threads)


def _summarize_subagent(subagent: Subagent, rows: RowBuilder) -> SubagentSummary:
    early, late = rows.step_times or (None, None)
    return SubagentSummary(
        id=subagent.id,
        agent_type=subagent.agent_type,
        description=subagent.description,
        tool_call_id=subagent.tool_call_id,
        is_side_call=subagent.is_side_call,
        rows=len(rows.marks),
        steps=rows.marks.count(RowMark.STEP),
        cost=_sum_costs([rows]),
        started_ms=early,
        ended_ms=late,
    )


def _summarize_session(
    session: Session, rows: Mapping[str, RowBuilder], subagents: Sequence[SubagentSummary]
) -> SessionSummary:
    threads = list(rows.values())
    return SessionSummary(
        session=session.id,
        agent=session.agent,
        title=session.title,
        project=session.cwd,
        branch=session.branch,
        version=session.version,
        started_ms=session.started_ms,
        ended_ms=session.ended_ms,
        turns=rows[""].turns,
        steps=sum(thread.marks.count(RowMark.STEP) for thread in threads),
        tool_calls=sum(thread.calls for thread in threads),
        failed_tool_calls=sum(thread.failed_calls for thread in threads),
        subagents=sum(not subagent.is_side_call for subagent in subagents),
        models=tuple(sorted(set().union(*(thread.models for thread in threads)))),
        **usage_fields(sum((thread.usage for thread in threads), Usage()), _sum_costs(threads)),
        most_expensive_prompt=_most_expensive_prompt(session.id, rows, subagents),
        compactions=rows[""].marks.count(RowMark.COMPACTION),
        unknown_records=sum(count for _, count in session.unknown_record_types),
        damage_count=len(session.damage),
        unknown_responses=sum(thread.unknown_steps for thread in threads),
        is_empty=not (rows[""].has_prompt or session.damage)
        and not any(thread.marks.count(RowMark.STEP) for thread in threads),
    )


def _sum_costs(threads: Sequence[RowBuilder]) -> Cost:
    sources = set().union(*(thread.sources for thread in threads))
    steps = sum(thread.marks.count(RowMark.STEP) for thread in threads)
    cost = _add_amounts(list(chain.from_iterable(thread.usd for thread in threads)), steps, sources)
    too_low = any(thread.has_lower_bounds for thread in threads)
    lacks_tokens = too_low or any(thread.unknown_steps for thread in threads)
    is_lower_bound = cost.is_lower_bound or (too_low and cost.usd is not None)
    return replace(cost, is_lower_bound=is_lower_bound, lacks_tokens=lacks_tokens)


def _add_amounts(amounts: Sequence[float], steps: int, sources: set[CostSource]) -> Cost:
    """Add the known amounts; the cost of steps that are all unknown is unknown."""
    if steps and not sources:
        return Cost(None, CostSource.UNKNOWN)
    source = functools.reduce(CostSource.merge_source, sources) if sources else CostSource.TABLE
    known = [usd for usd in amounts if not math.isnan(usd)]
    return Cost(sum(known, 0.0), source, is_lower_bound=len(known) < len(amounts))


def _most_expensive_prompt(
    session: str, rows: Mapping[str, RowBuilder], subagents: Sequence[SubagentSummary]
) -> TurnCost | None:
    """Return the prompt of a person whose steps, subagents included, cost most."""
    walk = _StepWalk(rows, subagents)
    main = rows[""]
    sources: set[CostSource] = set().union(*(thread.sources for thread in rows.values()))
    best: TurnCost | None = None
    for row, prompt in main.human_prompts.items():
        end = main.marks.find(RowMark.TURN, row + 1)
        amounts = list(walk.iter_costs("", row + 1, end if end >= 0 else len(main.marks), set()))
        if not amounts:
            continue
        is_known = not all(map(math.isnan, amounts))
        cost = _add_amounts(amounts, len(amounts), sources if is_known else set())
        if best is None or (cost.usd or 0.0, len(amounts)) > (best.cost_usd or 0.0, best.steps):
            number = main.marks.count(RowMark.TURN, 0, row + 1)
            is_partial = any(thread.has_lower_bounds for thread in rows.values())
            at_least = cost.is_lower_bound or is_partial
            steps = len(amounts)
            address = f"{session}#{number}"
            best = TurnCost(address, prompt, steps, cost.usd, cost.source, at_least)
    return best


class _StepWalk:
    """Steps in order, each followed by those of the subagents it started, each subagent once."""

    def __init__(
        self, rows: Mapping[str, RowBuilder], subagents: Sequence[SubagentSummary]
    ) -> None:
        self._rows = rows
        started = group_by_call(subagents)
        self._inner: dict[tuple[str, int], list[str]] = defaultdict(list)
        for name, thread in rows.items():
            for call_id, call in thread.subagent_calls.items():
                names = [subagent.id for subagent in started.get(call_id, ())]
                self._inner[name, call.row] += names

    def iter_costs(self, name: str, begin: int, end: int, seen: set[str]) -> Iterator[float]:
        """Yield the cost of each step from row `begin` to row `end` of a thread."""
        thread = self._rows[name]
        for row in range(begin, end):
            if thread.marks[row] != RowMark.STEP:
                continue
            yield thread.usd[row]
            for subagent in self._inner.get((name, row), ()):
                if subagent not in seen:
                    seen.add(subagent)
                    yield from self.iter_costs(subagent, 0, len(self._rows[subagent].marks), seen)
