"""The retro pages: recommendations with evidence, artifacts and issues.

An issue can be published only from the page that shows its exact text. `workflow` checks it again.
"""

from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from flightlog.model.addresses import parse_address
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.model.output_files import Clean
from flightlog.model.runtime import Runtime
from flightlog.retro.issues import workflow
from flightlog.retro.service import find_digest, read_evidence
from flightlog.retro.state import describe_action, describe_applied, describe_trend
from flightlog.retro.store import find_retro_store, read_analysis_and_board
from flightlog.sources.chat_exports.reader import DECODERS
from flightlog.web.context import CONTEXT, NavSection, make_page, redirect_to, run_blocking

_OUTPUTS = "outputs"
_ISSUE = "{issue:[0-9a-f]{6,12}}"


async def publish_issue(request: web.Request) -> web.StreamResponse:
    """Publish one issue and redirect to the list."""
    await run_blocking(_publish_locked, request.app[CONTEXT].runtime, request.match_info["issue"])
    raise redirect_to(request, "/retro")


async def show_evidence(request: web.Request) -> web.StreamResponse:
    """Show evidence: the text of an export, or a redirect to the step of a session."""
    runtime, name = request.app[CONTEXT].runtime, request.query.get("at", "")
    evidence = await run_blocking(_evidence_context, runtime, name)
    if evidence["url"]:
        raise redirect_to(request, evidence["url"])
    return await request.app[CONTEXT].render_response("retro_evidence.html", **evidence)


async def download_artifact(request: web.Request) -> web.StreamResponse:
    """Send an artifact as a download; shown as a page, it would lose its own CSP."""
    name = request.match_info["name"]
    path = find_retro_store(request.app[CONTEXT].runtime).root / _OUTPUTS / name
    if name not in await run_blocking(_list_artifacts, request.app[CONTEXT].runtime):
        raise NotFound(f"no such artifact: {name[:60]}", hint="flightlog retro analyze")
    return web.FileResponse(path, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _retro_context(request: web.Request) -> dict[str, Any]:
    runtime = request.app[CONTEXT].runtime
    analysis, board = read_analysis_and_board(runtime)
    issues = sorted(board.issues.values(), key=lambda issue: (-issue.priority_score, issue.id))
    return {
        "meta": analysis.meta if analysis else None,
        "summary": " ".join(analysis.summary) if analysis else "",
        "recommendations": [
            (
                one,
                describe_trend(one),
                describe_action(one),
                list(zip_longest(one.evidence, one.quotes, fillvalue="")),
            )
            for one in (analysis.recommendations if analysis else ())
        ],
        "applied": [describe_applied(one) for one in (analysis.applied if analysis else ())],
        "issues": issues,
        "clusters": board.clusters,
        "artifacts": _list_artifacts(runtime),
    }


def _list_artifacts(runtime: Runtime) -> list[str]:
    """Return the file names in `outputs/`, newest first."""
    folder = find_retro_store(runtime).root / _OUTPUTS
    paths = folder.iterdir() if folder.is_dir() else ()
    names = (path.name for path in paths if path.suffix in {".html", ".md"} and path.is_file())
    return sorted(names, reverse=True)


def _preview_context(request: web.Request) -> dict[str, Any]:
    """Return exactly what publishing an issue would write."""
    store = find_retro_store(request.app[CONTEXT].runtime)
    issue = store.load_board().find_issue(request.match_info["issue"])
    try:
        page = workflow.validate_issue(store, issue)
    except FlightlogError as error:
        refusal = {"refused": error.message, "hint": error.hint}
        return {"issue": issue, "path": "", "body": "", **refusal}
    assert isinstance(page.body, Clean)
    return {"issue": issue, "path": page.path, "body": page.body.text, "refused": "", "hint": ""}


def _publish_locked(runtime: Runtime, name: str) -> None:
    store = find_retro_store(runtime)
    with store.lock():
        workflow.publish_issues(store, name)


def _evidence_context(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return the text at an address, or the page of a recorded session as `url`."""
    store = find_retro_store(runtime)
    digest = find_digest(store, name)
    if digest.source in DECODERS:
        rows = read_evidence(runtime, store, name, Path(runtime.cwd))
        return {"address": name, "title": digest.title, "rows": rows, "url": ""}
    address = parse_address(name)
    row = f"{address.turn}.{address.step}" if address.step else str(address.turn or 1)
    query = {"subagent": address.subagent, "at": row} if address.subagent else {"at": row}
    return {"url": f"/sessions/{quote(digest.id)}?{urlencode(query)}#{row}"}


RETRO_SECTION = NavSection(
    "Retro",
    "/retro",
    ("retro", "retro_issue", "retro_evidence"),
    (
        web.get("/retro", make_page("retro.html", _retro_context)),
        web.get("/retro/place", show_evidence),
        web.get("/retro/outputs/{name}", download_artifact),
        web.get(f"/retro/issues/{_ISSUE}", make_page("retro_issue.html", _preview_context)),
        web.post(f"/retro/issues/{_ISSUE}/publish", publish_issue),
    ),
    "What keeps going wrong over many sessions, and what to change.",
)
