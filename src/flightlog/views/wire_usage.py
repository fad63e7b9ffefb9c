"""Usage reports as JSON: one schema for command line, page and tests."""

from typing import Any

from flightlog.model.usage import Usage
from flightlog.views.truth import Gap, Truth
from flightlog.views.usage import UsageRow


def tokens(usage: Usage) -> dict[str, int]:
    """Name tokens as the reports do."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
    }


def usage_row(row: UsageRow) -> dict[str, Any]:
    """One row of a usage report, without its key."""
    return {
        **tokens(row.usage),
        "cost_usd": row.cost.usd,
        "cost_source": row.cost.source.value,
        "cache_write_1h_tokens": row.usage.cache_write_1h,
        "web_searches": row.usage.web_searches,
        "responses": row.responses,
        "sessions": row.sessions,
        "models": list(row.models),
        "unpriced_models": list(row.unpriced),
    }


def gap(told: Gap) -> dict[str, Any]:
    """One part of the unrecorded usage, with its reason."""
    return {"session": told.session, "reason": told.reason.value, **tokens(told.usage), "cost_usd": told.cost_usd}


def truth(told: Truth) -> dict[str, Any]:
    """What the client said of a session, held against the record."""
    return {
        "client": {**tokens(told.client.usage), "cost_usd": told.client.total_usd},
        "inherited": {**tokens(told.inherited), "cost_usd": told.inherited_usd, "from": told.inherited_from or None},
        "unrecorded": unrecorded(told.gaps),
    }


def unrecorded(gaps: tuple[Gap, ...]) -> dict[str, Any]:
    """Sum up gaps; a single reason is named, several are listed below."""
    reasons = sorted({each.reason.value for each in gaps})
    return {
        **tokens(sum((each.usage for each in gaps), Usage())),
        "cost_usd": sum((each.cost_usd for each in gaps), 0.0),
        "reason": reasons[0] if len(reasons) == 1 else None,
        "parts": [gap(each) for each in gaps],
    }
