"""What Claude Code's records say about tokens and money.

Shared by the decoder, which reads everything, and the scan, which reads nothing else.
"""

from typing import Any

from flightlog.model.usage import ClientTotals, ModelTotal, Usage
from flightlog.sources.claude_code.values import mapping, number, text

SYNTHETIC_MODEL = "<synthetic>"


def usage(said: dict[str, Any]) -> Usage:
    """Read the API's `usage` object; cache writes of unsaid life time count as 5 minutes."""
    written = mapping(said, "cache_creation")
    hour = number(written, "ephemeral_1h_input_tokens")
    return Usage(
        input=number(said, "input_tokens"),
        output=number(said, "output_tokens"),
        cache_read=number(said, "cache_read_input_tokens"),
        cache_write_5m=max(number(said, "cache_creation_input_tokens") - hour, 0),
        cache_write_1h=hour,
        web_searches=number(mapping(said, "server_tool_use"), "web_search_requests"),
    )


def client_totals(record: dict[str, Any]) -> ClientTotals:
    """Read a `cost-state` record."""
    told = mapping(record, "modelUsage")
    models = tuple(_model_total(name, item) for name, item in sorted(told.items()) if isinstance(item, dict))
    return ClientTotals(
        session=text(record, "sessionId"),
        total_usd=_amount(record.get("totalCostUSD")),
        started_ms=number(record, "startTime"),
        models=models,
    )


def _model_total(name: str, told: dict[str, Any]) -> ModelTotal:
    hour = number(told, "cacheCreationEphemeral1hInputTokens")
    counted = Usage(
        number(told, "inputTokens"),
        number(told, "outputTokens"),
        number(told, "cacheReadInputTokens"),
        max(number(told, "cacheCreationInputTokens") - hour, 0),
        hour,
        number(told, "webSearchRequests"),
    )
    return ModelTotal(name, counted, _amount(told.get("costUSD")))


def _amount(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else 0.0
