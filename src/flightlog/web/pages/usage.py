"""Usage and live figures."""

from typing import Any

from aiohttp import web

from flightlog.live.dashboard import switch_advice
from flightlog.live.profiles import rank_profiles
from flightlog.live.service import read_last_states, watch_here
from flightlog.model.usage import Breakdown, UsageRow
from flightlog.usage.prices import PRICES_FROM
from flightlog.usage.report import UsageReport
from flightlog.web.context import DESK, NavSection, WebContext, run_blocking

_WORST_FIRST = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}
TRUTHS_SHOWN = 200


async def show_live(request: web.Request) -> web.StreamResponse:
    """Show the page."""
    desk = request.app[DESK]
    return await desk.render_response("live.html", **await run_blocking(_live_context, desk))


async def show_live_part(request: web.Request) -> web.StreamResponse:
    """Show what changes, alone."""
    desk = request.app[DESK]
    return await desk.render_response("live_part.html", **await run_blocking(_live_context, desk))


def _live_context(desk: WebContext) -> dict[str, Any]:
    # Looking writes what it found; a server that only reads shows what was found last.
    lives = read_last_states(desk.runtime) if desk.read_only else watch_here(desk.runtime, secrets=False)
    profiles = [each for told in lives for each in told.state.auth_profiles]
    sessions = [each for told in lives for each in told.state.sessions]
    sessions.sort(key=lambda each: (_WORST_FIRST.get(each.health.status, 2), each.session_id))
    return {
        "profiles": rank_profiles(profiles),
        "sessions": sessions,
        "labels": {each.profile_id: each.label for each in profiles},
        "broken": [told.broken for told in lives if told.broken],
        "advice": switch_advice(profiles),
        "now_ms": desk.runtime.clock.now_ms(),
        "today": sum(each.billing.cost_today for each in profiles),
        "burn": sum(each.billing.burn_rate_per_hour for each in profiles),
    }


LIVE_SECTION = NavSection(
    "Live", "/live", ("live",), (web.get("/live", show_live), web.get("/live/part", show_live_part))
)


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


USAGE_SECTION = NavSection("Usage", "/usage", ("usage",), (web.get("/usage", show_usage),))
