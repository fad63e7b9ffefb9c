"""Usage and cost by session, day, month, model, project or 5-hour block.

Takes the settled ledger; knows nothing of files. Days and months are those of the time
zone it is given. A row whose models have no price says so and costs None, never zero.
"""

import enum
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import groupby

from msgspec import Struct

from flightlog.model.usage import ClientTotals, Cost, CostSource, Response, Usage
from flightlog.views.prices import is_priced, price

HOUR_MS = 3_600_000
DAY_MS = 86_400_000
BLOCK_MS = 5 * HOUR_MS


class By(enum.Enum):
    """What a usage report can be broken down by."""

    SESSION = "session"
    DAY = "day"
    MONTH = "month"
    MODEL = "model"
    PROJECT = "project"
    BLOCK = "block"


class Priced(Struct, frozen=True):
    """A response and what it cost."""

    response: Response
    cost: Cost


class UsageRow(Struct, frozen=True):
    """One row of a report, or its total."""

    key: str
    usage: Usage
    cost: Cost
    responses: int
    sessions: int
    models: tuple[str, ...]
    unpriced: tuple[str, ...]
    first_ms: int
    last_ms: int


def priced(responses: Iterable[Response], totals: Mapping[str, ClientTotals]) -> list[Priced]:
    """Price each response; where the table has no price, share out what the session's client said."""
    known = list(responses)
    tokens: dict[tuple[str, str], int] = defaultdict(int)
    for response in known:
        if not is_priced(response.model):
            tokens[response.session, response.model] += response.usage.total
    said = {
        (session, model.model): model.cost_usd
        for session, client in totals.items()
        for model in client.models
        if model.cost_usd
    }
    return [Priced(response, _cost(response, tokens, said)) for response in known]


def rows(items: Sequence[Priced], by: By, zone: tzinfo) -> list[UsageRow]:
    """Break a report down; rows stand in the order of their keys, blocks and days by time."""
    keys = _keys(items, by, zone)
    grouped: dict[str, list[Priced]] = defaultdict(list)
    for item in items:
        grouped[keys(item.response)].append(item)
    return [total(grouped[key], key) for key in sorted(grouped)]


def total(items: Sequence[Priced], key: str = "") -> UsageRow:
    """Sum up."""
    return UsageRow(
        key=key,
        usage=sum((item.response.usage for item in items), Usage()),
        cost=summed(item.cost for item in items),
        responses=len(items),
        sessions=len({item.response.session for item in items}),
        models=tuple(sorted({item.response.model for item in items})),
        unpriced=tuple(sorted({item.response.model for item in items if item.cost.usd is None})),
        first_ms=min((item.response.at_ms for item in items), default=0),
        last_ms=max((item.response.at_ms for item in items), default=0),
    )


def summed(costs: Iterable[Cost]) -> Cost:
    """Add what is known; all unknown stays unknown."""
    known = list(costs)
    amounts = [cost.usd for cost in known if cost.usd is not None]
    if known and not amounts:
        return Cost(None, CostSource.UNKNOWN)
    source: CostSource | None = None
    for cost in known:
        if cost.usd is not None and source is not CostSource.MIXED and cost.source is not source:
            source = cost.source if source is None else CostSource.MIXED
    return Cost(sum(amounts, 0.0), source or CostSource.TABLE)


def blocks(items: Sequence[Priced]) -> list[tuple[int, int]]:
    """Find the 5-hour windows: each begins at the full hour of the first response after the last one ended."""
    found: list[tuple[int, int]] = []
    for at_ms in sorted(item.response.at_ms for item in items if item.response.at_ms):
        if not found or at_ms >= found[-1][1]:
            start = at_ms - at_ms % HOUR_MS
            found.append((start, start + BLOCK_MS))
    return found


def _cost(response: Response, tokens: Mapping[tuple[str, str], int], said: Mapping[tuple[str, str], float]) -> Cost:
    place = (response.session, response.model)
    if is_priced(response.model) or place not in said or not tokens[place]:
        return price(response.model, response.usage, response.at_ms)
    return Cost(said[place] * response.usage.total / tokens[place], CostSource.CLIENT)


def _keys(items: Sequence[Priced], by: By, zone: tzinfo) -> Callable[[Response], str]:
    match by:
        case By.SESSION:
            return lambda response: response.session
        case By.MODEL:
            return lambda response: response.model
        case By.DAY:
            return lambda response: _day(response.at_ms, zone, "%Y-%m-%d")
        case By.MONTH:
            return lambda response: _day(response.at_ms, zone, "%Y-%m")
        case By.PROJECT:
            homes = _projects(items)
            return lambda response: homes[response.session]
        case By.BLOCK:
            return _block_key(items)


def _projects(items: Sequence[Priced]) -> dict[str, str]:
    """A session belongs to the directory of its first response, wherever it went later."""
    ordered = sorted(items, key=lambda item: (item.response.session, item.response.at_ms, item.response.message_id))
    return {
        session: next((item.response.project for item in group if item.response.project), "")
        for session, group in groupby(ordered, key=lambda item: item.response.session)
    }


def _block_key(items: Sequence[Priced]) -> Callable[[Response], str]:
    starts = [start for start, _ in blocks(items)]

    def key(response: Response) -> str:
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
