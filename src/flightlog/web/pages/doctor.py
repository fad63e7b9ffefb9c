"""Doctor: what is in order, what is not, and the one thing to do about each. Changes nothing.

Every recording is read for it, so the page comes at once and the findings follow.
"""

from aiohttp import web

from flightlog.app.doctor import CheckLevel, CheckResult, examine_installation
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK, run_blocking
from flightlog.web.family import NavSection

_WORST_FIRST = (CheckLevel.DAMAGE, CheckLevel.FAILURE, CheckLevel.WARNING, CheckLevel.NOTE, CheckLevel.OK)


async def show_doctor(request: web.Request) -> web.StreamResponse:
    """Show the page; without scripts the findings are part of it."""
    whole = "whole" in request.query
    findings = await _examine_worst_first(request.app[DESK].runtime) if whole else None
    return await request.app[DESK].render_response("doctor.html", findings=findings)


async def show_findings(request: web.Request) -> web.StreamResponse:
    """Show the findings alone."""
    return await request.app[DESK].render_response(
        "doctor_part.html", findings=await _examine_worst_first(request.app[DESK].runtime)
    )


async def _examine_worst_first(runtime: Runtime) -> list[CheckResult]:
    found = await run_blocking(examine_installation, runtime)
    return sorted(found, key=lambda each: _WORST_FIRST.index(each.level))


FAMILY = NavSection(
    "Doctor",
    "/doctor",
    ("doctor", "doctor_part"),
    (web.get("/doctor", show_doctor), web.get("/doctor/findings", show_findings)),
)
