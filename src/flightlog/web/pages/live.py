"""Live: who runs now, who pays, what is wrong; the part that changes asks for itself every few seconds."""

from typing import Any

from aiohttp import web

from flightlog.app.live import look_here, watch_here
from flightlog.live.board import room
from flightlog.live.profiles import advice
from flightlog.web.desk import DESK, Desk, aside
from flightlog.web.family import Family

_WORST_FIRST = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}


async def live(request: web.Request) -> web.StreamResponse:
    """Show the page."""
    desk = request.app[DESK]
    return await desk.answer("live.html", **await aside(_looked, desk))


async def live_part(request: web.Request) -> web.StreamResponse:
    """Show what changes, alone."""
    desk = request.app[DESK]
    return await desk.answer("live_part.html", **await aside(_looked, desk))


def _looked(desk: Desk) -> dict[str, Any]:
    # Looking writes what it found; a server that only reads shows what was found last.
    lives = look_here(desk.runtime) if desk.read_only else watch_here(desk.runtime, secrets=False)
    profiles = [each for told in lives for each in told.state.auth_profiles]
    sessions = [each for told in lives for each in told.state.sessions]
    sessions.sort(key=lambda each: (_WORST_FIRST.get(each.health.status, 2), each.session_id))
    return {
        "profiles": advice(profiles),
        "sessions": sessions,
        "labels": {each.profile_id: each.label for each in profiles},
        "broken": [told.broken for told in lives if told.broken],
        "advice": room(profiles),
        "now_ms": desk.runtime.clock.now_ms(),
        "today": sum(each.billing.cost_today for each in profiles),
        "burn": sum(each.billing.burn_rate_per_hour for each in profiles),
    }


FAMILY = Family("Live", "/live", ("live",), (web.get("/live", live), web.get("/live/part", live_part)))
