"""Looking back: findings with evidence that opens, artifacts, and the board of issues.

An issue is published from here only after its very bytes were shown; the check is the workflow's own.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from flightlog.app.retro import find_room, look
from flightlog.app.retro_session import found_digest
from flightlog.app.retro_session import place as shown
from flightlog.model.address import parse
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.model.pages import Clean
from flightlog.model.runtime import Runtime
from flightlog.retro import workflow
from flightlog.sources.exports.reading import DECODERS
from flightlog.web.desk import DESK, aside, see_other
from flightlog.web.family import Family

FINDINGS_SHOWN = 200
_OUTPUTS = "outputs"
_ISSUE = "{issue:[0-9a-f]{6,12}}"


async def retro(request: web.Request) -> web.StreamResponse:
    """Show what was found and what is being done about it."""
    return await request.app[DESK].answer_with("retro.html", _retro)


async def preview(request: web.Request) -> web.StreamResponse:
    """Show exactly what publishing an issue would write."""
    return await request.app[DESK].answer_with("retro_issue.html", _preview, request.match_info["issue"])


async def publish(request: web.Request) -> web.StreamResponse:
    """Publish one issue, and show the board as it is then."""
    await aside(_publish, request.app[DESK].runtime, request.match_info["issue"])
    raise see_other(request, "/retro")


async def place(request: web.Request) -> web.StreamResponse:
    """Open a piece of evidence: the words of an export, or the step of a recorded session."""
    told = await aside(_place, request.app[DESK].runtime, request.query.get("at", ""))
    if told["url"]:
        raise see_other(request, told["url"])
    return await request.app[DESK].answer("retro_place.html", **told)


async def artifact(request: web.Request) -> web.StreamResponse:
    """Hand an artifact over as a file: it has a policy of its own, which a page of ours would take from it."""
    name = request.match_info["name"]
    path = find_room(request.app[DESK].runtime).root / _OUTPUTS / name
    if name not in await aside(_artifacts, request.app[DESK].runtime):
        raise NotFound(f"no such artifact: {name[:60]}", hint="flightlog retro analyze")
    return web.FileResponse(path, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _retro(runtime: Runtime) -> dict[str, Any]:
    analysis, board = look(runtime)
    patterns = analysis.patterns if analysis else ()
    issues = sorted(board.issues.values(), key=lambda each: (-each.priority_score, each.id))
    return {
        "meta": analysis.meta if analysis else None,
        "patterns": patterns[:FINDINGS_SHOWN],
        "more": max(0, len(patterns) - FINDINGS_SHOWN),
        "issues": issues,
        "clusters": board.clusters,
        "artifacts": _artifacts(runtime),
    }


def _artifacts(runtime: Runtime) -> list[str]:
    """The files in `outputs/`, newest name first."""
    folder = find_room(runtime).root / _OUTPUTS
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path.name for path in found if path.suffix in {".html", ".md"} and path.is_file()), reverse=True)


def _preview(runtime: Runtime, written: str) -> dict[str, Any]:
    room = find_room(runtime)
    issue = room.board().issue(written)
    try:
        page = workflow.checked(room, issue)
    except FlightlogError as error:
        return {"issue": issue, "path": "", "body": "", "refused": error.message, "hint": error.hint}
    assert isinstance(page.body, Clean)
    return {"issue": issue, "path": page.path, "body": page.body.text, "refused": "", "hint": ""}


def _publish(runtime: Runtime, written: str) -> None:
    room = find_room(runtime)
    with room.held():
        workflow.publish(room, written)


def _place(runtime: Runtime, written: str) -> dict[str, Any]:
    """Return the words at an address, or, of a recorded session, where its page shows them."""
    room = find_room(runtime)
    digest = found_digest(room, written)
    if digest.source in DECODERS:
        return {
            "address": written,
            "title": digest.title,
            "rows": shown(runtime, room, written, Path(runtime.cwd)),
            "url": "",
        }
    address = parse(written)
    row = f"{address.turn}.{address.step}" if address.step else str(address.turn or 1)
    asked = {"lane": address.lane, "at": row} if address.lane else {"at": row}
    return {"url": f"/sessions/{quote(digest.id)}?{urlencode(asked)}#{row}"}


FAMILY = Family(
    "Retro",
    "/retro",
    ("retro", "retro_issue", "retro_place"),
    (
        web.get("/retro", retro),
        web.get("/retro/place", place),
        web.get("/retro/outputs/{name}", artifact),
        web.get(f"/retro/issues/{_ISSUE}", preview),
        web.post(f"/retro/issues/{_ISSUE}/publish", publish),
    ),
)
