"""The cost of a response by the public price list.

Tiers: cache writes by life time, and the long-context prices of a response whose prompt is
above the threshold. A model that is not in the table costs an unknown amount, never zero.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from flightlog.model.usage import ClientTotals, Cost, CostSource, ModelResponse, Usage, UsageQuality
from flightlog.usage.price_table import ROWS, SOURCE, TAKEN, PriceList

PRICES_FROM = {"source": SOURCE, "date": TAKEN}
_VENDOR_END = r"-v\d+(:\d+)?$"  # a cloud vendor's version of the model's name
_UNKNOWN = Cost(None, CostSource.UNKNOWN)


def price(model: str, usage: Usage, at_ms: int | None = None) -> Cost:
    """Return the cost of `usage` of `model` by the prices at `at_ms`, or now if that is unknown."""
    threshold = long_context_threshold(model, at_ms)
    return price_at(model, usage, at_ms, long=bool(threshold) and usage.prompt_tokens > threshold)


def price_at(model: str, usage: Usage, at_ms: int | None, *, long: bool) -> Cost:
    """Return the cost of the summed usage of responses that all have a long prompt, or none."""
    lists = _lists(model)
    if not lists:
        return Cost(0.0, CostSource.TABLE) if not usage else _UNKNOWN
    _, _, below, above, searches = _in_force(lists, at_ms)
    given, output, read, five_minutes, hour = above if long else below
    tokens = (
        usage.input_tokens * given + usage.output_tokens * output + usage.cache_read_tokens * read
    )
    tokens += usage.cache_write_5m_tokens * five_minutes + usage.cache_write_1h_tokens * hour
    return Cost(tokens / 1e6 + usage.web_searches * searches / 1e3, CostSource.TABLE)


def long_context_threshold(model: str, at_ms: int | None) -> int:
    """Return the prompt tokens above which long-context prices apply; 0 if there are none."""
    lists = _lists(model)
    return _in_force(lists, at_ms)[1] if lists else 0


def is_priced(model: str) -> bool:
    """Return whether the table has prices of `model`."""
    return bool(_lists(model))


class PricedResponse(Struct, frozen=True):
    """A response and its cost."""

    response: ModelResponse
    cost: Cost


def price_responses(
    responses: Iterable[ModelResponse], totals: Mapping[str, ClientTotals]
) -> list[PricedResponse]:
    """Return each response with its cost.

    Where the table has no price, share out the client's cost of that model in that session by
    tokens; `totals` are the clients' own totals by session.
    """
    responses = list(responses)
    tokens: dict[tuple[str, str], int] = defaultdict(int)
    for response in responses:
        if not is_priced(response.model):
            tokens[response.session, response.model] += response.usage.total_tokens
    client_usd = {
        (session, model.model): model.cost_usd
        for session, client in totals.items()
        for model in client.models
        if model.cost_usd
    }
    return [PricedResponse(response, _cost(response, tokens, client_usd)) for response in responses]


def _cost(
    response: ModelResponse,
    tokens: Mapping[tuple[str, str], int],
    client_usd: Mapping[tuple[str, str], float],
) -> Cost:
    key = (response.session, response.model)
    if response.quality is UsageQuality.MISSING:
        return _UNKNOWN
    if is_priced(response.model) or key not in client_usd or not tokens[key]:
        return price(response.model, response.usage, response.at_ms)
    return Cost(client_usd[key] * response.usage.total_tokens / tokens[key], CostSource.CLIENT)


@functools.cache
def _lists(model: str) -> tuple[PriceList, ...]:
    """Return the price lists of a model, or nothing.

    Cloud vendors write `us.anthropic.claude-…-v1:0` or `claude-…@date`, the client adds `[1m]`.
    """
    lower = model.lower().removesuffix("[1m]")
    name = lower[max(lower.find("claude"), 0) :]
    plain = (re.sub(_VENDOR_END, "", name) if "-v" in name else name).replace("@", "-")
    for patterns, lists in ROWS:
        if any(_matches(pattern, name) or _matches(pattern, plain) for pattern in patterns.split()):
            return lists
    return ()


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("^"):
        return re.search(pattern, name) is not None
    if pattern.startswith("*"):
        return pattern.strip("*") in name
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _in_force(lists: tuple[PriceList, ...], at_ms: int | None) -> PriceList:
    if at_ms is None or len(lists) == 1:
        return lists[0]
    day = datetime.fromtimestamp(at_ms / 1000, tz=UTC).date().isoformat()
    return next((prices for prices in lists if prices[0] <= day), lists[-1])
