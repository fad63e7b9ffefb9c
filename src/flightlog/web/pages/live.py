"""Live: who runs now, who pays, what is wrong; the part that changes asks for itself every few seconds."""

from typing import Any

from aiohttp import web

from flightlog.app.live import read_last_states, watch_here
from flightlog.live.board import switch_advice
from flightlog.live.profiles import rank_profiles
from flightlog.web.desk import DESK, WebContext, run_blocking
from flightlog.web.family import NavSection

_WORST_FIRST = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}


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


FAMILY = NavSection("Live", "/live", ("live",), (web.get("/live", show_live), web.get("/live/part", show_live_part)))
