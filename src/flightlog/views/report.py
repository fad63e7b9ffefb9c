"""Usage reports from digests: by session, day, month, model, project or 5-hour block.

The same rows `views.usage` makes of single responses, in the time of a thousand additions.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo

from msgspec import Struct
from msgspec.structs import astuple

from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.views.digest import SessionDigest, Tally
from flightlog.views.truth import Truth
from flightlog.views.usage import BLOCK_MS, DAY_MS, HOUR_MS, By, UsageRow


class UsageReport(Struct, frozen=True):
    """A usage report: rows and total of what was recorded, and the truth table beside it."""

    by: By
    total: UsageRow
    rows: tuple[UsageRow, ...]
    truths: tuple[Truth, ...]
    damaged: int


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
            kept.append(SessionDigest(digest.session, digest.project, tallies, None))
    return kept


def report(digests: Sequence[SessionDigest], by: By, zone: tzinfo, damaged: int) -> UsageReport:
    """Make the whole report."""
    rows = broken_down(digests, by, zone)
    if by is By.SESSION:
        silent = {digest.session for digest in digests if not digest.tallies}
        rows = sorted([*rows, *(_row((), key) for key in silent)], key=lambda row: row.key)
    truths = tuple(digest.truth for digest in digests if digest.truth)
    return UsageReport(by, summed_up(digests), tuple(rows), truths, damaged)


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
    cost = Cost(sum(amounts, 0.0), source or CostSource.TABLE)
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
