"""Prices of responses, and the rows of a usage report by session, day, month, model, project or 5-hour block.

A row whose models have no price says so and costs None, never zero.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping

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


def _cost(response: Response, tokens: Mapping[tuple[str, str], int], said: Mapping[tuple[str, str], float]) -> Cost:
    place = (response.session, response.model)
    if is_priced(response.model) or place not in said or not tokens[place]:
        return price(response.model, response.usage, response.at_ms)
    return Cost(said[place] * response.usage.total / tokens[place], CostSource.CLIENT)
