"""Tokens, prices and costs, and the response they belong to.

A response is one answer of a model; the agent may write several lines for it. Which line
counts is decided in `usage.attribution`, not here.
"""

import enum
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, astuple

HOUR_MS = 3_600_000
DAY_MS = 86_400_000
BLOCK_MS = 5 * HOUR_MS  # Anthropic's limits count in windows of five hours


class Usage(Struct, frozen=True, order=True):
    """Tokens by the price class they are billed in.

    `cache_write_tokens` are all that were written to the prompt cache, and
    `cache_write_1h_tokens` the part of them that stays for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    web_searches: int = 0

    @property
    def cache_write_5m_tokens(self) -> int:
        """Tokens written to the prompt cache for five minutes; the others stay for an hour."""
        return self.cache_write_tokens - self.cache_write_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        """All tokens the model read."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of each class."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            self.web_searches + other.web_searches,
        )

    def __neg__(self) -> "Usage":
        """Return the negative of each class."""
        return _ZERO - self

    def __sub__(self, other: "Usage") -> "Usage":
        """Return the difference of each class; it may be negative."""
        return Usage(*map(operator.sub, astuple(self), astuple(other)))

    def __bool__(self) -> bool:
        """Return whether any class differs from zero."""
        return self != _ZERO


_ZERO = Usage()


def split_prompt(prompt: int, output: int, *, cache_read: int = 0, cache_write: int = 0) -> Usage:
    """Return the usage of an API that counts cached tokens as a part of the prompt.

    More cached than prompt tokens are a contradiction; then no token counts as fresh input.
    """
    fresh = max(prompt - cache_read - cache_write, 0)
    return Usage(fresh, output, cache_read, cache_write)


class CostSource(enum.Enum):
    """Where a cost comes from."""

    TABLE = "price table"  # of Anthropic, or of several providers
    OPENAI = "price table: openai"
    GOOGLE = "price table: google"
    XAI = "price table: x-ai"
    MOONSHOT = "price table: moonshotai"
    ZAI = "price table: zai"
    DEEPSEEK = "price table: deepseek"
    MISTRAL = "price table: mistral"
    MINIMAX = "price table: minimax"
    COPILOT = "price table: github-copilot"
    OPENROUTER = "price table: openrouter"
    CLIENT = "client"
    MIXED = "price table and client"
    UNKNOWN = "unknown"

    @property
    def is_table(self) -> bool:
        """Whether all of the amount comes from price tables."""
        return self not in {CostSource.CLIENT, CostSource.MIXED, CostSource.UNKNOWN}

    def merge_source(self, other: "CostSource | None") -> "CostSource":
        """Return the source of a sum; an amount of another provider makes it plain `price table`."""
        if other is None or other is self:
            return self
        return CostSource.TABLE if self.is_table and other.is_table else CostSource.MIXED


class Cost(Struct, frozen=True):
    """An amount with its source; an unknown amount is None, never zero.

    It is a lower bound if not all tokens were recorded, or if a part of a sum has no price.
    `lacks_tokens` says the former: only then the token counts beside it are lower bounds too.
    """

    usd: float | None
    source: CostSource
    is_lower_bound: bool = False
    lacks_tokens: bool = False


class UsageQuality(enum.IntEnum):
    """How far the recorded counts of a response can be trusted."""

    EXACT = 0
    LOWER_BOUND = 1  # the client recorded the output count from the start of the stream
    MISSING = 2  # the client recorded no counts
    UNCOUNTED = 3  # exact, of a compaction that the client leaves out of its own total


class TokenCounts(Struct, frozen=True, kw_only=True):
    """A `Usage` as fields of its own: every JSON output has these keys beside its others."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    web_searches: int = 0

    @property
    def usage(self) -> Usage:
        """The counts as one value, for sums and prices."""
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.web_searches,
        )


class TokensAndCost(TokenCounts, frozen=True, kw_only=True):
    """A `Usage` and a `Cost` as fields of their own."""

    cost_usd: float | None
    cost_source: CostSource
    is_lower_bound: bool = False
    lacks_tokens: bool = False

    @property
    def cost(self) -> Cost:
        """The amount with its source."""
        return Cost(self.cost_usd, self.cost_source, self.is_lower_bound, self.lacks_tokens)


def usage_fields(usage: Usage, cost: Cost) -> dict[str, Any]:
    """Return tokens and cost under the names of `TokensAndCost`."""
    amount = {"cost_usd": cost.usd, "cost_source": cost.source}
    bounds = {"is_lower_bound": cost.is_lower_bound, "lacks_tokens": cost.lacks_tokens}
    return {**asdict(usage), **amount, **bounds}


def row_fields(row: "UsageRow") -> dict[str, Any]:
    """Return the tokens and cost of a row, and how many of its responses have none recorded."""
    return {**usage_fields(row.usage, row.cost), "unknown_responses": row.unknown_responses}


def format_cost(cost: Cost) -> str:
    """Return an amount as text, with its source unless that is a price table."""
    if cost.usd is None:
        return "cost unknown"
    amount = f"${cost.usd:,.4f}" if abs(cost.usd) < 1 else f"${cost.usd:,.2f}"
    amount = amount.replace("$-", "-$")
    amount = f"≥ {amount}" if cost.is_lower_bound else amount
    return amount if cost.source.is_table else f"{amount} ({cost.source.value})"


def is_unknown(usage: Usage, cost: Cost) -> bool:
    """Return whether no response of this usage has counts; a known usage of zero costs nothing."""
    return cost.usd is None and not usage


def format_tokens(count: int, usage: Usage, cost: Cost) -> str:
    """Return a count of `usage` as text: exact, at least that many, or unknown."""
    if is_unknown(usage, cost):
        return "unknown"
    return f"≥ {count:,}" if cost.lacks_tokens else f"{count:,}"


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Add the known amounts; without any the sum is unknown, without some a lower bound."""
    parts = list(costs)
    amounts = [cost.usd for cost in parts if cost.usd is not None]
    lacks_tokens = any(cost.lacks_tokens for cost in parts)
    if parts and not amounts:
        return Cost(None, CostSource.UNKNOWN, lacks_tokens=lacks_tokens)
    source: CostSource | None = None
    for cost in parts:
        if cost.usd is not None and cost.source is not source:
            source = cost.source.merge_source(source)
    is_lower_bound = len(amounts) < len(parts) or any(cost.is_lower_bound for cost in parts)
    return Cost(sum(amounts, 0.0), source or CostSource.TABLE, is_lower_bound, lacks_tokens)


class Breakdown(enum.Enum):
    """What a usage report can be broken down by."""

    SESSION = "session"
    DAY = "day"
    MONTH = "month"
    MODEL = "model"
    PROJECT = "project"
    AGENT = "agent"
    BLOCK = "block"


class UsageRow(Struct, frozen=True):
    """One row of a usage report, or its total; estimates are not part of `usage` and `cost`."""

    key: str
    usage: Usage
    cost: Cost
    responses: int
    sessions: int
    models: tuple[str, ...]
    unpriced_models: tuple[str, ...]
    first_ms: int
    last_ms: int
    unknown_responses: int = 0
    estimated_output_tokens: int = 0
    estimated_cost_usd: float = 0.0


class ModelResponse(Struct, frozen=True):
    """One recorded line of one model response, reduced to what accounting needs."""

    message_id: str
    session: str
    model: str
    usage: Usage
    at_ms: int
    project: str = ""
    request_id: str = ""
    subagent: str = ""
    is_aborted: bool = False
    quality: UsageQuality = UsageQuality.EXACT


class UsageLine(NamedTuple):
    """A `ModelResponse` as plain values: cheap to make, to sort and to send to another process."""

    message_id: str
    session: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    web_searches: int
    at_ms: int
    project: str
    request_id: str
    subagent: str
    is_aborted: bool
    quality: int = UsageQuality.EXACT

    @property
    def prompt_tokens(self) -> int:
        """All tokens the model read."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


def row_to_response(row: UsageLine) -> ModelResponse:
    """Return `row` as a `ModelResponse`, with the token counts grouped."""
    message_id, session, model, *_ = row
    usage = Usage(*row[3:9])
    rest = (row.at_ms, row.project, row.request_id, row.subagent, row.is_aborted)
    return ModelResponse(message_id, session, model, usage, *rest, UsageQuality(row.quality))


def response_to_row(response: ModelResponse) -> UsageLine:
    """Return `response` as a row."""
    message_id, session, model, usage, *rest = astuple(response)
    return UsageLine(message_id, session, model, *astuple(usage), *rest)


class ModelTotal(TokenCounts, frozen=True):
    """The client's own count for one model; `cost_usd` is None if it counts no dollars."""

    model: str
    cost_usd: float | None


class ClientTotals(Struct, frozen=True):
    """The client's own running total for a session, as it last wrote it; None is unknown.

    What a credit or a premium request costs depends on the plan, so they are no dollars.
    """

    session: str
    cost_usd: float | None
    started_ms: int
    models: tuple[ModelTotal, ...] = ()
    as_of_ms: int = 0
    credits: float | None = None
    premium_requests: float | None = None

    @property
    def usage(self) -> Usage:
        """The sum over all models."""
        return sum((model.usage for model in self.models), Usage())

    @property
    def known_units(self) -> dict[str, float]:
        """The known amounts of what the client counts instead of dollars, by their JSON key."""
        units = {"credits": self.credits, "premium_requests": self.premium_requests}
        return {name: amount for name, amount in units.items() if amount is not None}


class ClientCacheReport(Struct, frozen=True):
    """The client's own count of prompt cache misses since it started, as of `at_ms`."""

    at_ms: int
    requests: int
    misses: int
    rebuilds: int
    recached_tokens: int
    causes: dict[str, int] = {}
    hit_ratio: float | None = None


def format_client_total(totals: ClientTotals, digits: int = 6) -> str:
    """Return the client's total as text: dollars, units of its own, or only tokens."""
    dollars = [] if totals.cost_usd is None else [f"${totals.cost_usd:.{digits}f}"]
    amounts = [*dollars, *format_units(totals)]
    return ", ".join(amounts) if amounts else f"{totals.usage.total_tokens:,} tokens"


def format_units(totals: ClientTotals) -> list[str]:
    """Return each amount that the client counts instead of dollars as text."""
    return [
        f"{amount:,.6g} {name.replace('_', ' ').removesuffix('s' if amount == 1 else '')}"
        for name, amount in totals.known_units.items()
    ]
