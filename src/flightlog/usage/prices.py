"""What a response costs by the public price list.

Tiers: cache writes by life time, and the long-context prices of a response whose prompt is
above the threshold. A model that is not in the table costs an unknown amount, never zero.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from flightlog.model.usage import ClientTotals, Cost, CostSource, ModelResponse, Usage
from flightlog.usage.price_table import ROWS, SOURCE, TAKEN, PriceList

PRICES_FROM = {"source": SOURCE, "date": TAKEN}
_VENDOR_END = r"-v\d+(:\d+)?$"
_UNKNOWN = Cost(None, CostSource.UNKNOWN)


def price(model: str, usage: Usage, at_ms: int | None = None) -> Cost:
    """Price `usage` of `model` as it was billed at `at_ms`, or now when that is not known."""
    threshold = long_context_threshold(model, at_ms)
    return price_at(model, usage, at_ms, long=bool(threshold) and usage.prompt > threshold)


def price_at(model: str, usage: Usage, at_ms: int | None, *, long: bool) -> Cost:
    """Price what several responses used together, all of them with a long prompt or none."""
    lists = _lists(model)
    if not lists:
        return Cost(0.0, CostSource.TABLE) if not usage else _UNKNOWN
    _, _, below, above, searches = _in_force(lists, at_ms)
    given, output, read, five_minutes, hour = above if long else below
    tokens = usage.input * given + usage.output * output + usage.cache_read * read
    tokens += usage.cache_write_5m * five_minutes + usage.cache_write_1h * hour
    return Cost(tokens / 1e6 + usage.web_searches * searches / 1e3, CostSource.TABLE)


def long_context_threshold(model: str, at_ms: int | None) -> int:
    """Return the prompt tokens above which a response of `model` has long-context prices, 0 when there are none."""
    lists = _lists(model)
    return _in_force(lists, at_ms)[1] if lists else 0


def is_priced(model: str) -> bool:
    """Say whether the table knows `model`."""
    return bool(_lists(model))


class PricedResponse(Struct, frozen=True):
    """A response and its cost."""

    response: ModelResponse
    cost: Cost


def price_responses(responses: Iterable[ModelResponse], totals: Mapping[str, ClientTotals]) -> list[PricedResponse]:
    """Price each response.

    Where the table has no price, share out the client's cost of that model in that session by
    tokens; `totals` are the clients' own totals by session.
    """
    every = list(responses)
    tokens: dict[tuple[str, str], int] = defaultdict(int)
    for response in every:
        if not is_priced(response.model):
            tokens[response.session, response.model] += response.usage.total
    client_usd = {
        (session, model.model): model.cost_usd
        for session, client in totals.items()
        for model in client.models
        if model.cost_usd
    }
    return [PricedResponse(response, _cost(response, tokens, client_usd)) for response in every]


def _cost(
    response: ModelResponse,
    tokens: Mapping[tuple[str, str], int],
    client_usd: Mapping[tuple[str, str], float],
) -> Cost:
    key = (response.session, response.model)
    if is_priced(response.model) or key not in client_usd or not tokens[key]:
        return price(response.model, response.usage, response.at_ms)
    return Cost(client_usd[key] * response.usage.total / tokens[key], CostSource.CLIENT)


@functools.cache
def _lists(model: str) -> tuple[PriceList, ...]:
    """Find a model; cloud vendors write `us.anthropic.claude-…-v1:0` or `claude-…@date`, the client adds `[1m]`."""
    said = model.lower().removesuffix("[1m]")
    name = said[max(said.find("claude"), 0) :]
    plain = (re.sub(_VENDOR_END, "", name) if "-v" in name else name).replace("@", "-")
    for clauses, lists in ROWS:
        if any(_matches(kind, word, each) for kind, word in clauses for each in (name, plain)):
            return lists
    return ()


def _matches(kind: str, word: str, name: str) -> bool:
    match kind:
        case "starts_with":
            return name.startswith(word)
        case "equals":
            return name == word
        case "contains":
            return word in name
        case _:
            return re.search(word, name) is not None


def _in_force(lists: tuple[PriceList, ...], at_ms: int | None) -> PriceList:
    if at_ms is None or len(lists) == 1:
        return lists[0]
    day = datetime.fromtimestamp(at_ms / 1000, tz=UTC).date().isoformat()
    return next((prices for prices in lists if prices[0] <= day), lists[-1])
