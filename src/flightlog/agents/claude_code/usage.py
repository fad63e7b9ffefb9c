"""Usage fields, client totals, evidence for differences.

A line the typed decode refuses is looked at again elsewhere, with patience.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from flightlog.agents.dialects.anthropic_messages import CacheCreationFields, ServerToolFields, UsageFields
from flightlog.model.usage import DAY_MS, ClientTotals, ModelTotal, UsageLine
from flightlog.sources.foreign_json import LATEST_MS, int_field, object_field, text_field

SYNTHETIC_MODEL = "<synthetic>"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Moment = Annotated[datetime, Meta(tz=True)]
NO_USAGE = UsageFields()


def client_totals(record: dict[str, Any]) -> ClientTotals:
    """Read a `cost-state` record."""
    return ClientTotals(
        session=text_field(record, "sessionId"),
        total_usd=_amount_or_zero(record.get("totalCostUSD")),
        started_ms=int_field(record, "startTime"),
        models=model_totals(record),
    )


def model_totals(record: dict[str, Any]) -> tuple[ModelTotal, ...]:
    """Return what the client counted for each model, from the `modelUsage` of a record."""
    models = sorted(object_field(record, "modelUsage").items())
    return tuple(_model_total(name, fields) for name, fields in models if isinstance(fields, dict))


def _model_total(name: str, told: dict[str, Any]) -> ModelTotal:
    fields = UsageFields(
        int_field(told, "inputTokens"),
        int_field(told, "outputTokens"),
        int_field(told, "cacheReadInputTokens"),
        int_field(told, "cacheCreationInputTokens"),
        CacheCreationFields(int_field(told, "cacheCreationEphemeral1hInputTokens")),
        ServerToolFields(int_field(told, "webSearchRequests")),
    )
    return ModelTotal(name, fields.usage(), _amount_or_zero(told.get("costUSD")))


def _amount_or_zero(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else 0.0


class UsageMessage(Struct, frozen=True, gc=False):
    """The answer, without what it says."""

    id: str = ""
    model: str = ""
    usage: UsageFields = NO_USAGE


NO_MESSAGE = UsageMessage()


class UsageRecord(Struct, frozen=True, gc=False, rename="camel"):
    """One line of a transcript that counts tokens."""

    type: str
    message: UsageMessage = NO_MESSAGE
    timestamp: Moment | None = None
    request_id: str | None = ""
    agent_id: str | None = ""
    is_sidechain: bool | None = False
    is_aborted_mid_stream: bool | None = False
    cwd: str | None = ""


decode = msgspec.json.Decoder(UsageRecord).decode


def thread_name(said: UsageRecord) -> str:
    """Name the thread a line belongs to; the main one has no name."""
    return said.agent_id or ("?" if said.is_sidechain else "")


def is_fuller(said: UsageRecord, known: UsageRecord) -> bool:
    """Say whether `said` is the better copy of a response: more output, else earlier."""
    new, old = said.message.usage.output_tokens or 0, known.message.usage.output_tokens or 0
    if new != old:
        return new > old
    return _tie_break_key(said) < _tie_break_key(known)


def to_row(said: UsageRecord, session: str, file_lane: str) -> UsageLine:
    """Return what a line says as a row of `session`; a file of a lane's own names its lane."""
    message, stamp = said.message, said.timestamp
    at_ms = 0
    if stamp:
        since = stamp - _EPOCH
        at_ms = since.days * DAY_MS + since.seconds * 1000 + since.microseconds // 1000
    values = (
        message.id,
        session,
        message.model,
        *message.usage.counts(),
        at_ms if 0 <= at_ms < LATEST_MS else 0,
        said.cwd or "",
        said.request_id or "",
        file_lane or thread_name(said),
        said.is_aborted_mid_stream or False,
    )
    return tuple.__new__(UsageLine, values)


def _tie_break_key(said: UsageRecord) -> tuple[float, str, tuple[int, ...], str]:
    """Between equals the order of lines must not decide."""
    use = said.message.usage
    counts = (use.input_tokens or 0, use.cache_read_input_tokens or 0, use.cache_creation_input_tokens or 0)
    return said.timestamp.timestamp() if said.timestamp else 0.0, said.message.model, counts, said.cwd or ""
