"""The pages of one session: its timeline in parts, a single call, find, plain text, and news as they come."""

import asyncio
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.app.sharing import redact_session
from flightlog.model.address import Address
from flightlog.model.errors import NotFound
from flightlog.model.session import Step
from flightlog.views.session.outline import CHUNK_ROWS, SubagentSummary
from flightlog.views.session.timeline import RowMark
from flightlog.views.story import Telling, passage, story
from flightlog.views.story_forms import as_text
from flightlog.web.desk import ACTIVE_MS, DESK, Desk, aside, page
from flightlog.web.held import Held, Shown
from flightlog.web.share import share

HITS_MAX = 200
INLINE_ROWS = 60
BEAT_S = 15
PATIENCE_S = 1.5
SESSION = r"/sessions/{session:[A-Za-z0-9][A-Za-z0-9._-]{0,127}}"


class Chunk(Struct, frozen=True):
    """Some rows that travel together; `rows` is None while they are away."""

    number: int
    first: str
    count: int
    rows: list[Shown] | None


class LaneBar(Struct, frozen=True):
    """A subagent as a bar on the session's time, in hundredths of it."""

    lane: SubagentSummary
    start: float
    width: float


async def session(request: web.Request) -> web.StreamResponse:
    """Show a session, at the row the address names; one that takes long to read says so and comes by itself."""
    desk, name = request.app[DESK], _id(request)
    if desk.hub.current(name) is None:
        reading = asyncio.wrap_future(desk.data.shelf.reading(name))
        done, _ = await asyncio.wait([reading], timeout=PATIENCE_S)
        if not done:
            size = desk.data.archive(name).find(name).size
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
    archive = desk.data.archive()
    told = await aside(archive.session, _id(request))
    document, cleaner = await aside(redact_session, desk.runtime, archive, told)
    made = await aside(share, document, cleaner, desk.templates)
    kept = {"Content-Disposition": f'attachment; filename="session-{told.id[:8]}.html"'}
    return web.Response(text=made.value, content_type="text/html", charset="utf-8", headers=kept)


async def live(request: web.Request) -> web.StreamResponse:
    """Send what changes in a session, as it changes."""
    desk, name = request.app[DESK], _id(request)
    archive = await aside(desk.data.archive, name)
    name = archive.find(name).session
    # What runs is read before it grows again: the next line does not wait for all the earlier ones.
    have = "" if _is_active(desk, name) else request.query.get("have", "")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    queue = await desk.hub.join(archive, name, have)
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


def _held(desk: Desk, request: web.Request) -> tuple[Held, SubagentSummary | None]:
    name = _id(request)
    held = desk.hub.current(name) or desk.data.held(name)
    lane = request.query.get("lane", "")
    return held, held.lane(lane) if lane else None


def _session(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    name = lane.id if lane else ""
    thread = held.thread(name)
    at = request.query.get("at", "")
    row = thread.find_row(at) if at else None
    said = request.query.get("find", "")[:200].strip()
    active = not lane and _is_active(desk, held.session.id)
    position = row if row is not None else thread.total - 1 if active and thread.total else 0
    near = {position // CHUNK_ROWS, max(position // CHUNK_ROWS - 1, 0) if active or at else 1}
    return page(
        desk.html(
            "session.html",
            **_frame(held, lane),
            outline=thread.prompts if len(thread.prompts) > 1 else (),
            outline_more=max(thread.marks.count(RowMark.TURN) - len(thread.prompts), 0),
            chunks=_chunks(held, name, near),
            chunk_rows=CHUNK_ROWS,
            position=position,
            lanes=lane_bars(held) if not lane else [],
            active=active,
            find=said,
            hits=desk.data.find(held.session.id, said, HITS_MAX) if said else None,
            most=HITS_MAX,
            lane_id=name,
            whole=False,
            spilled="",
        )
    )


def _frame(held: Held, lane: SubagentSummary | None) -> dict[str, Any]:
    name = lane.id if lane else ""
    return {
        "session": held.session,
        "lane": lane,
        "told": held.outline.summary,
        "total": held.thread(name).total,
        "bars": held.bars(name),
        "files": held.files(name),
        "version": held.version,
    }


def _chunks(held: Held, lane: str, near: set[int]) -> list[Chunk]:
    total = held.thread(lane).total
    return [
        Chunk(
            number,
            first,
            min(CHUNK_ROWS, total - number * CHUNK_ROWS),
            held.chunk(number, lane) if number in near else None,
        )
        for number, first in enumerate(held.firsts(lane))
    ]


def lane_bars(held: Held) -> list[LaneBar]:
    """Lay the subagents out on the session's time."""
    begin, end = held.session.started_ms or 0, held.session.ended_ms or 0
    span = max(end - begin, 1)
    bars = []
    for lane in held.outline.subagents:
        early = lane.begin_ms if lane.begin_ms is not None else begin
        late = lane.end_ms if lane.end_ms is not None else early
        start = min(max(100 * (early - begin) / span, 0), 99)
        width = min(max(100 * (late - early) / span, 1), 100 - start)
        bars.append(LaneBar(lane, start, width))
    return bars


def _rows(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    inline = request.query.get("inline") == "1"
    size = INLINE_ROWS if inline else CHUNK_ROWS
    start = int(request.match_info["number"]) * size
    name = lane.id if lane else ""
    total = held.thread(name).total
    part = held.shown(range(start, min(start + size, total)), name)
    prefix = f"{name}:" if lane and inline else ""
    values = {"session": held.session, "lane": lane, "whole": False, "spilled": "", "prefix": prefix}
    return page(desk.html("rows.html", rows=part, inline=inline, more=max(total - start - size, 0), **values))


def _call(desk: Desk, request: web.Request) -> web.Response:
    held, lane = _held(desk, request)
    at, number = request.query.get("at", ""), request.query.get("call", "1")
    name = lane.id if lane else ""
    row = held.thread(name).find_row(at)
    full = held.shown([row], name)[0] if row is not None else None
    if full is None or not isinstance(full.item, Step) or not number.isdecimal():
        raise NotFound(f"no step {at[:20]!r} in this session", hint="flightlog session show")
    place = int(number) - 1
    if not 0 <= place < len(full.item.calls):
        raise NotFound("no such tool call in this step", hint="flightlog session show")
    one = full.item.calls[place]
    spilled = desk.data.archive().spilled(held.session.id, one.spilled) or "" if one.spilled else ""
    values = {"session": held.session, "lane": lane, "whole": True, "number": place + 1}
    return page(desk.html("call.html", row=full, call=one, spilled=spilled, **values))


def _text(desk: Desk, request: web.Request) -> str:
    archive = desk.data.archive()
    told = archive.session(_id(request))
    telling = Telling(desk.runtime.zone, full=True, spilled=lambda said: archive.spilled(told.id, said))
    turn, _, step = request.query.get("at", "").partition(".")
    lane = request.query.get("lane", "")
    if not turn.isdecimal():
        return as_text(story(told, telling))
    at = Address(told.id, int(turn), int(step) if step.isdecimal() else 0, lane)
    return as_text(passage(told, at, telling))


def _is_active(desk: Desk, session: str) -> bool:
    changed = desk.data.archive(session).find(session).changed_ms
    return desk.runtime.clock.now_ms() - changed < ACTIVE_MS


ROUTES = (
    web.get(SESSION, session),
    web.get(SESSION + "/rows/{number:[0-9]{1,7}}", rows),
    web.get(SESSION + "/call", call),
    web.get(SESSION + "/find", find),
    web.get(SESSION + "/text", text),
    web.get(SESSION + "/share", shared),
    web.get(SESSION + "/live", live),
)
