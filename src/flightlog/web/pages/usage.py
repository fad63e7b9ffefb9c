"""Usage: cost and tokens by day, model, project and block, and what the client counted besides."""

from typing import Any

from aiohttp import web

from flightlog.model.usage import Breakdown, UsageRow
from flightlog.usage.prices import PRICES_FROM
from flightlog.usage.report import UsageReport
from flightlog.web.desk import DESK, Desk, aside
from flightlog.web.family import Family

TRUTHS_SHOWN = 200


async def usage(request: web.Request) -> web.StreamResponse:
    """Show what was used, by day, model, project and block."""
    desk = request.app[DESK]
    return await desk.answer("usage.html", **await aside(_usage, desk))


def _usage(desk: Desk) -> dict[str, Any]:
    reports = desk.data.usage((Breakdown.DAY, Breakdown.MODEL, Breakdown.PROJECT, Breakdown.BLOCK))
    day = reports[Breakdown.DAY]
    truths = sorted(day.reconciliations, key=lambda told: (-abs(sum(gap.cost_usd for gap in told.gaps)), told.session))
    shown = truths[:TRUTHS_SHOWN]
    return {
        "total": day.total,
        "days": day.rows[::-1],
        "models": _dearest(reports[Breakdown.MODEL]),
        "projects": _dearest(reports[Breakdown.PROJECT]),
        "blocks": reports[Breakdown.BLOCK].rows[::-1],
        "truths": shown,
        "truths_more": len(truths) - len(shown),
        "prices": PRICES_FROM,
        "damaged": day.damaged,
        "zone": str(desk.runtime.zone),
        "chart_data": {by.value: [_bar(row) for row in report.rows] for by, report in reports.items()},
    }


def _dearest(report: UsageReport) -> list[UsageRow]:
    return sorted(report.rows, key=lambda row: (-(row.cost.usd or 0.0), row.key))


def _bar(row: UsageRow) -> dict[str, Any]:
    use = row.usage
    return {
        "key": row.key,
        "usd": row.cost.usd,
        "input": use.input,
        "output": use.output,
        "cache read": use.cache_read,
        "cache write": use.cache_write,
    }


FAMILY = Family("Usage", "/usage", ("usage",), (web.get("/usage", usage),))
