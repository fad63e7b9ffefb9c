"""The cost of a response by the public price list.

Tiers: cache writes by life time, and bands of prices by the size of a response's prompt. A model
that is in no table costs an unknown amount, never zero; a name is never taken for a similar one.
"""

import functools
import pkgutil
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from flightlog.model.usage import ClientTotals, Cost, CostSource, ModelResponse, Usage, UsageQuality
from flightlog.usage.price_table import PRICES_FROM, ROWS, PriceList, PriceRow

_VENDOR_END = r"-v\d+(:\d+)?$"  # a cloud vendor's version of the model's name
_DATE = r"-(\d{4})-?(\d\d)-?(\d\d)$"  # of a snapshot: 2026-08-07 or 20260807
# What agents and gateways write before a model's name. Behind any other word, such as the name of
# a local server, the same model may cost nothing.
_PREFIXES = frozenset(
    "openai openai-codex azure google google-vertex vertex publishers models x-ai xai moonshotai "
    "moonshot zai z-ai deepseek mistral mistralai minimax qwen github-copilot copilot openrouter "
    "opencode".split()
)
_UNKNOWN = Cost(None, CostSource.UNKNOWN)
_UNPRICED: tuple[tuple[PriceList, ...], CostSource] = ((), CostSource.UNKNOWN)


def price(model: str, usage: Usage, at_ms: int | None = None) -> Cost:
    """Return the cost of `usage` of `model` by the prices at `at_ms`.

    If the time is unknown, the prices of the day on which the table was taken apply.
    """
    return price_in_band(model, usage, at_ms, context_band(model, usage.prompt_tokens, at_ms))


def price_in_band(model: str, usage: Usage, at_ms: int | None, band: int) -> Cost:
    """Return the cost of the summed usage of responses whose prompts are all in one band."""
    lists, source = _lists(model)
    if not lists:
        return Cost(0.0, CostSource.TABLE) if not usage else _UNKNOWN
    _, _, bands, searches = _in_force(lists, at_ms)
    given, output, read, five_minutes, hour = bands[band]
    tokens = usage.input_tokens * given + usage.output_tokens * output
    tokens += usage.cache_read_tokens * read
    tokens += usage.cache_write_5m_tokens * five_minutes + usage.cache_write_1h_tokens * hour
    return Cost(tokens / 1e6 + usage.web_searches * searches / 1e3, source)


def token_rates(
    model: str, usage: Usage, at_ms: int | None = None
) -> tuple[float, float, float] | None:
    """Return dollars per token of a prompt for reading from the cache, writing to it, and neither.

    Writes have the mean price of those in `usage`. None if the model is in no table.
    """
    if not is_priced(model):
        return None
    band = context_band(model, usage.prompt_tokens, at_ms)
    writes = Usage(0, 0, 0, usage.cache_write_tokens or 1, usage.cache_write_1h_tokens)
    kinds = (Usage(cache_read_tokens=1), writes, Usage(input_tokens=1))
    read, write, fresh = (price_in_band(model, kind, at_ms, band).usd or 0.0 for kind in kinds)
    return read, write / writes.cache_write_tokens, fresh


def context_band(model: str, prompt_tokens: int, at_ms: int | None) -> int:
    """Return the number of the price band of a prompt; 0 is the one of the shortest prompts."""
    lists, _ = _lists(model)
    return bisect_left(_in_force(lists, at_ms)[1], prompt_tokens) if lists else 0


def is_priced(model: str) -> bool:
    """Return whether a table has prices of `model`."""
    return bool(_lists(model)[0])


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
    models: dict[str, set[str]] = defaultdict(set)
    for response in responses:
        models[response.session].add(response.model)
    client_usd: dict[tuple[str, str], float] = {}
    for session, client in totals.items():
        for model in client.models:
            key = (session, model.model)
            if model.cost_usd:
                client_usd[key] = model.cost_usd
            if key in tokens and len(models[session]) > len(client.models):
                # A client that keeps one sum counts the other models in it.
                tokens[key] = max(tokens[key], model.usage.total_tokens)
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
def _lists(model: str) -> tuple[tuple[PriceList, ...], CostSource]:
    """Return the price lists of a model and the table they are in, or nothing.

    Cloud vendors write `us.anthropic.claude-…-v1:0` or `claude-…@date`, the client adds `[1m]`.
    """
    lower = model.lower().removesuffix("[1m]")
    name = lower[max(lower.find("claude"), 0) :]
    plain = (re.sub(_VENDOR_END, "", name) if "-v" in name else name).replace("@", "-")
    if lists := _find_row(ROWS, name) or _find_row(ROWS, plain):
        return lists, CostSource.TABLE
    *prefixes, name = lower.split("/")
    return _find_elsewhere(name) if _PREFIXES.issuperset(prefixes) else _UNPRICED


@functools.cache
def other_tables() -> dict[str, tuple[PriceRow, ...]]:
    """Return the rows of each provider but Anthropic: makers of models come before resellers.

    The first provider that has a model's name is the one whose price is taken.
    """
    data = pkgutil.get_data("flightlog.usage", "other_prices.json") or b""
    return msgspec.json.decode(data, type=dict[str, tuple[PriceRow, ...]])


def _find_elsewhere(name: str) -> tuple[tuple[PriceList, ...], CostSource]:
    """Return the price lists that the first of the other providers has, and its table."""
    dated = re.search(_DATE, name)
    base = name[: dated.start()] if dated else name
    names = (name, "-".join((base, *dated.groups())), base) if dated else (name,)
    for spelling in names:
        for provider, rows in other_tables().items():
            if lists := _find_row(rows, spelling):
                return lists, CostSource(f"{CostSource.TABLE.value}: {provider}")
    return _UNPRICED


def _find_row(rows: Iterable[PriceRow], name: str) -> tuple[PriceList, ...]:
    for patterns, lists in rows:
        if any(matches_pattern(pattern, name) for pattern in patterns.split()):
            return lists
    return ()


def matches_pattern(pattern: str, name: str) -> bool:
    """Return whether a pattern of the tables matches a model's name.

    Only a whole name matches the faster service of a model, `…-fast`, and a variant that a gateway
    offers, `…:free`: both have a price of their own.
    """
    if pattern[0] not in "^*" and pattern[-1] != "*":
        return name == pattern
    if name.endswith("-fast") or (":" in name and "claude" not in name):
        return False
    if pattern.startswith("^"):
        return re.search(pattern, name) is not None
    return pattern.strip("*") in name if pattern[0] == "*" else name.startswith(pattern[:-1])


def _in_force(lists: tuple[PriceList, ...], at_ms: int | None) -> PriceList:
    if len(lists) == 1:
        return lists[0]
    day, clock = PRICES_FROM["date"], ""
    if at_ms:  # 0 is a response without a time
        moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat()
        day, clock = moment[:10], moment[11:16]
    return next((prices for prices in lists if _applies(prices[0], day, clock)), lists[-1])


def _applies(condition: str, day: str, clock: str) -> bool:
    """Return whether a price list that began on a day, or has hours `01:00-04:00`, applies."""
    start, _, end = condition.partition("-")
    return start <= clock < end if ":" in start else condition <= day
