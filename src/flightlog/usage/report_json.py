"""Usage reports as JSON: one schema for command line, page and tests."""

from typing import Any

from flightlog.model.usage import Breakdown, Usage, UsageRow
from flightlog.usage.prices import PRICES_FROM
from flightlog.usage.reconciliation import Reconciliation, UsageGap
from flightlog.usage.report import UsageReport


def report_json(report: UsageReport, zone: str) -> dict[str, Any]:
    """Return a report as every interface and test sees it."""
    by_session = report.by is Breakdown.SESSION
    reconciliations = report.reconciliations if by_session else ()
    clients = {item.session: reconciliation_json(item) for item in reconciliations}
    rows = [
        {report.by.value: row.key, **row_json(row), **clients.get(row.key, {})}
        for row in report.rows
    ]
    return {
        "by": report.by.value,
        "total": row_json(report.total),
        "rows": rows,
        "unrecorded": unrecorded_json(report.gaps),
        "prices": PRICES_FROM,
        "timezone": zone,
        "damaged_lines": report.damaged_lines,
    }


def tokens_json(usage: Usage) -> dict[str, int]:
    """Return token counts under the names of every report."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write,
    }


def row_json(row: UsageRow) -> dict[str, Any]:
    """Return one row of a usage report, without its key."""
    return {
        **tokens_json(row.usage),
        "cost_usd": row.cost.usd,
        "cost_source": row.cost.source.value,
        "cache_write_1h_tokens": row.usage.cache_write_1h_tokens,
        "web_searches": row.usage.web_searches,
        "responses": row.responses,
        "sessions": row.sessions,
        "models": list(row.models),
        "unpriced_models": list(row.unpriced_models),
    }


def gap_json(gap: UsageGap) -> dict[str, Any]:
    """Return one part of the unrecorded usage, with its reason."""
    about = {"session": gap.session, "reason": gap.reason.value}
    return {**about, **tokens_json(gap.usage), "cost_usd": gap.cost_usd}


def reconciliation_json(reconciliation: Reconciliation) -> dict[str, Any]:
    """Return a session's client total against its record."""
    client = reconciliation.client
    return {
        "client": {**tokens_json(client.usage), "cost_usd": client.cost_usd},
        "inherited": {
            **tokens_json(reconciliation.inherited),
            "cost_usd": reconciliation.inherited_usd,
            "from": reconciliation.inherited_from or None,
        },
        "unrecorded": unrecorded_json(reconciliation.gaps),
    }


def unrecorded_json(gaps: tuple[UsageGap, ...]) -> dict[str, Any]:
    """Return the sum of gaps; a single reason is named, several are listed in the parts."""
    reasons = sorted({gap.reason.value for gap in gaps})
    return {
        **tokens_json(sum((gap.usage for gap in gaps), Usage())),
        "cost_usd": sum((gap.cost_usd for gap in gaps), 0.0),
        "reason": reasons[0] if len(reasons) == 1 else None,
        "parts": [gap_json(gap) for gap in gaps],
    }
