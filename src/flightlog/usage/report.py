"""Usage reports from digests: by session, day, month, model, project, agent or 5-hour block.

A report over digests takes about a thousand additions, however many responses there were.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import astuple, replace

from flightlog.model.text import TIME_MS_MAX
from flightlog.model.usage import (
    BLOCK_MS,
    DAY_MS,
    HOUR_MS,
    Breakdown,
    Cost,
    CostSource,
    Usage,
    UsageRow,
    sum_costs,
)
from flightlog.usage.digest import USD_DIGITS, UsageBucket, UsageDigest
from flightlog.usage.reconciliation import Reconciliation, UsageGap, unpack_reconciliation


class BlockProjection(Struct, frozen=True):
    """The 5-hour block that runs now, and its cost at its end if the pace stays the same."""

    minutes_left: int
    cost_usd: float
    cost_per_hour_usd: float
    projected_usd: float


class UsageReport(Struct, frozen=True):
    """Rows and total of the recorded usage.

    `reconciled` are the digests of the sessions whose client reported a total.
    """

    by: Breakdown
    total: UsageRow
    rows: tuple[UsageRow, ...]
    reconciled: tuple[UsageDigest, ...]
    damaged_lines: int
    has_estimates: bool = False

    @property
    def gaps(self) -> tuple[UsageGap, ...]:
        """Every difference between a client's total and the record."""
        return tuple(gap for digest in self.reconciled for gap in digest.gaps)

    @property
    def reconciliations(self) -> tuple[Reconciliation, ...]:
        """Client total against record, for each session whose client reported one."""
        return tuple(unpack_reconciliation(digest.reconciliation) for digest in self.reconciled)


class UsageFilter(Struct, frozen=True):
    """Selects usage from a time on and before another, of a model, of projects whose path has a text."""

    since_ms: int = 0
    project: str = ""
    until_ms: int = TIME_MS_MAX
    model: str = ""


PACE_LEAST_MS = 5 * 60_000  # the first response of a block says nothing about an hour
DigestBucket = tuple[UsageDigest, UsageBucket]


def filter_digests(digests: Iterable[UsageDigest], only: UsageFilter | None) -> list[UsageDigest]:
    """Return the digests, or the part of them that `only` selects, to the quarter of an hour.

    A part has no reconciliation, because that is about whole sessions.
    """
    if only is None:
        return list(digests)
    selected = []
    for digest in digests:
        own = (one for one in digest.buckets if only.model in {"", one.model})
        buckets = tuple(
            one for one in own if only.since_ms <= one.last_ms and one.first_ms < only.until_ms
        )
        if buckets and only.project in digest.project:
            selected.append(UsageDigest(digest.session, digest.project, buckets))
    return selected


def build_report(
    digests: Sequence[UsageDigest],
    by: Breakdown,
    zone: tzinfo,
    damaged: int,
    agents: Mapping[str, str],
) -> UsageReport:
    """Return the report; only one by session has rows for sessions without responses.

    `agents` names the agent of each session.
    """
    rows = break_down(digests, by, zone, agents)
    total = _add_rows(rows, sum(1 for digest in digests if digest.buckets))
    if by is Breakdown.SESSION:
        silent = {digest.session for digest in digests if not digest.buckets}
        rows = sorted([*rows, *(_row((), key) for key in silent)], key=lambda row: row.key)
    reconciled = tuple(digest for digest in digests if digest.reconciliation)
    return UsageReport(by, total, tuple(rows), reconciled, damaged)


def break_down(
    digests: Sequence[UsageDigest], by: Breakdown, zone: tzinfo, agents: Mapping[str, str]
) -> list[UsageRow]:
    """Return a report's rows in the order of their keys."""
    items = [(digest, bucket) for digest in digests for bucket in digest.buckets]
    key = _key_function(items, by, zone, agents)
    grouped: dict[str, list[DigestBucket]] = defaultdict(list)
    for item in items:
        grouped[key(*item)].append(item)
    return [_row(grouped[name], name) for name in sorted(grouped)]


def project_block(rows: Sequence[UsageRow], now_ms: int) -> BlockProjection | None:
    """Return the projection of the last of some blocks; None if it has ended."""
    last = max(rows, key=lambda row: row.key, default=None)
    if last is None or not last.key:
        return None
    start_ms = int(datetime.fromisoformat(last.key).timestamp() * 1000)
    left_ms = start_ms + BLOCK_MS - now_ms
    if not 0 < left_ms <= BLOCK_MS:
        return None
    cost = last.cost.usd or 0.0
    began_ms = min(last.first_ms or start_ms, now_ms)
    per_ms = cost / max(now_ms - began_ms, PACE_LEAST_MS)
    projected = round(cost + per_ms * left_ms, USD_DIGITS)
    return BlockProjection(left_ms // 60_000, cost, round(per_ms * HOUR_MS, USD_DIGITS), projected)


def total_row(digests: Iterable[UsageDigest]) -> UsageRow:
    """Return a report's total."""
    return _row([(digest, bucket) for digest in digests for bucket in digest.buckets], "")


def _row(items: Sequence[DigestBucket], key: str) -> UsageRow:
    """Return the sum of buckets, in one pass: a report of a year has thousands of them."""
    usages: list[tuple[int, ...]] = []
    amounts: list[float] = []
    sessions, models, unpriced = set(), set(), set()
    responses, first_ms, last_ms, unknown, lacks_tokens = 0, sys.maxsize, 0, 0, False
    source: CostSource | None = None
    estimates = [bucket for _, bucket in items if bucket.is_estimate]
    for digest, bucket in items:
        if bucket.is_estimate:
            continue
        unknown += bucket.unknown_responses
        lacks_tokens |= bucket.is_lower_bound or bool(bucket.unknown_responses)
        usages.append(astuple(bucket.usage))
        responses += bucket.responses
        sessions.add(digest.session)
        models.add(bucket.model)
        first_ms = min(bucket.first_ms, first_ms)
        last_ms = max(bucket.last_ms, last_ms)
        if bucket.cost_usd is None:
            if bucket.unknown_responses < bucket.responses:
                unpriced.add(bucket.model)
            continue
        amounts.append(bucket.cost_usd)
        if bucket.source is not source:
            source = bucket.source.merge_source(source)
    bounds = (lacks_tokens or bool(unpriced), lacks_tokens)
    cost = Cost(round(sum(amounts, 0.0), USD_DIGITS), source or CostSource.TABLE, *bounds)
    if items and not amounts:
        cost = Cost(None, CostSource.UNKNOWN, lacks_tokens=lacks_tokens)
    return UsageRow(
        key=key,
        usage=Usage(*map(sum, zip(*usages, strict=True))),
        cost=cost,
        responses=responses,
        sessions=len(sessions),
        models=tuple(sorted(models)),
        unpriced_models=tuple(sorted(unpriced)),
        first_ms=first_ms if items else 0,
        last_ms=last_ms,
        unknown_responses=unknown,
        estimated_output_tokens=sum(item.usage.output_tokens for item in estimates),
        estimated_cost_usd=round(sum(item.cost_usd or 0.0 for item in estimates), USD_DIGITS),
    )


def _add_rows(rows: Sequence[UsageRow], sessions: int) -> UsageRow:
    """Return the total of rows; a session may be in several, so the caller counts `sessions`."""
    cost = sum_costs(row.cost for row in rows)
    return UsageRow(
        key="",
        usage=sum((row.usage for row in rows), Usage()),
        cost=cost if cost.usd is None else replace(cost, usd=round(cost.usd, USD_DIGITS)),
        responses=sum(row.responses for row in rows),
        sessions=sessions,
        models=tuple(sorted({model for row in rows for model in row.models})),
        unpriced_models=tuple(sorted({model for row in rows for model in row.unpriced_models})),
        first_ms=min((row.first_ms for row in rows), default=0),
        last_ms=max((row.last_ms for row in rows), default=0),
        unknown_responses=sum(row.unknown_responses for row in rows),
        estimated_output_tokens=sum(row.estimated_output_tokens for row in rows),
        estimated_cost_usd=round(sum(row.estimated_cost_usd for row in rows), USD_DIGITS),
    )


def _key_function(
    items: Sequence[DigestBucket], by: Breakdown, zone: tzinfo, agents: Mapping[str, str]
) -> Callable[[UsageDigest, UsageBucket], str]:
    if by is Breakdown.BLOCK:
        return _block_key(items)
    if by in {Breakdown.DAY, Breakdown.MONTH}:
        return _date_key(len("2026-01-31" if by is Breakdown.DAY else "2026-01"), zone)
    if by is Breakdown.MODEL:
        return lambda _, bucket: bucket.model
    if by is Breakdown.AGENT:
        return lambda digest, bucket: bucket.agent or agents.get(digest.session, "")
    name = attrgetter(by.value)  # session or project
    return lambda digest, _: name(digest)


def _date_key(length: int, zone: tzinfo) -> Callable[[UsageDigest, UsageBucket], str]:
    offsets: dict[int, int | None] = {}
    days: dict[int, str] = {}

    def key(_: UsageDigest, bucket: UsageBucket) -> str:
        quarter = bucket.quarter_ms
        if not quarter:
            return ""  # a response without a time belongs to no day
        day = quarter // DAY_MS
        if day not in offsets:
            offsets[day] = _offset_ms(day, zone)
        offset = offsets[day]
        if offset is None:
            return _utc(quarter).astimezone(zone).date().isoformat()[:length]
        local_day = (quarter + offset) // DAY_MS
        if local_day not in days:
            days[local_day] = _utc(local_day * DAY_MS).date().isoformat()[:length]
        return days[local_day]

    return key


def _offset_ms(day: int, zone: tzinfo) -> int | None:
    """Return the zone's offset on a day of UTC; None if it changes on that day."""
    begin, end = (_utc(at * DAY_MS).astimezone(zone).utcoffset() for at in (day, day + 1))
    return None if begin is None or begin != end else int(begin.total_seconds() * 1000)


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def _block_key(items: Sequence[DigestBucket]) -> Callable[[UsageDigest, UsageBucket], str]:
    """Return a function that names the 5-hour block of a bucket.

    A block begins at the full hour of the first response after the block before it, so a quarter
    is never in two blocks.
    """
    starts: dict[int, int] = {}
    start = end = 0
    for quarter in sorted({bucket.quarter_ms for _, bucket in items if bucket.quarter_ms}):
        if quarter >= end:
            start = quarter - quarter % HOUR_MS
            end = start + BLOCK_MS
        starts[quarter] = start
    names = {quarter: _utc(start).isoformat()[:-6] + "Z" for quarter, start in starts.items()}
    return lambda _, bucket: names.get(bucket.quarter_ms, "")
