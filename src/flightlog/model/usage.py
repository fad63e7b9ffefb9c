"""Tokens, prices and costs, and the response they belong to.

A response is one answer of a model; the agent may write several lines for it. Which line
counts is decided in `usage.attribution`, not here.
"""

import enum
import operator
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

HOUR_MS = 3_600_000
DAY_MS = 86_400_000
BLOCK_MS = 5 * HOUR_MS  # Anthropic's limits count in windows of five hours


class Usage(Struct, frozen=True, order=True):
    """Tokens by the price class they are billed in."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    web_searches: int = 0

    @property
    def cache_write_tokens(self) -> int:
        """Tokens written to the prompt cache, for five minutes or an hour."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        """All tokens the model read."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.output_tokens

    cache_write, prompt, total = cache_write_tokens, prompt_tokens, total_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of each class."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_5m_tokens + other.cache_write_5m_tokens,
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


class CostSource(enum.Enum):
    """Where a cost comes from."""

    TABLE = "price table"
    CLIENT = "client"
    MIXED = "price table and client"
    UNKNOWN = "unknown"


class Cost(Struct, frozen=True):
    """An amount with its source; an unknown amount is None, never zero."""

    usd: float | None
    source: CostSource


def format_cost(cost: Cost) -> str:
    """Return an amount as text, with its source unless that is the price table."""
    if cost.usd is None:
        return "cost unknown"
    amount = f"${cost.usd:,.4f}" if abs(cost.usd) < 1 else f"${cost.usd:,.2f}"
    return amount if cost.source is CostSource.TABLE else f"{amount} ({cost.source.value})"


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Add the known amounts; if there are none, the sum is unknown."""
    parts = list(costs)
    amounts = [cost.usd for cost in parts if cost.usd is not None]
    if parts and not amounts:
        return Cost(None, CostSource.UNKNOWN)
    source: CostSource | None = None
    for cost in parts:
        if cost.usd is not None and source is not CostSource.MIXED and cost.source is not source:
            source = cost.source if source is None else CostSource.MIXED
    return Cost(sum(amounts, 0.0), source or CostSource.TABLE)


class Breakdown(enum.Enum):
    """What a usage report can be broken down by."""

    SESSION = "session"
    DAY = "day"
    MONTH = "month"
    MODEL = "model"
    PROJECT = "project"
    BLOCK = "block"


class UsageRow(Struct, frozen=True):
    """One row of a usage report, or its total."""

    key: str
    usage: Usage
    cost: Cost
    responses: int
    sessions: int
    models: tuple[str, ...]
    unpriced_models: tuple[str, ...]
    first_ms: int
    last_ms: int


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


class UsageLine(NamedTuple):
    """A `ModelResponse` as plain values: cheap to make, to sort and to send to another process."""

    message_id: str
    session: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    web_searches: int
    at_ms: int
    project: str
    request_id: str
    subagent: str
    is_aborted: bool

    @property
    def prompt(self) -> int:
        """All tokens the model read."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_5m_tokens
            + self.cache_write_1h_tokens
        )


def row_to_response(row: UsageLine) -> ModelResponse:
    """Return `row` as a `ModelResponse`, with the token counts grouped."""
    message_id, session, model, *_ = row
    usage = Usage(*row[3:9])
    rest = (row.at_ms, row.project, row.request_id, row.subagent, row.is_aborted)
    return ModelResponse(message_id, session, model, usage, *rest)


def response_to_row(response: ModelResponse) -> UsageLine:
    """Return `response` as a row."""
    message_id, session, model, usage, *rest = astuple(response)
    return UsageLine(message_id, session, model, *astuple(usage), *rest)


class ModelTotal(Struct, frozen=True):
    """The client's own count for one model."""

    model: str
    usage: Usage
    cost_usd: float


class ClientTotals(Struct, frozen=True):
    """The client's own running total for a session, as it last wrote it."""

    session: str
    cost_usd: float
    started_ms: int
    models: tuple[ModelTotal, ...] = ()
    as_of_ms: int = 0

    @property
    def usage(self) -> Usage:
        """The sum over all models."""
        return sum((model.usage for model in self.models), Usage())
