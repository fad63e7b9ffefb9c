"""Usage records of a transcript, and the client's own totals."""

import functools
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from flightlog.agents.dialects.anthropic_messages import (
    CacheCreationFields,
    ServerToolFields,
    UsageFields,
)
from flightlog.model.usage import DAY_MS, ClientTotals, ModelTotal, UsageLine, UsageQuality
from flightlog.sources.foreign_json import LATEST_MS, int_field, object_field, text_field

SYNTHETIC_MODEL = "<synthetic>"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Moment = Annotated[datetime, Meta(tz=True)]
NO_USAGE = UsageFields()
_PLACEHOLDERS_FROM, _PLACEHOLDERS_TO = [2, 1, 8], [2, 1, 58]
_FINAL_FROM = [2, 1, 100]  # from here on every line has the final count
# The count at the start of a stream: of 7,200 responses of public sessions of up to 2.1.7, 44 % had
# never another one, and 3,198 of these 3,200 had text of more than 12 characters for each token.
_START_COUNT_MAX = 8


def client_totals(record: dict[str, Any]) -> ClientTotals:
    """Read a `cost-state` record."""
    return ClientTotals(
        session=text_field(record, "sessionId"),
        cost_usd=_amount_or_zero(record.get("totalCostUSD")),
        started_ms=int_field(record, "startTime"),
        models=model_totals(record),
    )


def model_totals(record: dict[str, Any]) -> tuple[ModelTotal, ...]:
    """Return what the client counted for each model, from the `modelUsage` of a record."""
    models = sorted(object_field(record, "modelUsage").items())
    return tuple(_model_total(name, fields) for name, fields in models if isinstance(fields, dict))


def _model_total(name: str, counts: dict[str, Any]) -> ModelTotal:
    fields = UsageFields(
        int_field(counts, "inputTokens"),
        int_field(counts, "outputTokens"),
        int_field(counts, "cacheReadInputTokens"),
        int_field(counts, "cacheCreationInputTokens"),
        CacheCreationFields(int_field(counts, "cacheCreationEphemeral1hInputTokens")),
        ServerToolFields(int_field(counts, "webSearchRequests")),
    )
    return ModelTotal(name, _amount_or_zero(counts.get("costUSD")), **asdict(fields.usage()))


def _amount_or_zero(value: Any) -> float:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if valid else 0.0


class UsageMessage(Struct, frozen=True, gc=False):
    """The message of a response, without its content."""

    id: str = ""
    model: str = ""
    usage: UsageFields = NO_USAGE
    stop_reason: str | None = ""


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
    version: str | None = ""


decode = msgspec.json.Decoder(UsageRecord).decode


def thread_name(record: UsageRecord) -> str:
    """Return the name of the record's thread, which is empty for the main one."""
    return record.agent_id or ("?" if record.is_sidechain else "")


def is_fuller(record: UsageRecord, other: UsageRecord) -> bool:
    """Return whether `record` is the better copy of a response: more output, else earlier."""
    tokens = record.message.usage.output_tokens or 0
    other_tokens = other.message.usage.output_tokens or 0
    if tokens != other_tokens:
        return tokens > other_tokens
    return _tie_break_key(record) < _tie_break_key(other)


def to_row(record: UsageRecord, session: str, file_lane: str) -> UsageLine:
    """Return a record as a row of `session`; `file_lane` is the subagent of the whole file."""
    message, at_ms = record.message, 0
    if record.timestamp:
        since = record.timestamp - _EPOCH
        at_ms = since.days * DAY_MS + since.seconds * 1000 + since.microseconds // 1000
    values = (
        message.id,
        session,
        message.model,
        *message.usage.counts(),
        at_ms if 0 <= at_ms < LATEST_MS else 0,
        record.cwd or "",
        record.request_id or "",
        file_lane or thread_name(record),
        record.is_aborted_mid_stream or False,
        _output_quality(
            record.version or "", message.usage.output_tokens or 0, message.stop_reason
        ),
    )
    return tuple.__new__(UsageLine, values)


def _output_quality(version: str, output_tokens: int, stop_reason: object) -> UsageQuality:
    """Return how an output count was recorded.

    If the end of a stream was late or never came, the fullest line of an old version has no stop
    reason and the count from the start.
    """
    quality = _version_quality(version)
    if quality is None:
        is_start = stop_reason is None and 0 < output_tokens <= _START_COUNT_MAX
        quality = UsageQuality.LOWER_BOUND if is_start else UsageQuality.EXACT
    return quality


@functools.cache
def _version_quality(version: str) -> UsageQuality | None:
    """Return how a version of the client recorded all output counts, or None if it varied.

    2.1.8 to 2.1.58 wrote the count from the start of the stream and never the final one (both
    boundaries were tried with the clients).
    """
    parts = [int(part) for part in version.split(".")[:3] if part.isdecimal() and len(part) < 9]
    if _PLACEHOLDERS_FROM <= parts <= _PLACEHOLDERS_TO:
        return UsageQuality.LOWER_BOUND
    return None if [] < parts < _FINAL_FROM else UsageQuality.EXACT


def recorded_quality(record: dict[str, Any]) -> UsageQuality:
    """Return how far the counts of an assistant record can be trusted."""
    message = object_field(record, "message")
    if not isinstance(message.get("usage"), dict):
        return UsageQuality.MISSING
    output_tokens = int_field(object_field(message, "usage"), "output_tokens")
    return _output_quality(
        text_field(record, "version"), output_tokens, message.get("stop_reason", "")
    )


def _tie_break_key(record: UsageRecord) -> tuple[float, str, tuple[int, ...], str]:
    # All fields that copies may differ in: the order of lines must not decide.
    usage = record.message.usage
    counts = (
        usage.input_tokens or 0,
        usage.cache_read_input_tokens or 0,
        usage.cache_creation_input_tokens or 0,
    )
    timestamp = record.timestamp.timestamp() if record.timestamp else 0.0
    return timestamp, record.message.model, counts, record.cwd or ""
