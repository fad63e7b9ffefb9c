"""Doctor, privacy, dataset.

Every recording is read for it, so the page comes at once and the findings follow.
"""

from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.consent import repository_target
from flightlog.dataset.service import dataset_stats, find_dataset
from flightlog.model.runtime import Runtime
from flightlog.privacy.tiers import LAYOUTS
from flightlog.setup.doctor import CheckLevel, CheckResult, examine_installation
from flightlog.web.context import DESK, NavSection, WebContext, run_blocking

_WORST_FIRST = (CheckLevel.DAMAGE, CheckLevel.FAILURE, CheckLevel.WARNING, CheckLevel.NOTE, CheckLevel.OK)
SEARCHED_BYTES_MAX = 32 << 20
SHOWN = 200


async def show_dataset(request: web.Request) -> web.StreamResponse:
    """Show the rows of the repository the server was started in."""
    return await request.app[DESK].answer_with("dataset.html", _dataset_context)


def _dataset_context(runtime: Runtime) -> dict[str, Any]:
    place = find_dataset(runtime)
    return {
        "stats": dataset_stats(runtime, place) if place is not None else None,
        "where": str(place.tracked_dir) if place else "",
    }


DATASET_SECTION = NavSection("Dataset", "/dataset", ("dataset",), (web.get("/dataset", show_dataset),))


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


DOCTOR_SECTION = NavSection(
    "Doctor",
    "/doctor",
    ("doctor", "doctor_part"),
    (web.get("/doctor", show_doctor), web.get("/doctor/findings", show_findings)),
)


async def show_privacy(request: web.Request) -> web.StreamResponse:
    """Show what is private here, and what would leave."""
    desk = request.app[DESK]
    return await desk.render_response("privacy.html", **await run_blocking(_privacy_context, desk))


def _privacy_context(desk: WebContext) -> dict[str, Any]:
    runtime = desk.runtime
    archive = desk.data.current_archive()
    counts = archive.count_secrets(SEARCHED_BYTES_MAX)
    holding = [(session, rules) for session, rules in counts.items() if rules]
    here = repository_target(runtime, Path(runtime.cwd))
    return {
        "holding": holding[:SHOWN],
        "more": max(len(holding) - SHOWN, 0),
        "looked": len(counts),
        "not_looked": len(archive.recordings) - len(counts),
        "titles": desk.data.titles(),
        "allows": here.allows,
        "trusted": here.trusted,
        "layouts": LAYOUTS,
    }


PRIVACY_SECTION = NavSection("Privacy", "/privacy", ("privacy",), (web.get("/privacy", show_privacy),))
