"""The totals that Claude Code itself writes down, shared by the decoder, the scan and the stream."""

from typing import Any

from flightlog.model.usage import ClientTotals, ModelTotal
from flightlog.sources.api.usage import CacheCreationFields, ServerToolFields, UsageFields
from flightlog.sources.claude_code.values import int_field, object_field, text_field

SYNTHETIC_MODEL = "<synthetic>"


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
