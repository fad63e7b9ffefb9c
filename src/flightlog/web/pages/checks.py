"""The doctor, privacy and dataset pages.

The doctor reads every recording, so its page loads the findings later.
"""

from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.consent import repository_target
from flightlog.dataset.service import dataset_stats, find_dataset
from flightlog.model.runtime import Runtime
from flightlog.privacy.tiers import LAYOUTS
from flightlog.setup.doctor import CheckLevel, CheckResult, examine_installation
from flightlog.web.context import CONTEXT, NavSection, WebContext, run_blocking

_WORST_FIRST = (
    CheckLevel.DAMAGE,
    CheckLevel.FAILURE,
    CheckLevel.WARNING,
    CheckLevel.NOTE,
    CheckLevel.OK,
)
FIRST_BYTES_MAX = 2 << 20  # scanned before the page is shown
SEARCHED_BYTES_MAX = 16 << 20  # scanned by each request that continues
SHOWN = 200


async def show_dataset(request: web.Request) -> web.StreamResponse:
    """Show the dataset of the current repository."""
    return await request.app[CONTEXT].answer_with("dataset.html", _dataset_context)


def _dataset_context(runtime: Runtime) -> dict[str, Any]:
    location = find_dataset(runtime)
    return {"stats": dataset_stats(runtime, location) if location is not None else None}


DATASET_SECTION = NavSection(
    "Dataset",
    "/dataset",
    ("dataset",),
    (web.get("/dataset", show_dataset),),
    "Training rows of the current repository.",
)


async def show_doctor(request: web.Request) -> web.StreamResponse:
    """Show the page; with `?whole`, for browsers without scripts, it includes the findings."""
    whole = "whole" in request.query
    findings = await _examine_worst_first(request.app[CONTEXT].runtime) if whole else None
    return await request.app[CONTEXT].render_response("doctor.html", findings=findings)


async def show_findings(request: web.Request) -> web.StreamResponse:
    """Show the findings alone."""
    return await request.app[CONTEXT].render_response(
        "doctor_part.html", findings=await _examine_worst_first(request.app[CONTEXT].runtime)
    )


async def _examine_worst_first(runtime: Runtime) -> list[CheckResult]:
    results = await run_blocking(examine_installation, runtime)
    return sorted(results, key=lambda result: _WORST_FIRST.index(result.level))


DOCTOR_SECTION = NavSection(
    "Doctor",
    "/doctor",
    ("doctor", "doctor_part"),
    (web.get("/doctor", show_doctor), web.get("/doctor/findings", show_findings)),
    "Checks of the installation, each with its next step.",
)


async def show_privacy(request: web.Request) -> web.StreamResponse:
    """Show sessions with secrets, and what would be published."""
    context = request.app[CONTEXT]
    values = await run_blocking(_secret_values, context, FIRST_BYTES_MAX)
    repository = await run_blocking(repository_target, context.runtime, Path(context.runtime.cwd))
    return await context.render_response(
        "privacy.html",
        **values,
        allows=repository.allows,
        trusted=repository.is_trusted,
        layouts=LAYOUTS,
    )


async def show_secrets_part(request: web.Request) -> web.StreamResponse:
    """Scan more sessions and show those with secrets."""
    context = request.app[CONTEXT]
    values = await run_blocking(_secret_values, context, SEARCHED_BYTES_MAX)
    return await context.render_response("privacy_part.html", **values)


def _secret_values(context: WebContext, bytes_max: int) -> dict[str, Any]:
    archive = context.data.current_archive()
    counts = archive.count_secrets(bytes_max)
    with_secrets = [(session, rules) for session, rules in counts.items() if rules]
    return {
        "with_secrets": with_secrets[:SHOWN],
        "more": max(len(with_secrets) - SHOWN, 0),
        "scanned": len(counts),
        "not_scanned": len(archive.recordings) - len(counts),
        "titles": context.data.titles(),
    }


PRIVACY_SECTION = NavSection(
    "Privacy",
    "/privacy",
    ("privacy", "privacy_part"),
    (web.get("/privacy", show_privacy), web.get("/privacy/part", show_secrets_part)),
    "Sessions with possible secrets, and what a repository may publish.",
)
