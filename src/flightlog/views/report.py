"""Usage reports from digests: by session, day, month, model, project or 5-hour block.

A report over a digest costs about a thousand additions, however many responses there were.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo

from msgspec import Struct
from msgspec.structs import astuple, replace

from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.views.digest import USD_DIGITS, SessionDigest, Tally
from flightlog.views.truth import Gap, Truth, unpacked
from flightlog.views.usage import BLOCK_MS, DAY_MS, HOUR_MS, By, UsageRow, summed

WHOLE = frozenset({By.SESSION, By.BLOCK})  # their rows depend on more than themselves


class TruthPart(Struct, frozen=True, array_like=True):
    """A row of the truth table as its digest holds it: packed, its gaps beside it."""

    session: str
    gaps: tuple[Gap, ...]
    told: bytes


class UsageReport(Struct, frozen=True):
    """A usage report: rows and total of what was recorded, and the truth table beside it."""

    by: By
    total: UsageRow
    rows: tuple[UsageRow, ...]
    parts: tuple[TruthPart, ...]
    damaged: int

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the clients counted besides, or did not count."""
        return tuple(gap for part in self.parts for gap in part.gaps)

    @property
    def truths(self) -> tuple[Truth, ...]:
        """The truth table, a row for each session whose client counted."""
        return tuple(unpacked(part.told) for part in self.parts)


class Only(Struct, frozen=True):
    """What a report is limited to: a time on, to the quarter of an hour, and a part of the project's path."""

    since_ms: int = 0
    project: str = ""


Item = tuple[SessionDigest, Tally]


def limited(digests: Iterable[SessionDigest], only: Only) -> list[SessionDigest]:
    """Leave out what is not asked for, and with it the truth table, which speaks of whole sessions."""
    kept = []
    for digest in digests:
        tallies = tuple(tally for tally in digest.tallies if tally.last_ms >= only.since_ms)
        if tallies and only.project in digest.project:
            kept.append(SessionDigest(digest.session, digest.project, tallies))
    return kept


def report(digests: Sequence[SessionDigest], by: By, zone: tzinfo, damaged: int) -> UsageReport:
    """Make the whole report."""
    rows = broken_down(digests, by, zone)
    total = _together(rows, sum(1 for digest in digests if digest.tallies))
    if by is By.SESSION:
        silent = {digest.session for digest in digests if not digest.tallies}
        rows = sorted([*rows, *(_row((), key) for key in silent)], key=lambda row: row.key)
    return UsageReport(by, total, tuple(rows), _parts(digests), damaged)


def grown(
    before: UsageReport, old: Sequence[SessionDigest], new: Sequence[SessionDigest], zone: tzinfo, damaged: int
) -> UsageReport | None:
    """Bring a report up to date with sessions that changed, `old` as they were and `new` as they are.

    None where adding does not do: something is gone that only all digests together can tell. `WHOLE`
    breakdowns are always made of all digests.
    """
    if before.by in WHOLE:
        return None
    was = {row.key: row for row in broken_down(old, before.by, zone)}
    now = {row.key: row for row in broken_down(new, before.by, zone)}
    rows = {row.key: row for row in before.rows}
    for key in {*was, *now}:
        row = _exchanged(rows.get(key), was.get(key), now.get(key))
        if row is None:
            return None
        rows[key] = row
    sessions = before.total.sessions + sum(1 for each in new if each.tallies) - sum(1 for each in old if each.tallies)
    parts = {part.session: part for part in before.parts if part.session not in {each.session for each in old}}
    parts.update((part.session, part) for part in _parts(new))
    ordered = tuple(rows[key] for key in sorted(rows))
    told = tuple(parts[session] for session in sorted(parts))
    return UsageReport(before.by, _together(ordered, sessions), ordered, told, damaged)


def broken_down(digests: Sequence[SessionDigest], by: By, zone: tzinfo) -> list[UsageRow]:
    """Return a report's rows in the order of their keys."""
    items = [(digest, tally) for digest in digests for tally in digest.tallies]
    key = _keys(items, by, zone)
    grouped: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        grouped[key(*item)].append(item)
    return [_row(grouped[name], name) for name in sorted(grouped)]


def summed_up(digests: Iterable[SessionDigest]) -> UsageRow:
    """Return a report's total."""
    return _row([(digest, tally) for digest in digests for tally in digest.tallies], "")


def _row(items: Sequence[Item], key: str) -> UsageRow:
    """Sum up in one pass: a report of a year is thousands of tallies."""
    used: list[tuple[int, ...]] = []
    amounts: list[float] = []
    sessions, models, unpriced = set(), set(), set()
    responses, first_ms, last_ms = 0, sys.maxsize, 0
    source: CostSource | None = None
    for digest, tally in items:
        used.append(astuple(tally.usage))
        responses += tally.responses
        sessions.add(digest.session)
        models.add(tally.model)
        first_ms = min(tally.first_ms, first_ms)
        last_ms = max(tally.last_ms, last_ms)
        if tally.usd is None:
            unpriced.add(tally.model)
            continue
        amounts.append(tally.usd)
        if tally.source is not source:
            source = tally.source if source is None else CostSource.MIXED
    cost = Cost(round(sum(amounts, 0.0), USD_DIGITS), source or CostSource.TABLE)
    return UsageRow(
        key=key,
        usage=Usage(*map(sum, zip(*used, strict=True))),
        cost=cost if amounts or not items else Cost(None, CostSource.UNKNOWN),
        responses=responses,
        sessions=len(sessions),
        models=tuple(sorted(models)),
        unpriced=tuple(sorted(unpriced)),
        first_ms=first_ms if items else 0,
        last_ms=last_ms,
    )


def _exchanged(row: UsageRow | None, was: UsageRow | None, now: UsageRow | None) -> UsageRow | None:
    """Replace a part of a row by what it has grown to; None if it did more than grow."""
    if row is None or now is None:
        return now
    if was is None:
        return _together([row, now], row.sessions + now.sessions, row.key)
    if was.first_ms < now.first_ms or was.last_ms > now.last_ms or was.cost.source is not now.cost.source:
        return None
    if not (set(was.models) <= set(now.models) and set(was.unpriced) <= set(now.unpriced)):
        return None
    both = _together([row, now], row.sessions + now.sessions - was.sessions, row.key)
    usd = None if both.cost.usd is None else round(both.cost.usd - (was.cost.usd or 0.0), USD_DIGITS)
    return replace(
        both, usage=both.usage - was.usage, cost=Cost(usd, both.cost.source), responses=both.responses - was.responses
    )


def _parts(digests: Iterable[SessionDigest]) -> tuple[TruthPart, ...]:
    return tuple(TruthPart(each.session, each.gaps, each.told) for each in digests if each.told)


def _together(rows: Sequence[UsageRow], sessions: int, key: str = "") -> UsageRow:
    """Add up rows that each hold something; a session may stand in several."""
    cost = summed(row.cost for row in rows)
    return UsageRow(
        key=key,
        usage=sum((row.usage for row in rows), Usage()),
        cost=cost if cost.usd is None else Cost(round(cost.usd, USD_DIGITS), cost.source),
        responses=sum(row.responses for row in rows),
        sessions=sessions,
        models=tuple(sorted({model for row in rows for model in row.models})),
        unpriced=tuple(sorted({model for row in rows for model in row.unpriced})),
        first_ms=min((row.first_ms for row in rows), default=0),
        last_ms=max((row.last_ms for row in rows), default=0),
    )


def _keys(items: Sequence[Item], by: By, zone: tzinfo) -> Callable[[SessionDigest, Tally], str]:
    match by:
        case By.SESSION:
            return lambda digest, _: digest.session
        case By.MODEL:
            return lambda _, tally: tally.model
        case By.PROJECT:
            return lambda digest, _: digest.project
        case By.DAY:
            return _dated(10, zone)
        case By.MONTH:
            return _dated(7, zone)
        case By.BLOCK:
            return _blocked(items)


def _dated(length: int, zone: tzinfo) -> Callable[[SessionDigest, Tally], str]:
    offsets: dict[int, int | None] = {}
    days: dict[int, str] = {}

    def key(_: SessionDigest, tally: Tally) -> str:
        quarter = tally.quarter_ms
        if not quarter:
            return ""  # a response without a time belongs to no day
        day = quarter // DAY_MS
        if day not in offsets:
            offsets[day] = _offset_ms(day, zone)
        offset = offsets[day]
        if offset is None:
            return _moment(quarter).astimezone(zone).date().isoformat()[:length]
        there = (quarter + offset) // DAY_MS
        if there not in days:
            days[there] = _moment(there * DAY_MS).date().isoformat()[:length]
        return days[there]

    return key


def _offset_ms(day: int, zone: tzinfo) -> int | None:
    """What the zone adds on a day of UTC; None on a day on which that changes."""
    begin, end = (_moment(at * DAY_MS).astimezone(zone).utcoffset() for at in (day, day + 1))
    return None if begin is None or begin != end else int(begin.total_seconds() * 1000)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def _blocked(items: Sequence[Item]) -> Callable[[SessionDigest, Tally], str]:
    """A block begins at the full hour of the first response after the last one ended; quarters never straddle that."""
    starts: dict[int, int] = {}
    start = end = 0
    for quarter in sorted({tally.quarter_ms for _, tally in items if tally.quarter_ms}):
        if quarter >= end:
            start = quarter - quarter % HOUR_MS
            end = start + BLOCK_MS
        starts[quarter] = start
    names = {each: _moment(begin).isoformat()[:-6] + "Z" for each, begin in starts.items()}
    return lambda _, tally: names.get(tally.quarter_ms, "")
