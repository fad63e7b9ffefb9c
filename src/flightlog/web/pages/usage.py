"""Usage: cost and tokens by day, model, project and block, and what the client counted besides."""

from typing import Any

from aiohttp import web

from flightlog.model.usage import Breakdown, UsageRow
from flightlog.usage.prices import PRICES_FROM
from flightlog.usage.report import UsageReport
from flightlog.web.desk import DESK, WebContext, run_blocking
from flightlog.web.family import NavSection

TRUTHS_SHOWN = 200


async def show_usage(request: web.Request) -> web.StreamResponse:
    """Show what was used, by day, model, project and block."""
    desk = request.app[DESK]
    return await desk.render_response("usage.html", **await run_blocking(_usage_context, desk))


def _usage_context(desk: WebContext) -> dict[str, Any]:
    reports = desk.data.usage_reports((Breakdown.DAY, Breakdown.MODEL, Breakdown.PROJECT, Breakdown.BLOCK))
    day = reports[Breakdown.DAY]
    truths = sorted(day.reconciliations, key=lambda told: (-abs(sum(gap.cost_usd for gap in told.gaps)), told.session))
    shown = truths[:TRUTHS_SHOWN]
    return {
        "total": day.total,
        "days": day.rows[::-1],
        "models": _most_expensive_first(reports[Breakdown.MODEL]),
        "projects": _most_expensive_first(reports[Breakdown.PROJECT]),
        "blocks": reports[Breakdown.BLOCK].rows[::-1],
        "truths": shown,
        "truths_more": len(truths) - len(shown),
        "prices": PRICES_FROM,
        "damaged": day.damaged,
        "zone": str(desk.runtime.zone),
        "chart_data": {by.value: [_bar_values(row) for row in report.rows] for by, report in reports.items()},
    }


def _most_expensive_first(report: UsageReport) -> list[UsageRow]:
    return sorted(report.rows, key=lambda row: (-(row.cost.usd or 0.0), row.key))


def _bar_values(row: UsageRow) -> dict[str, Any]:
    use = row.usage
    return {
        "key": row.key,
        "usd": row.cost.usd,
        "input": use.input,
        "output": use.output,
        "cache read": use.cache_read,
        "cache write": use.cache_write,
    }


FAMILY = NavSection("Usage", "/usage", ("usage",), (web.get("/usage", show_usage),))
