"""The session list with filters, sorting and search; trajectories to download."""

import io
import zipfile
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from flightlog.agents import agent_label, agent_names
from flightlog.archive.archive import Archive
from flightlog.model.errors import Invalid
from flightlog.model.usage import DAY_MS
from flightlog.views.atif.writer import MAIN, build_trajectory
from flightlog.views.overview import HealthLevel, judge_health
from flightlog.views.session.outline import SessionSummary
from flightlog.web.auth import Handler
from flightlog.web.context import ACTIVE_MS, CONTEXT, NavSection, run_blocking
from flightlog.web.pages import session
from flightlog.web.session_list import SessionListing, SessionMatches

ROWS_SHOWN = 100  # more rows are loaded while scrolling
HITS_SHOWN = 30
WORDS_MIN = 3  # shorter words match nearly every session


class SessionFilter(Struct, frozen=True):
    """The filters of the session list."""

    q: str = ""
    project: str = ""
    model: str = ""
    agent: str = ""
    show: str = ""
    sort: str = ""
    first: int = 0

    @property
    def is_filtered(self) -> bool:
        """Return whether any filter is set."""
        return bool(self.q or self.project or self.model or self.agent or self.show)

    @property
    def query_string(self) -> str:
        """Return the filters as a query string."""
        return urlencode(
            {name: value for name, value in asdict(self).items() if value and name != "first"}
        )


class ListTotals(Struct, frozen=True):
    """Counts above the session list."""

    sessions: int
    projects: int
    pending: int
    empty: int
    agents: tuple[str, ...]
    first_ms: int
    last_ms: int


async def show_word_matches(request: web.Request) -> web.StreamResponse:
    """Show the sessions whose content matches the search."""
    context, filters = request.app[CONTEXT], parse_filters(request)
    found, error = SessionMatches([], 0), None
    if len(filters.q.strip()) >= WORDS_MIN:
        try:
            found = await run_blocking(context.data.search, filters.q.strip(), HITS_SHOWN)
        except Invalid as invalid:
            error = invalid
    return await context.render_response(
        "word_matches.html", found=found, error=error, titles=context.data.titles(), filters=filters
    )


def parse_filters(request: web.Request) -> SessionFilter:
    """Return the filters of a request."""
    names = ("q", "project", "model", "agent", "show", "sort")
    values = {name: request.query.get(name, "")[:400] for name in names}
    first = request.query.get("first", "0")
    return SessionFilter(**values, first=int(first) if first.isdecimal() and len(first) < 9 else 0)


def filter_sessions(
    sessions: Sequence[SessionSummary], filters: SessionFilter, now_ms: int
) -> list[SessionSummary]:
    """Return the sessions that match, sorted."""
    needle = filters.q.strip().lower()
    matches = [
        session
        for session in sessions
        if (not filters.project or session.project == filters.project)
        and (not filters.model or filters.model in session.models)
        and filters.agent in {"", session.agent}
        and (not needle or needle in _searchable_text(session))
        and _matches_show_filter(session, filters.show, now_ms)
        and (filters.show == "empty" or not session.is_empty)
    ]
    match filters.sort:
        case "cost":
            matches.sort(key=lambda session: -(session.cost_usd or 0.0))
        case "steps":
            matches.sort(key=lambda session: -session.steps)
        case "failed":
            matches.sort(key=lambda session: -session.failed_tool_calls)
    return matches


def _searchable_text(summary: SessionSummary) -> str:
    texts = (summary.title, summary.project, summary.branch, summary.session)
    return "\n".join((*texts, agent_label(summary.agent), *summary.models)).lower()


def _matches_show_filter(summary: SessionSummary, show: str, now_ms: int) -> bool:
    if show == "empty":
        return summary.is_empty
    if show in {"active", "week"}:
        return now_ms - (summary.ended_ms or 0) < (ACTIVE_MS if show == "active" else 7 * DAY_MS)
    return show != "look" or judge_health(summary).level in {HealthLevel.LOOK, HealthLevel.BAD}


def _make_list_page(template: str) -> Handler:
    """Return a handler that shows the list in `template`; 204 if a page has this version."""

    async def show(request: web.Request) -> web.StreamResponse:
        context, filters = request.app[CONTEXT], parse_filters(request)
        listing = await run_blocking(context.data.listing)
        now = context.runtime.clock.now_ms()
        version = f"{listing.version}.{now // 20_000}"
        if request.query.get("have") == version:
            return web.Response(status=204)
        values = _list_context(listing, filters, now)
        is_part = template == "sessions_list.html"
        return await context.render_response(template, **values, version=version, is_part=is_part)

    return show


def _list_context(listing: SessionListing, filters: SessionFilter, now_ms: int) -> dict[str, Any]:
    matches = filter_sessions(listing.sessions, filters, now_ms)
    return {
        "filters": filters,
        "query": filters.query_string,
        "shown": matches[filters.first : filters.first + ROWS_SHOWN],
        "more": max(len(matches) - filters.first - ROWS_SHOWN, 0),
        "next": filters.first + ROWS_SHOWN,
        "totals": _count_totals(listing),
        "projects": sorted({summary.project for summary in listing.sessions if summary.project}),
        "models": sorted(
            {model for summary in listing.sessions for model in summary.models if model}
        ),
        "agents": [
            (name, agent_label(name)) for name in sorted({s.agent for s in listing.sessions})
        ],
        "known_agents": [agent_label(name) for name in agent_names()],
        "now_ms": now_ms,
        "active_ms": ACTIVE_MS,
    }


def _count_totals(listing: SessionListing) -> ListTotals:
    sessions = [session for session in listing.sessions if not session.is_empty]
    return ListTotals(
        len(sessions),
        len({session.project for session in sessions if session.project}),
        listing.pending,
        len(listing.sessions) - len(sessions),
        tuple(agent_label(name) for name in sorted({session.agent for session in sessions})),
        min((session.started_ms for session in sessions if session.started_ms), default=0),
        max((session.ended_ms for session in sessions if session.ended_ms), default=0),
    )


async def download_trajectory(request: web.Request) -> web.StreamResponse:
    """Send the trajectory of a session, zipped if it has subagents or images."""
    archive = request.app[CONTEXT].data.current_archive()
    name = archive.find_recording(request.match_info["session"]).session
    body, ending, media_type = await run_blocking(_pack_files, archive, name)
    headers = {"Content-Disposition": f'attachment; filename="trajectory-{name[:8]}.{ending}"'}
    return web.Response(body=body, content_type=media_type, headers=headers)


def _pack_files(archive: Archive, name: str) -> tuple[bytes, str, str]:
    bundle = build_trajectory(archive.read_session(name), contexts=archive.thread_contexts(name))
    files = dict(bundle.iter_files())
    if len(files) == 1:
        return files[MAIN], "json", "application/json"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as pack:
        for path, body in files.items():
            pack.writestr(zipfile.ZipInfo(path), body, zipfile.ZIP_DEFLATED)
    return packed.getvalue(), "zip", "application/zip"


SESSIONS_SECTION = NavSection(
    "Sessions",
    "/",
    ("sessions", "session", "reading"),
    (
        web.get("/", _make_list_page("sessions.html")),
        web.get("/sessions", _make_list_page("sessions_list.html")),
        web.get("/sessions/more", _make_list_page("sessions_rows.html")),
        web.get("/sessions/words", show_word_matches),
        *session.SESSION_ROUTES,
        web.get(session.SESSION + "/trajectory", download_trajectory),
    ),
)
