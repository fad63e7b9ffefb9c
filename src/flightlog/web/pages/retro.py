"""Looking back: findings with evidence that opens, artifacts, and the board of issues.

An issue is published from here only after its very bytes were shown; the check is the workflow's own.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from flightlog.model.addresses import parse_address
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.model.output_files import Clean
from flightlog.model.runtime import Runtime
from flightlog.retro.issues import workflow
from flightlog.retro.service import find_digest
from flightlog.retro.service import read_evidence as shown
from flightlog.retro.store import find_retro_store, read_analysis_and_board
from flightlog.sources.chat_exports.reader import DECODERS
from flightlog.web.context import DESK, NavSection, redirect_to, run_blocking

FINDINGS_SHOWN = 200
_OUTPUTS = "outputs"
_ISSUE = "{issue:[0-9a-f]{6,12}}"


async def show_retro(request: web.Request) -> web.StreamResponse:
    """Show what was found and what is being done about it."""
    return await request.app[DESK].answer_with("retro.html", _retro_context)


async def preview_issue(request: web.Request) -> web.StreamResponse:
    """Show exactly what publishing an issue would write."""
    return await request.app[DESK].answer_with("retro_issue.html", _preview_context, request.match_info["issue"])


async def publish_issue(request: web.Request) -> web.StreamResponse:
    """Publish one issue, and show the board as it is then."""
    await run_blocking(_publish_locked, request.app[DESK].runtime, request.match_info["issue"])
    raise redirect_to(request, "/retro")


async def show_evidence(request: web.Request) -> web.StreamResponse:
    """Open a piece of evidence: the words of an export, or the step of a recorded session."""
    told = await run_blocking(_evidence_context, request.app[DESK].runtime, request.query.get("at", ""))
    if told["url"]:
        raise redirect_to(request, told["url"])
    return await request.app[DESK].render_response("retro_place.html", **told)


async def download_artifact(request: web.Request) -> web.StreamResponse:
    """Hand an artifact over as a file: it has a policy of its own, which a page of ours would take from it."""
    name = request.match_info["name"]
    path = find_retro_store(request.app[DESK].runtime).root / _OUTPUTS / name
    if name not in await run_blocking(_list_artifacts, request.app[DESK].runtime):
        raise NotFound(f"no such artifact: {name[:60]}", hint="flightlog retro analyze")
    return web.FileResponse(path, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _retro_context(runtime: Runtime) -> dict[str, Any]:
    analysis, board = read_analysis_and_board(runtime)
    patterns = analysis.patterns if analysis else ()
    issues = sorted(board.issues.values(), key=lambda each: (-each.priority_score, each.id))
    return {
        "meta": analysis.meta if analysis else None,
        "patterns": patterns[:FINDINGS_SHOWN],
        "more": max(0, len(patterns) - FINDINGS_SHOWN),
        "issues": issues,
        "clusters": board.clusters,
        "artifacts": _list_artifacts(runtime),
    }


def _list_artifacts(runtime: Runtime) -> list[str]:
    """The files in `outputs/`, newest name first."""
    folder = find_retro_store(runtime).root / _OUTPUTS
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path.name for path in found if path.suffix in {".html", ".md"} and path.is_file()), reverse=True)


def _preview_context(runtime: Runtime, written: str) -> dict[str, Any]:
    room = find_retro_store(runtime)
    issue = room.load_board().find_issue(written)
    try:
        page = workflow.validate_issue(room, issue)
    except FlightlogError as error:
        return {"issue": issue, "path": "", "body": "", "refused": error.message, "hint": error.hint}
    assert isinstance(page.body, Clean)
    return {"issue": issue, "path": page.path, "body": page.body.text, "refused": "", "hint": ""}


def _publish_locked(runtime: Runtime, written: str) -> None:
    room = find_retro_store(runtime)
    with room.lock():
        workflow.publish_issues(room, written)


def _evidence_context(runtime: Runtime, written: str) -> dict[str, Any]:
    """Return the words at an address, or, of a recorded session, where its page shows them."""
    room = find_retro_store(runtime)
    digest = find_digest(room, written)
    if digest.source in DECODERS:
        return {
            "address": written,
            "title": digest.title,
            "rows": shown(runtime, room, written, Path(runtime.cwd)),
            "url": "",
        }
    address = parse_address(written)
    row = f"{address.turn}.{address.step}" if address.step else str(address.turn or 1)
    asked = {"lane": address.lane, "at": row} if address.lane else {"at": row}
    return {"url": f"/sessions/{quote(digest.id)}?{urlencode(asked)}#{row}"}


RETRO_SECTION = NavSection(
    "Retro",
    "/retro",
    ("retro", "retro_issue", "retro_place"),
    (
        web.get("/retro", show_retro),
        web.get("/retro/place", show_evidence),
        web.get("/retro/outputs/{name}", download_artifact),
        web.get(f"/retro/issues/{_ISSUE}", preview_issue),
        web.post(f"/retro/issues/{_ISSUE}/publish", publish_issue),
    ),
)
