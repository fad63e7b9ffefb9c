"""Timeline, call, find, text, updates, trajectory."""

import asyncio
import io
import zipfile
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.archive.archive import Archive
from flightlog.archive.sharing import redact_session
from flightlog.model.addresses import Address
from flightlog.model.errors import NotFound
from flightlog.model.session import Step
from flightlog.views.atif.writer import MAIN, TrajectoryBundle, build_trajectory
from flightlog.views.session.outline import CHUNK_ROWS, SubagentSummary
from flightlog.views.session.timeline import RowMark
from flightlog.views.transcript import RenderOptions, render_passage, render_session
from flightlog.views.transcript_formats import as_text
from flightlog.web.context import ACTIVE_MS, DESK, WebContext, html_response, run_blocking
from flightlog.web.session_page import PageRow, SessionPage
from flightlog.web.share import render_share_page

HITS_MAX = 200
INLINE_ROWS = 60
BEAT_S = 15
PATIENCE_S = 1.5
SESSION = r"/sessions/{session:[A-Za-z0-9][A-Za-z0-9._-]{0,127}}"


class RowChunk(Struct, frozen=True):
    """Some rows that travel together; `rows` is None while they are away."""

    number: int
    first: str
    count: int
    rows: list[PageRow] | None


class SubagentBar(Struct, frozen=True):
    """A subagent as a bar on the session's time, in hundredths of it."""

    lane: SubagentSummary
    start: float
    width: float


async def show_session(request: web.Request) -> web.StreamResponse:
    """Show a session, at the row the address names; one that takes long to read says so and comes by itself."""
    desk, name = request.app[DESK], _session_id(request)
    if desk.hub.current_page(name) is None:
        reading = asyncio.wrap_future(desk.data.shelf.start_reading(name))
        done, _ = await asyncio.wait([reading], timeout=PATIENCE_S)
        if not done:
            size = desk.data.current_archive(name).find_recording(name).size
            return await desk.render_response("reading.html", name=name, size=size)
        reading.result()
    return await run_blocking(_render_session, desk, request)


async def show_rows(request: web.Request) -> web.StreamResponse:
    """Show one part of the timeline."""
    desk = request.app[DESK]
    return await run_blocking(_render_rows, desk, request)


async def show_tool_call(request: web.Request) -> web.StreamResponse:
    """Show one tool call whole."""
    desk = request.app[DESK]
    return await run_blocking(_render_tool_call, desk, request)


async def show_matches(request: web.Request) -> web.StreamResponse:
    """Show where in a session some words stand."""
    desk = request.app[DESK]
    said = request.query.get("find", "")[:200].strip()
    hits = await run_blocking(desk.data.find_in_session, _session_id(request), said, HITS_MAX) if said else []
    return await desk.render_response(
        "found.html", hits=hits, find=said, most=HITS_MAX, lane_id=request.query.get("lane", "")
    )


async def show_text(request: web.Request) -> web.StreamResponse:
    """Show a session or a step as the command line tells it, nothing left out."""
    desk = request.app[DESK]
    body = await run_blocking(_transcript_text, desk, request)
    return web.Response(text=body, content_type="text/plain", charset="utf-8")


async def download_share(request: web.Request) -> web.StreamResponse:
    """Give a session as one redacted file to keep."""
    desk = request.app[DESK]
    archive = desk.data.current_archive()
    told = await run_blocking(archive.read_session, _session_id(request))
    document, cleaner = await run_blocking(redact_session, desk.runtime, archive, told)
    made = await run_blocking(render_share_page, document, cleaner, desk.templates)
    kept = {"Content-Disposition": f'attachment; filename="session-{told.id[:8]}.html"'}
    return web.Response(text=made.value, content_type="text/html", charset="utf-8", headers=kept)


async def stream_changes(request: web.Request) -> web.StreamResponse:
    """Send what changes in a session, as it changes."""
    desk, name = request.app[DESK], _session_id(request)
    archive = await run_blocking(desk.data.current_archive, name)
    name = archive.find_recording(name).session
    # What runs is read before it grows again: the next line does not wait for all the earlier ones.
    have = "" if _is_active(desk, name) else request.query.get("have", "")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    queue = await desk.hub.subscribe(archive, name, have)
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
        desk.hub.unsubscribe(name, queue)
    return response


def _session_id(request: web.Request) -> str:
    return request.match_info["session"]


def _page_from_request(desk: WebContext, request: web.Request) -> tuple[SessionPage, SubagentSummary | None]:
    name = _session_id(request)
    held = desk.hub.current_page(name) or desk.data.load_session_page(name)
    lane = request.query.get("lane", "")
    return held, held.find_subagent(lane) if lane else None


def _render_session(desk: WebContext, request: web.Request) -> web.Response:
    held, lane = _page_from_request(desk, request)
    name = lane.id if lane else ""
    thread = held.thread_of(name)
    at = request.query.get("at", "")
    row = thread.find_row(at) if at else None
    said = request.query.get("find", "")[:200].strip()
    active = not lane and _is_active(desk, held.session.id)
    position = row if row is not None else thread.total - 1 if active and thread.total else 0
    near = {position // CHUNK_ROWS, max(position // CHUNK_ROWS - 1, 0) if active or at else 1}
    return html_response(
        desk.render_html(
            "session.html",
            **_frame_context(held, lane),
            outline=thread.prompts if len(thread.prompts) > 1 else (),
            outline_more=max(thread.marks.count(RowMark.TURN) - len(thread.prompts), 0),
            chunks=_build_chunks(held, name, near),
            chunk_rows=CHUNK_ROWS,
            position=position,
            lanes=subagent_bars(held) if not lane else [],
            active=active,
            find=said,
            hits=desk.data.find_in_session(held.session.id, said, HITS_MAX) if said else None,
            most=HITS_MAX,
            lane_id=name,
            whole=False,
            spilled="",
        )
    )


def _frame_context(held: SessionPage, lane: SubagentSummary | None) -> dict[str, Any]:
    name = lane.id if lane else ""
    return {
        "session": held.session,
        "lane": lane,
        "told": held.outline.summary,
        "total": held.thread_of(name).total,
        "bars": held.timeline_bars(name),
        "files": held.changed_files(name),
        "version": held.version,
    }


def _build_chunks(held: SessionPage, lane: str, near: set[int]) -> list[RowChunk]:
    total = held.thread_of(lane).total
    return [
        RowChunk(
            number,
            first,
            min(CHUNK_ROWS, total - number * CHUNK_ROWS),
            held.load_chunk(number, lane) if number in near else None,
        )
        for number, first in enumerate(held.first_row_ids(lane))
    ]


def subagent_bars(held: SessionPage) -> list[SubagentBar]:
    """Lay the subagents out on the session's time."""
    begin, end = held.session.started_ms or 0, held.session.ended_ms or 0
    span = max(end - begin, 1)
    bars = []
    for lane in held.outline.subagents:
        early = lane.begin_ms if lane.begin_ms is not None else begin
        late = lane.end_ms if lane.end_ms is not None else early
        start = min(max(100 * (early - begin) / span, 0), 99)
        width = min(max(100 * (late - early) / span, 1), 100 - start)
        bars.append(SubagentBar(lane, start, width))
    return bars


def _render_rows(desk: WebContext, request: web.Request) -> web.Response:
    held, lane = _page_from_request(desk, request)
    inline = request.query.get("inline") == "1"
    size = INLINE_ROWS if inline else CHUNK_ROWS
    start = int(request.match_info["number"]) * size
    name = lane.id if lane else ""
    total = held.thread_of(name).total
    part = held.load_rows(range(start, min(start + size, total)), name)
    prefix = f"{name}:" if lane and inline else ""
    values = {"session": held.session, "lane": lane, "whole": False, "spilled": "", "prefix": prefix}
    return html_response(
        desk.render_html("rows.html", rows=part, inline=inline, more=max(total - start - size, 0), **values)
    )


def _render_tool_call(desk: WebContext, request: web.Request) -> web.Response:
    held, lane = _page_from_request(desk, request)
    at, number = request.query.get("at", ""), request.query.get("call", "1")
    name = lane.id if lane else ""
    row = held.thread_of(name).find_row(at)
    full = held.load_rows([row], name)[0] if row is not None else None
    if full is None or not isinstance(full.item, Step) or not number.isdecimal():
        raise NotFound(f"no step {at[:20]!r} in this session", hint="flightlog session show")
    place = int(number) - 1
    if not 0 <= place < len(full.item.calls):
        raise NotFound("no such tool call in this step", hint="flightlog session show")
    one = full.item.calls[place]
    spilled = desk.data.current_archive().read_spilled_output(held.session.id, one.spilled) or "" if one.spilled else ""
    values = {"session": held.session, "lane": lane, "whole": True, "number": place + 1}
    return html_response(desk.render_html("call.html", row=full, call=one, spilled=spilled, **values))


def _transcript_text(desk: WebContext, request: web.Request) -> str:
    archive = desk.data.current_archive()
    told = archive.read_session(_session_id(request))
    telling = RenderOptions(
        desk.runtime.zone, full=True, spilled=lambda said: archive.read_spilled_output(told.id, said)
    )
    turn, _, step = request.query.get("at", "").partition(".")
    lane = request.query.get("lane", "")
    if not turn.isdecimal():
        return as_text(render_session(told, telling))
    at = Address(told.id, int(turn), int(step) if step.isdecimal() else 0, lane)
    return as_text(render_passage(told, at, telling))


def _is_active(desk: WebContext, session: str) -> bool:
    changed = desk.data.current_archive(session).find_recording(session).changed_ms
    return desk.runtime.clock.now_ms() - changed < ACTIVE_MS


SESSION_ROUTES = (
    web.get(SESSION, show_session),
    web.get(SESSION + "/rows/{number:[0-9]{1,7}}", show_rows),
    web.get(SESSION + "/call", show_tool_call),
    web.get(SESSION + "/find", show_matches),
    web.get(SESSION + "/text", show_text),
    web.get(SESSION + "/share", download_share),
    web.get(SESSION + "/live", stream_changes),
)


async def download_trajectory(request: web.Request) -> web.StreamResponse:
    """Give the trajectory of a session, with its subagents and pictures if it has any."""
    archive = request.app[DESK].data.current_archive()
    name = archive.find_recording(request.match_info["session"]).session
    body, ending, kind = await run_blocking(_pack_files, archive, name)
    kept = {"Content-Disposition": f'attachment; filename="trajectory-{name[:8]}.{ending}"'}
    return web.Response(body=body, content_type=kind, headers=kept)


def _pack_files(archive: Archive, name: str) -> tuple[bytes, str, str]:
    files = dict(_build_bundle(archive, name).iter_files())
    if len(files) == 1:
        return files[MAIN], "json", "application/json"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as pack:
        for path, body in files.items():
            pack.writestr(zipfile.ZipInfo(path), body, zipfile.ZIP_DEFLATED)
    return packed.getvalue(), "zip", "application/zip"


def _build_bundle(archive: Archive, name: str) -> TrajectoryBundle:
    return build_trajectory(archive.read_session(name), contexts=archive.thread_contexts(name))


TRAJECTORY_ROUTES = (web.get(SESSION + "/trajectory", download_trajectory),)
