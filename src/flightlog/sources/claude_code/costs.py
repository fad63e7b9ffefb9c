"""The totals that Claude Code itself writes down, shared by the decoder, the scan and the stream."""

from typing import Any

from flightlog.model.usage import ClientTotals, ModelTotal
from flightlog.sources.api.usage import CacheCreationFields, ServerToolFields, UsageFields
from flightlog.sources.claude_code.values import mapping, number, text

SYNTHETIC_MODEL = "<synthetic>"


def client_totals(record: dict[str, Any]) -> ClientTotals:
    """Read a `cost-state` record."""
    return ClientTotals(
        session=text(record, "sessionId"),
        total_usd=_amount(record.get("totalCostUSD")),
        started_ms=number(record, "startTime"),
        models=model_totals(record),
    )


def model_totals(record: dict[str, Any]) -> tuple[ModelTotal, ...]:
    """Return what the client counted for each model, from the `modelUsage` of a record."""
    models = sorted(mapping(record, "modelUsage").items())
    return tuple(_model_total(name, fields) for name, fields in models if isinstance(fields, dict))


def _model_total(name: str, told: dict[str, Any]) -> ModelTotal:
    fields = UsageFields(
        number(told, "inputTokens"),
        number(told, "outputTokens"),
        number(told, "cacheReadInputTokens"),
        number(told, "cacheCreationInputTokens"),
        CacheCreationFields(number(told, "cacheCreationEphemeral1hInputTokens")),
        ServerToolFields(number(told, "webSearchRequests")),
    )
    return ModelTotal(name, fields.usage(), _amount(told.get("costUSD")))


def _amount(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else 0.0
