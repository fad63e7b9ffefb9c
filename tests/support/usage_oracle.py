"""A usage report made the slow and obvious way, response by response; tests compare the real report with it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import groupby

from flightlog.model.usage import (
    BLOCK_MS,
    HOUR_MS,
    Breakdown,
    ModelResponse,
    Usage,
    UsageRow,
    sum_costs,
)
from flightlog.usage.prices import PricedResponse

# Which agent each session of the tests is of.
AGENTS = {"s1": "claude-code", "s2": "codex"}


def rows(items: Sequence[PricedResponse], by: Breakdown, zone: tzinfo) -> list[UsageRow]:
    """Break a report down; rows stand in the order of their keys, blocks and days by time."""
    keys = _keys(items, by, zone)
    grouped: dict[str, list[PricedResponse]] = defaultdict(list)
    for item in items:
        grouped[keys(item.response)].append(item)
    return [total(grouped[key], key) for key in sorted(grouped)]


def total(items: Sequence[PricedResponse], key: str = "") -> UsageRow:
    """Sum up."""
    return UsageRow(
        key=key,
        usage=sum((item.response.usage for item in items), Usage()),
        cost=sum_costs(item.cost for item in items),
        responses=len(items),
        sessions=len({item.response.session for item in items}),
        models=tuple(sorted({item.response.model for item in items})),
        unpriced_models=tuple(
            sorted({item.response.model for item in items if item.cost.usd is None})
        ),
        first_ms=min((item.response.at_ms for item in items), default=0),
        last_ms=max((item.response.at_ms for item in items), default=0),
    )


def blocks(items: Sequence[PricedResponse]) -> list[tuple[int, int]]:
    """Find the 5-hour windows: each begins at the full hour of the first response after the last one ended."""
    spans: list[tuple[int, int]] = []
    for at_ms in sorted(item.response.at_ms for item in items if item.response.at_ms):
        if not spans or at_ms >= spans[-1][1]:
            start = at_ms - at_ms % HOUR_MS
            spans.append((start, start + BLOCK_MS))
    return spans


def _keys(
    items: Sequence[PricedResponse], by: Breakdown, zone: tzinfo
) -> Callable[[ModelResponse], str]:
    match by:
        case Breakdown.SESSION | Breakdown.AGENT:
            names = AGENTS if by is Breakdown.AGENT else {}
            return lambda response: names.get(response.session, response.session)
        case Breakdown.MODEL:
            return lambda response: response.model
        case Breakdown.DAY:
            return lambda response: _day(response.at_ms, zone, "%Y-%m-%d")
        case Breakdown.MONTH:
            return lambda response: _day(response.at_ms, zone, "%Y-%m")
        case Breakdown.PROJECT:
            homes = _projects(items)
            return lambda response: homes[response.session]
        case Breakdown.BLOCK:
            return _block_key(items)


def _projects(items: Sequence[PricedResponse]) -> dict[str, str]:
    """A session belongs to the directory of its first response, wherever it went later."""
    ordered = sorted(
        items,
        key=lambda item: (item.response.session, item.response.at_ms, item.response.message_id),
    )
    return {
        session: next((item.response.project for item in group if item.response.project), "")
        for session, group in groupby(ordered, key=lambda item: item.response.session)
    }


def _block_key(items: Sequence[PricedResponse]) -> Callable[[ModelResponse], str]:
    starts = [start for start, _ in blocks(items)]

    def key(response: ModelResponse) -> str:
        if not response.at_ms:
            return ""
        start = starts[bisect_right(starts, response.at_ms) - 1]
        return _local(start, UTC).isoformat().replace("+00:00", "Z")

    return key


def _local(at_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone)


def _day(at_ms: int, zone: tzinfo, form: str) -> str:
    """A response without a time belongs to no day."""
    return _local(at_ms, zone).strftime(form) if at_ms else ""
