"""Usage reports as JSON: one schema for command line, page and tests."""

from typing import Any

from flightlog.model.usage import Breakdown, Cost, CostSource, Usage, UsageRow, usage_fields
from flightlog.usage.price_table import PRICES_FROM
from flightlog.usage.reconciliation import Reconciliation, UsageGap
from flightlog.usage.report import UsageReport


def report_json(report: UsageReport, zone: str) -> dict[str, Any]:
    """Return a report as every interface and test sees it."""
    reconciliations = report.reconciliations if report.by is Breakdown.SESSION else ()
    clients = {item.session: reconciliation_json(item) for item in reconciliations}
    estimate = report.has_estimates
    rows = [
        {report.by.value: row.key, **row_json(row, estimate=estimate), **clients.get(row.key, {})}
        for row in report.rows
    ]
    return {
        "by": report.by.value,
        "total": row_json(report.total, estimate=estimate),
        "rows": rows,
        "unrecorded": unrecorded_json(report.gaps),
        "price_table": PRICES_FROM,
        "timezone": zone,
        "damaged_lines": report.damaged_lines,
    }


def row_json(row: UsageRow, *, estimate: bool = False) -> dict[str, Any]:
    """Return one row of a usage report, without its key."""
    estimated = ("estimated_output_tokens", "estimated_cost_usd")
    estimates = {name: getattr(row, name) for name in estimated}
    return {
        **usage_fields(row.usage, row.cost),
        **(estimates if estimate else {}),
        "responses": row.responses,
        "unknown_responses": row.unknown_responses,
        "sessions": row.sessions,
        "models": list(row.models),
        "unpriced_models": list(row.unpriced_models),
    }


def gap_json(gap: UsageGap) -> dict[str, Any]:
    """Return one part of the unrecorded usage, with its reason."""
    about = {"session": gap.session, "reason": gap.reason.value}
    return about | _client_fields(gap.usage, gap.cost_usd)


def reconciliation_json(reconciliation: Reconciliation) -> dict[str, Any]:
    """Return a session's client total against its record."""
    client = reconciliation.client
    return {
        "client_total": _client_fields(client.usage, client.cost_usd) | client.known_units,
        "inherited_usage": {
            **_client_fields(reconciliation.inherited, reconciliation.inherited_usd),
            "from_session": reconciliation.inherited_from or None,
        },
        "unrecorded_usage": unrecorded_json(reconciliation.gaps),
    }


def unrecorded_json(gaps: tuple[UsageGap, ...]) -> dict[str, Any]:
    """Return the sum of gaps; a single reason is named, several are listed in the parts."""
    reasons = sorted({gap.reason.value for gap in gaps})
    amounts = [gap.cost_usd for gap in gaps if gap.cost_usd is not None]
    return {
        **_client_fields(
            sum((gap.usage for gap in gaps), Usage()),
            sum(amounts, 0.0) if amounts or not gaps else None,
        ),
        "reason": reasons[0] if len(reasons) == 1 else None,
        "parts": [gap_json(gap) for gap in gaps],
    }


def _client_fields(usage: Usage, cost_usd: float | None) -> dict[str, Any]:
    """Return tokens and cost of which the client, not the price table, states the amount."""
    source = CostSource.UNKNOWN if cost_usd is None else CostSource.CLIENT
    return usage_fields(usage, Cost(cost_usd, source))
