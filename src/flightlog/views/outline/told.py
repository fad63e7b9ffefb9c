"""From the rows of a session's threads to its outline: lanes, summary, the dearest prompt.

The same figures as `summarise` and the fold of whole sessions give, without either.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct

from flightlog.model.events import LaneFacts
from flightlog.model.session import Session
from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.views.outline.rows import Rows
from flightlog.views.outline.shape import LaneHead, Mark, Outline
from flightlog.views.summary import SessionSummary, TurnCost


class Thread(Struct):
    """One subagent as far as it is known: its rows, its first words, and what stands beside its file."""

    name: str
    rows: Rows
    said: str
    facts: LaneFacts


def outline(
    session: Session, main: Rows, lanes: Iterable[Thread], named: Mapping[str, str], files: Iterable[str]
) -> Outline:
    """Put an outline together; `named` says which call a result ties a subagent to."""
    threads = list(lanes)
    heads = _heads(main, threads, named)
    rows = {each.name: each.rows for each in threads}
    told = _summary(session, main, heads, rows)
    for head in heads:
        if not head.call_id:
            kind = "warm-up" if head.warmup else head.agent_type or "subagent"
            main.orphan(head.id, f"{kind} without a call on record")
    values = {"": main.value(), **{head.id: rows[head.id].value() for head in heads}}
    return Outline(session, told, tuple(files), heads, values)


def _heads(main: Rows, threads: list[Thread], named: Mapping[str, str]) -> tuple[LaneHead, ...]:
    starts = {call: start for rows in (main, *(each.rows for each in threads)) for call, start in rows.starts.items()}
    asked: dict[str, list[str]] = defaultdict(list)
    for call, start in starts.items():
        if start.prompt is not None:
            asked[start.prompt].append(call)
    taken: set[str] = set()
    heads = []
    for each in threads:
        free = [call for call in asked.get(each.said, ()) if call not in taken]
        found = named.get(each.name) or (free[0] if free else "")
        taken.add(found)
        call = each.facts.call_id or found
        kind, description = each.facts.agent_type, each.facts.description
        if call in starts:
            kind, description = kind or starts[call].agent_type, description or starts[call].description
        heads.append(_head(each, kind, description, call))
    return tuple(sorted(heads, key=lambda head: (head.begun_ms, head.id)))


def _head(each: Thread, kind: str, description: str, call: str) -> LaneHead:
    rows = each.rows
    steps = rows.marks.count(Mark.STEP)
    early, late = rows.times or (None, None)
    warmup = not call and rows.first_words == "Warmup"
    cost = _summed([rows], steps)
    begun = rows.begin_ms or 0
    return LaneHead(each.name, kind, description, call, warmup, len(rows.marks), steps, cost, early, late, begun)


def _summary(session: Session, main: Rows, heads: tuple[LaneHead, ...], lanes: Mapping[str, Rows]) -> SessionSummary:
    every = [main, *(lanes[head.id] for head in heads)]
    steps = sum(rows.marks.count(Mark.STEP) for rows in every)
    return SessionSummary(
        session=session.id,
        agent=session.agent,
        title=session.title,
        project=session.cwd,
        branch=session.branch,
        version=session.version,
        started_ms=session.started_ms,
        ended_ms=session.ended_ms,
        turns=main.turns,
        steps=steps,
        tool_calls=sum(rows.calls for rows in every),
        failed_calls=sum(rows.failed_calls for rows in every),
        subagents=sum(not head.warmup for head in heads),
        models=tuple(sorted(set().union(*(rows.models for rows in every)))),
        usage=sum((rows.usage for rows in every), Usage()),
        cost=_summed(every, steps),
        dearest=_dearest(session.id, main, heads, lanes),
        compactions=main.marks.count(Mark.COMPACTION),
        unknown_records=sum(count for _, count in session.unknown),
        damaged=len(session.damage),
    )


def _summed(every: Iterable[Rows], steps: int) -> Cost:
    threads = list(every)
    sources = set().union(*(rows.sources for rows in threads))
    return _cost(chain.from_iterable(rows.usd for rows in threads), steps, sources)


def _cost(amounts: Iterable[float], steps: int, sources: set[CostSource]) -> Cost:
    """Add what is known; all unknown stays unknown."""
    if steps and not sources:
        return Cost(None, CostSource.UNKNOWN)
    source = next(iter(sources)) if len(sources) == 1 else CostSource.MIXED if sources else CostSource.TABLE
    return Cost(sum((each for each in amounts if each == each), 0.0), source)  # noqa: PLR0124 - not a number


def _dearest(session: str, main: Rows, heads: tuple[LaneHead, ...], lanes: Mapping[str, Rows]) -> TurnCost | None:
    """The prompt of a person that cost most, with all that it set in motion."""
    walk = _Walk(main, heads, lanes)
    best: TurnCost | None = None
    for row, words in main.asking.items():
        end = main.marks.find(Mark.TURN, row + 1)
        amounts = list(walk.steps("", row + 1, end if end >= 0 else len(main.marks), set()))
        if not amounts:
            continue
        known = {CostSource.TABLE} if any(each == each for each in amounts) else set()  # noqa: PLR0124
        sources = known and set().union(*(rows.sources for rows in (main, *lanes.values())))
        cost = _cost(amounts, len(amounts), sources)
        if best is None or (cost.usd or 0.0, len(amounts)) > (best.cost.usd or 0.0, best.steps):
            number = main.marks.count(Mark.TURN, 0, row + 1)
            best = TurnCost(f"{session}#{number}", words, len(amounts), cost)
    return best


class _Walk:
    """Steps in order, each followed by the subagents it started, every one once."""

    def __init__(self, main: Rows, heads: tuple[LaneHead, ...], lanes: Mapping[str, Rows]) -> None:
        self._rows = {"": main, **lanes}
        started = {head.call_id: head.id for head in heads if head.call_id}
        self._inner: dict[tuple[str, int], list[str]] = defaultdict(list)
        for name, rows in self._rows.items():
            for call, start in rows.starts.items():
                if call in started:
                    self._inner[name, start.row].append(started[call])

    def steps(self, name: str, begin: int, end: int, seen: set[str]) -> Iterator[float]:
        rows = self._rows[name]
        for row in range(begin, end):
            if rows.marks[row] != Mark.STEP:
                continue
            yield rows.usd[row]
            for lane in self._inner.get((name, row), ()):
                if lane not in seen:
                    seen.add(lane)
                    yield from self.steps(lane, 0, len(self._rows[lane].marks), seen)
