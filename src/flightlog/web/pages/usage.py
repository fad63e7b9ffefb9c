"""The usage and live pages."""

from typing import Any

from aiohttp import web
from msgspec.structs import replace

from flightlog.agents import agent_label
from flightlog.live.billing import merge_accounts, rank_profiles, switch_advice
from flightlog.live.dashboard import LIFE_WORDS, label_sessions
from flightlog.live.observe import list_recent
from flightlog.live.service import read_last_states, watch_here
from flightlog.model.usage import Breakdown, UsageRow
from flightlog.usage.prices import PRICES_FROM
from flightlog.usage.report import UsageReport
from flightlog.web.context import CONTEXT, NavSection, WebContext, run_blocking

_WORST_FIRST = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}
TRUTHS_SHOWN = 200


async def show_live(request: web.Request) -> web.StreamResponse:
    """Show the live page."""
    context = request.app[CONTEXT]
    return await context.render_response("live.html", **await run_blocking(_live_context, context))


async def show_live_part(request: web.Request) -> web.StreamResponse:
    """Show the part of the live page that refreshes."""
    context = request.app[CONTEXT]
    return await context.render_response(
        "live_part.html", **await run_blocking(_live_context, context)
    )


def _live_context(context: WebContext) -> dict[str, Any]:
    # Collecting writes runtime-state.yaml, so a read-only server shows the last state instead.
    lives = (
        read_last_states(context.runtime)
        if context.read_only
        else watch_here(context.runtime, secrets=False)
    )
    profiles = merge_accounts(live.state for live in lives)
    sessions = [item for live in lives for item in live.state.sessions]
    sessions.sort(key=lambda item: (_WORST_FIRST.get(item.health.status, 2), item.session_id))
    return {
        "profiles": rank_profiles(profiles),
        "sessions": sessions,
        "recent": list_recent(context.runtime),
        "labels": label_sessions(lives),
        "life_words": LIFE_WORDS,
        "broken": [live.error for live in lives if live.error],
        "advice": switch_advice(profiles),
        "now_ms": context.runtime.clock.now_ms(),
        "today": sum(item.billing.cost_today for item in profiles),
        "burn": sum(item.billing.burn_rate_per_hour for item in profiles),
    }


LIVE_SECTION = NavSection(
    "Live", "/live", ("live",), (web.get("/live", show_live), web.get("/live/part", show_live_part))
)


async def show_usage(request: web.Request) -> web.StreamResponse:
    """Show tokens and cost by day, agent, model, project and block."""
    context = request.app[CONTEXT]
    return await context.render_response(
        "usage.html", **await run_blocking(_usage_context, context)
    )


def _usage_context(context: WebContext) -> dict[str, Any]:
    cached = context.data.usage_reports(
        (Breakdown.DAY, Breakdown.AGENT, Breakdown.MODEL, Breakdown.PROJECT, Breakdown.BLOCK)
    )
    by_agent = cached[Breakdown.AGENT]
    labeled = tuple(replace(row, key=agent_label(row.key)) for row in by_agent.rows)
    # One agent is no comparison: its row is the total.
    agents = labeled if len(labeled) > 1 else ()
    reports = {**cached, Breakdown.AGENT: replace(by_agent, rows=agents)}
    day = reports[Breakdown.DAY]
    reconciliations = sorted(
        day.reconciliations,
        key=lambda reconciliation: (
            -abs(sum(gap.cost_usd or 0.0 for gap in reconciliation.gaps)),
            reconciliation.session,
        ),
    )
    shown = reconciliations[:TRUTHS_SHOWN]
    return {
        "total": day.total,
        "days": day.rows[::-1],
        "agents": _most_expensive_first(reports[Breakdown.AGENT]),
        "models": _most_expensive_first(reports[Breakdown.MODEL]),
        "projects": _most_expensive_first(reports[Breakdown.PROJECT]),
        "blocks": reports[Breakdown.BLOCK].rows[::-1],
        "reconciliations": shown,
        "reconciliations_more": len(reconciliations) - len(shown),
        "prices": PRICES_FROM,
        "damaged": day.damaged_lines,
        "zone": str(context.runtime.zone),
        "chart_data": {
            by.value: [_bar_values(row) for row in report.rows]
            for by, report in reports.items()
            if report.rows
        },
    }


def _most_expensive_first(report: UsageReport) -> list[UsageRow]:
    return sorted(report.rows, key=lambda row: (-(row.cost.usd or 0.0), row.key))


def _bar_values(row: UsageRow) -> dict[str, Any]:
    usage = row.usage
    return {
        "key": row.key,
        "cost_usd": row.cost.usd,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


USAGE_SECTION = NavSection("Usage", "/usage", ("usage",), (web.get("/usage", show_usage),))
