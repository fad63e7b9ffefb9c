"""Doctor: what is in order, what is not, and the one thing to do about each. Changes nothing.

Every recording is read for it, so the page comes at once and the findings follow.
"""

from aiohttp import web

from flightlog.app.doctor import Finding, Level, examine
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK, aside
from flightlog.web.family import Family

_WORST_FIRST = (Level.DAMAGE, Level.FAILURE, Level.WARNING, Level.NOTE, Level.OK)


async def doctor(request: web.Request) -> web.StreamResponse:
    """Show the page; without scripts the findings are part of it."""
    whole = "whole" in request.query
    findings = await _findings(request.app[DESK].runtime) if whole else None
    return await request.app[DESK].answer("doctor.html", findings=findings)


async def findings(request: web.Request) -> web.StreamResponse:
    """Show the findings alone."""
    return await request.app[DESK].answer("doctor_part.html", findings=await _findings(request.app[DESK].runtime))


async def _findings(runtime: Runtime) -> list[Finding]:
    found = await aside(examine, runtime)
    return sorted(found, key=lambda each: _WORST_FIRST.index(each.level))


FAMILY = Family(
    "Doctor", "/doctor", ("doctor", "doctor_part"), (web.get("/doctor", doctor), web.get("/doctor/findings", findings))
)
