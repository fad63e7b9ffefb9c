"""The doctor, privacy and dataset pages.

The doctor reads every recording, so its page loads the findings later.
"""

from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.consent import repository_target
from flightlog.dataset.service import dataset_stats, find_dataset
from flightlog.privacy.tiers import LAYOUTS
from flightlog.setup.doctor import CheckLevel, examine_installation
from flightlog.web.context import CONTEXT, NavSection, WebContext, make_page

_WORST_FIRST = tuple(reversed(CheckLevel))
FIRST_BYTES_MAX = 2 << 20  # scanned before the page is shown
SEARCHED_BYTES_MAX = 16 << 20  # scanned by each request that continues
SHOWN = 200


def _dataset_context(request: web.Request) -> dict[str, Any]:
    runtime = request.app[CONTEXT].runtime
    location = find_dataset(runtime)
    return {"stats": dataset_stats(runtime, location) if location is not None else None}


DATASET_SECTION = NavSection(
    "Dataset",
    "/dataset",
    ("dataset",),
    (web.get("/dataset", make_page("dataset.html", _dataset_context)),),
    "Training rows of the current repository.",
)


def _doctor_context(request: web.Request) -> dict[str, Any]:
    """Return the page; with `?whole`, for browsers without scripts, it includes the findings."""
    return _doctor_findings(request) if "whole" in request.query else {"findings": None}


def _doctor_findings(request: web.Request) -> dict[str, Any]:
    results = examine_installation(request.app[CONTEXT].runtime)
    return {"findings": sorted(results, key=lambda result: _WORST_FIRST.index(result.level))}


DOCTOR_SECTION = NavSection(
    "Doctor",
    "/doctor",
    ("doctor", "doctor_part"),
    (
        web.get("/doctor", make_page("doctor.html", _doctor_context)),
        web.get("/doctor/findings", make_page("doctor_part.html", _doctor_findings)),
    ),
    "Checks of the installation, each with its next step.",
)


def _privacy_context(request: web.Request) -> dict[str, Any]:
    """Return the sessions with secrets, and what would be published."""
    context = request.app[CONTEXT]
    repository = repository_target(context.runtime, Path(context.runtime.cwd))
    published = {"allows": repository.allows, "trusted": repository.is_trusted, "layouts": LAYOUTS}
    return {**_secret_values(context, FIRST_BYTES_MAX), **published}


def _more_secrets(request: web.Request) -> dict[str, Any]:
    return _secret_values(request.app[CONTEXT], SEARCHED_BYTES_MAX)


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
    (
        web.get("/privacy", make_page("privacy.html", _privacy_context)),
        web.get("/privacy/part", make_page("privacy_part.html", _more_secrets)),
    ),
    "Sessions with possible secrets, and what a repository may publish.",
)
