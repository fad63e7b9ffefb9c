"""The session page: timeline, tool calls, search, text, updates, downloads."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from flightlog.analysis.findings import Finding
from flightlog.analysis.service import SessionAnalysis
from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import read_own_usage
from flightlog.archive.sharing import redact_session
from flightlog.model.addresses import Address
from flightlog.model.errors import NotFound
from flightlog.model.session import Step
from flightlog.model.text import one_line
from flightlog.views.session.outline import CHUNK_ROWS, SubagentSummary, ThreadOutline
from flightlog.views.session.timeline import RowMark
from flightlog.views.transcript import RenderOptions, render_passage, render_session
from flightlog.views.transcript_formats import as_text
from flightlog.web.auth import Handler
from flightlog.web.context import (
    ACTIVE_MS,
    CONTEXT,
    WebContext,
    html_response,
    redirect_to,
    run_blocking,
)
from flightlog.web.session_page import PageRow, SessionPage
from flightlog.web.share import render_share_page

HITS_MAX = 200
INLINE_ROWS = 60  # of a subagent inside the main timeline
BEAT_S = 15  # comment lines that keep the stream open through proxies
FINDINGS_BYTES_MAX = 1 << 20  # of a session whose findings do not delay its page; others follow
PATIENCE_S = 1.5  # a longer read shows the "Reading…" page
SESSION = r"/sessions/{session:[A-Za-z0-9][A-Za-z0-9._-]{0,127}}"


class RowChunk(Struct, frozen=True):
    """A part of the timeline; the script of the page loads the others when they are near."""

    number: int
    rows: list[PageRow]


class SubagentBar(Struct, frozen=True):
    """A subagent as a bar on the session's time axis, in percent."""

    subagent: SubagentSummary
    start: float
    width: float


async def show_session(request: web.Request) -> web.StreamResponse:
    """Show a session at the row in the address; while a long one is read, show a waiting page."""
    context, name = request.app[CONTEXT], session_id(request)
    if context.hub.current_page(name) is None:
        reading = asyncio.wrap_future(context.data.cache.start_reading(name))
        done, _ = await asyncio.wait([reading], timeout=PATIENCE_S)
        if not done:
            size = context.data.current_archive(name).find_recording(name).size
            return await context.render_response("reading.html", name=name, size=size)
        reading.result()
    return await run_blocking(_render_session, context, request)


def _make_blocking(render: Callable[[WebContext, web.Request], web.Response]) -> Handler:
    """Return a handler that runs `render` in a thread."""

    async def show(request: web.Request) -> web.StreamResponse:
        return await run_blocking(render, request.app[CONTEXT], request)

    return show


async def show_matches(request: web.Request) -> web.StreamResponse:
    """Show the rows of a session that contain some words."""
    context = request.app[CONTEXT]
    words = request.query.get("find", "")[:200].strip()
    search = context.data.find_in_session
    hits = await run_blocking(search, session_id(request), words, HITS_MAX) if words else []
    values = {"find": words, "limit": HITS_MAX, "subagent_id": request.query.get("subagent", "")}
    return await context.render_response("matches.html", hits=hits, **values)


async def show_text(request: web.Request) -> web.StreamResponse:
    """Show the full transcript of a session or a step as plain text."""
    body = await run_blocking(_transcript_text, request.app[CONTEXT], request)
    return web.Response(text=body, content_type="text/plain", charset="utf-8")


async def download_share(request: web.Request) -> web.StreamResponse:
    """Send a session as one redacted HTML file."""
    context = request.app[CONTEXT]
    archive = context.data.current_archive()
    session = await run_blocking(archive.read_session, session_id(request))
    document, redactor = await run_blocking(redact_session, context.runtime, archive, session)
    page = await run_blocking(render_share_page, document, redactor, context.templates)
    headers = {"Content-Disposition": f'attachment; filename="session-{session.id[:8]}.html"'}
    return web.Response(text=page.value, content_type="text/html", charset="utf-8", headers=headers)


async def stream_changes(request: web.Request) -> web.StreamResponse:
    """Stream the changes of a session as server-sent events."""
    context, name = request.app[CONTEXT], session_id(request)
    archive = await run_blocking(context.data.current_archive, name)
    name = archive.find_recording(name).session
    # An active session is read at once, so that its next line does not wait for the earlier ones.
    version = "" if _is_active(context, name) else request.query.get("have", "")
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    queue = await context.hub.subscribe(archive, name, version)
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
        context.hub.unsubscribe(name, queue)
    return response


def session_id(request: web.Request) -> str:
    """Return the id in the address of a session's page."""
    return request.match_info["session"]


def _page_from_request(
    context: WebContext, request: web.Request
) -> tuple[SessionPage, SubagentSummary | None]:
    name = session_id(request)
    page = context.hub.current_page(name) or context.data.load_session_page(name)
    subagent = request.query.get("subagent", "")
    return page, page.find_subagent(subagent) if subagent else None


def _render_session(context: WebContext, request: web.Request) -> web.Response:
    page, subagent = _page_from_request(context, request)
    name = subagent.id if subagent else ""
    thread = page.thread_of(name)
    row_id = request.query.get("at", "")
    if not row_id and "offset" in request.query:
        raise _redirect_to_record(request, page, name)
    show = _kind_shown(request, thread)
    rows = thread.rows_of_kind(show)
    row = thread.find_row(row_id) if row_id else None
    if row is not None and show:
        row = rows.index(row) if row in rows else None
    words = request.query.get("find", "")[:200].strip()
    active = not subagent and _is_active(context, page.session.id)
    position = row if row is not None else len(rows) - 1 if active and rows else 0
    loaded = {position // CHUNK_ROWS, max(position // CHUNK_ROWS - 1, 0) if active or row_id else 1}
    return html_response(
        context.render_html(
            "session.html",
            **_frame_context(page, subagent, show),
            show=show,
            kinds=thread.count_kinds(),
            everything=thread.total,
            outline=thread.prompts if len(thread.prompts) > 1 else (),
            outline_more=max(thread.row_kinds.count(RowMark.TURN) - len(thread.prompts), 0),
            chunks=_load_chunks(page, name, rows, loaded),
            neighbors=_link_neighbors(thread, rows, loaded),
            chunk_rows=CHUNK_ROWS,
            position=position,
            subagents=subagent_bars(page) if not subagent else [],
            active=active,
            find=words,
            hits=context.data.find_in_session(page.session.id, words, HITS_MAX) if words else None,
            limit=HITS_MAX,
            subagent_id=name,
            whole=False,
            spilled="",
            findings=None if subagent else _find_findings_at_once(context, page.session.id),
        )
    )


def _find_findings_at_once(context: WebContext, session: str) -> tuple[Finding, ...] | None:
    """Return the findings of a short session; None if the page asks for them later."""
    archive = context.data.current_archive(session)
    is_short = archive.find_recording(session).size <= FINDINGS_BYTES_MAX
    return context.data.read_analysis(session, select_findings) if is_short else None


def select_findings(_: Archive, detail: SessionAnalysis) -> tuple[Finding, ...]:
    """Return the findings of an analysis."""
    return detail.findings


def _redirect_to_record(request: web.Request, page: SessionPage, name: str) -> web.HTTPSeeOther:
    """Return the way to the row of the record at the `offset` asked for, or to the session."""
    offset, thread = request.query["offset"], page.thread_of(name)
    found = (at for (_, start), at in page.outline.rows_by_location() if str(start) == offset)
    row = next((thread.id_at(row) for subagent, row in found if subagent == name), "")
    query = {"subagent": name} if name else {}
    query |= {"at": row} if row else {}
    return redirect_to(request, f"/sessions/{page.session.id}?{urlencode(query)}#{row}")


def _kind_shown(request: web.Request, thread: ThreadOutline) -> str:
    """Return the kind of rows asked for, or "" for all."""
    show = request.query.get("show", "")
    return show if show in thread.count_kinds() else ""


def _frame_context(
    page: SessionPage, subagent: SubagentSummary | None, show: str = ""
) -> dict[str, Any]:
    name = subagent.id if subagent else ""
    thread = page.thread_of(name)
    rows = thread.rows_of_kind(show)
    return {
        "session": page.session,
        "subagent": subagent,
        "summary": page.summary,
        "with_copies": page.outline.summary.usage,
        "total": len(rows),
        "bars": thread.sum_bars(rows=rows) if show else page.timeline_bars(name),
        "files": page.changed_files(name),
        "version": page.version,
    }


def _load_chunks(
    page: SessionPage, subagent: str, rows: Sequence[int], numbers: Iterable[int]
) -> list[RowChunk]:
    return [
        RowChunk(number, page.load_rows(part, subagent))
        for number in sorted(numbers)
        if (part := rows[number * CHUNK_ROWS : (number + 1) * CHUNK_ROWS])
    ]


def _link_neighbors(thread: ThreadOutline, rows: Sequence[int], numbers: set[int]) -> list[str]:
    """Return the rows that links before and after the loaded chunks open, "" for none."""
    before, after = (min(numbers) - 1) * CHUNK_ROWS, (max(numbers) + 1) * CHUNK_ROWS
    return [thread.id_at(rows[at]) if 0 <= at < len(rows) else "" for at in (before, after)]


def subagent_bars(page: SessionPage) -> list[SubagentBar]:
    """Return the subagents as bars on the session's time axis."""
    begin_ms, end_ms = page.session.started_ms or 0, page.session.ended_ms or 0
    span = max(end_ms - begin_ms, 1)
    bars = []
    for subagent in page.outline.subagents:
        first_ms = subagent.started_ms if subagent.started_ms is not None else begin_ms
        last_ms = subagent.ended_ms if subagent.ended_ms is not None else first_ms
        start = min(max(100 * (first_ms - begin_ms) / span, 0), 99)
        width = min(max(100 * (last_ms - first_ms) / span, 1), 100 - start)
        bars.append(SubagentBar(subagent, start, width))
    return bars


def _render_rows(context: WebContext, request: web.Request) -> web.Response:
    page, subagent = _page_from_request(context, request)
    inline = request.query.get("inline") == "1"
    size = INLINE_ROWS if inline else CHUNK_ROWS
    start = int(request.match_info["number"]) * size
    name = subagent.id if subagent else ""
    thread = page.thread_of(name)
    selected = thread.rows_of_kind(_kind_shown(request, thread))
    values = {
        "session": page.session,
        "subagent": subagent,
        "whole": False,
        "spilled": "",
        "prefix": f"{name}:" if subagent and inline else "",
        "rows": page.load_rows(selected[start : start + size], name),
        "inline": inline,
        "more": max(len(selected) - start - size, 0),
    }
    return html_response(context.render_html("rows.html", **values))


def _render_tool_call(context: WebContext, request: web.Request) -> web.Response:
    page, subagent = _page_from_request(context, request)
    row_id, number = request.query.get("at", ""), request.query.get("call", "1")
    name = subagent.id if subagent else ""
    row = page.thread_of(name).find_row(row_id)
    step_row = page.load_rows([row], name)[0] if row is not None else None
    if step_row is not None and number == "0":  # a prompt in full
        values = {"session": page.session, "subagent": subagent, "whole": True, "spilled": ""}
        return html_response(context.render_html("row.html", row=step_row, **values))
    if step_row is None or not isinstance(step_row.item, Step) or not number.isdecimal():
        hint = "flightlog session show"
        raise NotFound(f'no step "{one_line(row_id, 20)}" in this session', hint=hint)
    index = int(number) - 1
    if not 0 <= index < len(step_row.item.tool_calls):
        raise NotFound("no such tool call in this step", hint="flightlog session show")
    call = step_row.item.tool_calls[index]
    spilled = ""
    if call.result_file:
        archive = context.data.current_archive()
        spilled = archive.read_spilled_output(page.session.id, call.result_file) or ""
    more = {"session": page.session, "subagent": subagent, "whole": True, "number": index + 1}
    html = context.render_html("call.html", row=step_row, call=call, spilled=spilled, **more)
    return html_response(html)


def _transcript_text(context: WebContext, request: web.Request) -> str:
    archive = context.data.current_archive()
    session = archive.read_session(session_id(request))
    options = RenderOptions(
        context.runtime.zone,
        is_full=True,
        read_result_file=lambda reference: archive.read_spilled_output(session.id, reference),
        own_usage=read_own_usage(archive, session.id),
    )
    turn, _, step = request.query.get("at", "").partition(".")
    subagent = request.query.get("subagent", "")
    if not turn.isdecimal():
        return as_text(render_session(session, options))
    address = Address(session.id, int(turn), int(step) if step.isdecimal() else 0, subagent)
    return as_text(render_passage(session, address, options))


def _is_active(context: WebContext, session: str) -> bool:
    archive = context.data.current_archive(session)
    recording = archive.find_recording(session)
    oldest_ms = context.runtime.clock.now_ms() - ACTIVE_MS
    return recording.changed_ms > oldest_ms and archive.last_record_ms(recording) > oldest_ms


SESSION_ROUTES = (
    web.get(SESSION, show_session),
    web.get(SESSION + "/rows/{number:[0-9]{1,7}}", _make_blocking(_render_rows)),
    web.get(SESSION + "/call", _make_blocking(_render_tool_call)),
    web.get(SESSION + "/find", show_matches),
    web.get(SESSION + "/text", show_text),
    web.get(SESSION + "/share", download_share),
    web.get(SESSION + "/live", stream_changes),
)
