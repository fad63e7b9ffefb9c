"""The pages of one session: its timeline in parts, a single call, find, plain text, and news as they come."""

import asyncio
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.model.address import Address
from flightlog.model.errors import NotFound, Unavailable
from flightlog.model.session import Lane, Step
from flightlog.model.usage import Cost
from flightlog.views.changes import changed_files
from flightlog.views.parts import lane_at
from flightlog.views.story import Telling, passage, story
from flightlog.views.story_forms import as_text
from flightlog.views.summary import summarise
from flightlog.views.timeline import Row, RowKind, strip
from flightlog.views.usage import summed
from flightlog.web.desk import ACTIVE_MS, DESK, Desk, aside
from flightlog.web.held import Held
from flightlog.web.share import share

CHUNK_ROWS = 20
OUTLINE_MAX = 500
HITS_MAX = 200
INLINE_ROWS = 60
BEAT_S = 15
PATIENCE_S = 1.5
FILES_MAX = 1_000
SESSION = r"/sessions/{session:[A-Za-z0-9][A-Za-z0-9._-]{0,127}}"


class Chunk(Struct, frozen=True):
    """Some rows that travel together; `rows` is None while they are away."""

    number: int
    first: str
    count: int
    rows: list[Row] | None


class LaneBar(Struct, frozen=True):
    """A subagent as a bar on the session's time, in hundredths of it."""

    lane: Lane
    start: float
    width: float
    steps: int
    cost: Cost


async def session(request: web.Request) -> web.StreamResponse:
    """Show a session, at the row the address names; one that takes long to read says so and comes by itself."""
    desk, name = request.app[DESK], _id(request)
    if desk.hub.current(name) is None:
        reading = asyncio.wrap_future(desk.data.reading(name))
        done, _ = await asyncio.wait([reading], timeout=PATIENCE_S)
        if not done:
            size = sum(file.size for file in desk.data.archive(name).find(name).files)
            return await desk.answer("reading.html", name=name, size=size)
        reading.result()
    return await aside(_session, desk, request)


async def rows(request: web.Request) -> web.StreamResponse:
    """Show one part of the timeline."""
    desk = request.app[DESK]
    return await aside(_rows, desk, request)


async def call(request: web.Request) -> web.StreamResponse:
    """Show one tool call whole."""
    desk = request.app[DESK]
    return await aside(_call, desk, request)


async def find(request: web.Request) -> web.StreamResponse:
    """Show where in a session some words stand."""
    desk = request.app[DESK]
    said = request.query.get("find", "")[:200].strip()
    hits = await aside(desk.data.find, _id(request), said, HITS_MAX) if said else []
    return await desk.answer("found.html", hits=hits, find=said, most=HITS_MAX, lane_id=request.query.get("lane", ""))


async def text(request: web.Request) -> web.StreamResponse:
    """Show a session or a step as the command line tells it, nothing left out."""
    desk = request.app[DESK]
    body = await aside(_text, desk, request)
    return web.Response(text=body, content_type="text/plain", charset="utf-8")


async def shared(request: web.Request) -> web.StreamResponse:
    """Give a session as one redacted file to keep."""
    desk = request.app[DESK]
    if desk.data.sources.redact is None:
        raise Unavailable("sharing is not set up here", hint="flightlog share SESSION --output FILE")
    told = await aside(desk.data.archive().session, _id(request))
    made = await aside(share, told, desk.data.sources.redact(), desk.templates)
    kept = {"Content-Disposition": f'attachment; filename="session-{told.id[:8]}.html"'}
    return web.Response(text=made.html, content_type="text/html", charset="utf-8", headers=kept)


async def live(request: web.Request) -> web.StreamResponse:
    """Send what changes in a session, as it changes."""
    desk, name = request.app[DESK], _id(request)
    archive = await aside(desk.data.archive, name)
    name = archive.find(name).session
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    queue = await desk.hub.join(archive, name, request.query.get("have", ""))
    try:
        await response.write(b"retry: 1000\n\n")
        while True:
            try:
                message = await asyncio.wait_for(queue.get(), BEAT_S)
            except TimeoutError:
                await response.write(b": beat\n\n")
                continue
            if message is None:
                break
            await response.write(message)
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    finally:
        desk.hub.leave(name, queue)
    return response


def _id(request: web.Request) -> str:
    return request.match_info["session"]


def _held(desk: Desk, request: web.Request) -> tuple[Held, Lane | None]:
    name = _id(request)
    held = desk.hub.current(name) or desk.data.held(name)
    lane = request.query.get("lane", "")
    return held, lane_at(held.session, Address(held.session.id, lane=lane)) if lane else None


def _session(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    laid = held.rows(lane)
    at = request.query.get("at", "")
    position = next((place for place, row in enumerate(laid) if row.id == at), None)
    said = request.query.get("find", "")[:200].strip()
    active = not lane and _is_active(desk, held)
    if position is None:
        position = len(laid) - 1 if active and laid else 0
    near = {position // CHUNK_ROWS, max(position // CHUNK_ROWS - 1, 0) if active or at else 1}
    html = desk.html(
        "session.html",
        **_frame(held, lane),
        **_outline(laid),
        chunks=_chunks(held, laid, near),
        chunk_rows=CHUNK_ROWS,
        position=position,
        lanes=lane_bars(held) if not lane else [],
        active=active,
        find=said,
        hits=desk.data.find(held.session.id, said, HITS_MAX) if said else None,
        most=HITS_MAX,
        lane_id=lane.id if lane else "",
        whole=False,
        spilled="",
        can_share=desk.data.sources.redact is not None,
    )
    return web.Response(text=html, content_type="text/html", charset="utf-8")


def _frame(held: Held, lane: Lane | None) -> dict[str, Any]:
    laid = held.rows(lane)
    name = lane.id if lane else ""
    return {
        "session": held.session,
        "lane": lane,
        "told": held.kept("told", lambda: summarise(held.session)),
        "total": len(laid),
        "bars": held.kept(f"bars {name}", lambda: strip(laid)),
        "files": held.kept(f"files {name}", lambda: files_changed(laid)),
        "version": held.version,
    }


def _outline(laid: list[Row]) -> dict[str, Any]:
    turns = [row for row in laid if row.kind is RowKind.TURN]
    return {"outline": turns[:OUTLINE_MAX] if len(turns) > 1 else [], "outline_more": max(len(turns) - OUTLINE_MAX, 0)}


def _chunks(held: Held, laid: list[Row], near: set[int]) -> list[Chunk]:
    chunks = []
    for number, start in enumerate(range(0, len(laid), CHUNK_ROWS)):
        part = laid[start : start + CHUNK_ROWS]
        chunks.append(Chunk(number, part[0].id, len(part), held.full(part) if number in near else None))
    return chunks


def files_changed(laid: list[Row]) -> list[tuple[str, str]]:
    """Every file changed, with the row that did so last."""
    last: dict[str, str] = {}
    for row in laid:
        if isinstance(row.item, Step):
            last.update((path, row.id) for path in changed_files(row.item))
    return sorted(last.items())[:FILES_MAX]


def lane_bars(held: Held) -> list[LaneBar]:
    """Lay the subagents out on the session's time."""
    begin, end = held.session.started_ms or 0, held.session.ended_ms or 0
    span = max(end - begin, 1)
    bars = []
    for lane in held.session.lanes:
        steps = [step for turn in lane.turns for step in turn.steps]
        times = [step.at_ms for step in steps if step.at_ms is not None] or [begin]
        start = min(max(100 * (min(times) - begin) / span, 0), 99)
        width = min(max(100 * (max(times) - min(times)) / span, 1), 100 - start)
        bars.append(LaneBar(lane, start, width, len(steps), summed(step.cost for step in steps)))
    return bars


def _rows(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    number = request.match_info["number"]
    inline = request.query.get("inline") == "1"
    size = INLINE_ROWS if inline else CHUNK_ROWS
    start = int(number) * size
    laid = held.rows(lane)
    part = held.full(laid[start : start + size])
    more = max(len(laid) - start - size, 0)
    prefix = f"{lane.id}:" if lane and inline else ""
    values = {"session": held.session, "lane": lane, "whole": False, "spilled": "", "prefix": prefix}
    html = desk.html("rows.html", rows=part, inline=inline, more=more, **values)
    return web.Response(text=html, content_type="text/html", charset="utf-8")


def _call(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    at, number = request.query.get("at", ""), request.query.get("call", "1")
    row = next((row for row in held.rows(lane) if row.id == at), None)
    full = held.full([row])[0] if row else None
    if full is None or not isinstance(full.item, Step) or not number.isdecimal():
        raise NotFound(f"no step {at[:20]!r} in this session", hint="flightlog session show")
    place = int(number) - 1
    if not 0 <= place < len(full.item.calls):
        raise NotFound("no such tool call in this step", hint="flightlog session show")
    one = full.item.calls[place]
    spilled = desk.data.archive().spilled(held.session.id, one.spilled) or "" if one.spilled else ""
    values = {"session": held.session, "lane": lane, "whole": True, "number": place + 1}
    html = desk.html("call.html", row=full, call=one, spilled=spilled, **values)
    return web.Response(text=html, content_type="text/html", charset="utf-8")


def _text(desk: Desk, request: web.Request) -> str:
    archive = desk.data.archive()
    told = archive.session(_id(request))
    telling = Telling(desk.data.sources.zone, full=True, spilled=lambda said: archive.spilled(told.id, said))
    turn, _, step = request.query.get("at", "").partition(".")
    lane = request.query.get("lane", "")
    if not turn.isdecimal():
        return as_text(story(told, telling))
    at = Address(told.id, int(turn), int(step) if step.isdecimal() else 0, lane)
    return as_text(passage(told, at, telling))


def _is_active(desk: Desk, held: Held) -> bool:
    changed = desk.data.archive(held.session.id).find(held.session.id).changed_ms
    return desk.data.sources.now_ms() - changed < ACTIVE_MS


ROUTES = (
    web.get(SESSION, session),
    web.get(SESSION + "/rows/{number:[0-9]{1,7}}", rows),
    web.get(SESSION + "/call", call),
    web.get(SESSION + "/find", find),
    web.get(SESSION + "/text", text),
    web.get(SESSION + "/share", shared),
    web.get(SESSION + "/live", live),
)
