"""The list of sessions: filters, sorting, search, and the family it heads."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.views.overview import HealthLevel, judge_health
from flightlog.views.session.outline import SessionSummary
from flightlog.web.context import ACTIVE_MS, DESK, NavSection, WebContext, run_blocking
from flightlog.web.pages import session
from flightlog.web.session_list import RowMatch, SessionListing

ROWS_SHOWN = 100
HITS_SHOWN = 30
WORDS_MIN = 3


class SessionFilter(Struct, frozen=True):
    """What a person filters by."""

    q: str = ""
    project: str = ""
    model: str = ""
    show: str = ""
    sort: str = ""
    first: int = 0

    @property
    def is_filtered(self) -> bool:
        """Whether anything is filtered out."""
        return bool(self.q or self.project or self.model or self.show)

    @property
    def query_string(self) -> str:
        """The filters as part of an address."""
        named = {"q": self.q, "project": self.project, "model": self.model, "show": self.show, "sort": self.sort}
        return urlencode({name: value for name, value in named.items() if value})


class ListTotals(Struct, frozen=True):
    """What the list says about all sessions."""

    sessions: int
    projects: int
    pending: int


async def show_sessions(request: web.Request) -> web.StreamResponse:
    """Show the list as a page of its own."""
    return await _render_list(request, "sessions.html")


async def show_sessions_part(request: web.Request) -> web.StreamResponse:
    """Show the list alone, for a filter that changed or news; nothing when there is no news."""
    return await _render_list(request, "sessions_list.html")


async def show_more_sessions(request: web.Request) -> web.StreamResponse:
    """Show the next rows of the list."""
    return await _render_list(request, "sessions_rows.html")


async def show_word_matches(request: web.Request) -> web.StreamResponse:
    """Show the sessions that say what was searched for."""
    desk, asked = request.app[DESK], parse_filters(request)
    hits: list[RowMatch] = []
    if len(asked.q.strip()) >= WORDS_MIN:
        hits = await run_blocking(_search_or_nothing, desk, asked.q.strip())
    return await desk.render_response("words.html", hits=hits, titles=desk.data.titles(), asked=asked)


def _search_or_nothing(desk: WebContext, typed: str) -> list[RowMatch]:
    try:
        return desk.data.search(typed, HITS_SHOWN)
    except Invalid:  # half a query, as it is being typed
        return []


def parse_filters(request: web.Request) -> SessionFilter:
    """Read the filters off an address."""
    said = {name: request.query.get(name, "")[:400] for name in ("q", "project", "model", "show", "sort")}
    first = request.query.get("first", "0")
    return SessionFilter(**said, first=int(first) if first.isdecimal() and len(first) < 9 else 0)


def filter_sessions(all_: Sequence[SessionSummary], asked: SessionFilter, now_ms: int) -> list[SessionSummary]:
    """Filter and sort."""
    needle = asked.q.strip().lower()
    kept = [
        each
        for each in all_
        if (not asked.project or each.project == asked.project)
        and (not asked.model or asked.model in each.models)
        and (not needle or needle in _searchable_text(each))
        and _matches_show_filter(each, asked.show, now_ms)
    ]
    match asked.sort:
        case "cost":
            kept.sort(key=lambda each: -(each.cost.usd or 0.0))
        case "steps":
            kept.sort(key=lambda each: -each.steps)
        case "failed":
            kept.sort(key=lambda each: -each.failed_calls)
        case _:
            pass
    return kept


def _searchable_text(each: SessionSummary) -> str:
    return f"{each.title}\n{each.project}\n{each.branch}\n{each.session}\n{' '.join(each.models)}".lower()


def _matches_show_filter(each: SessionSummary, show: str, now_ms: int) -> bool:
    if show == "active":
        return now_ms - each.changed_ms < ACTIVE_MS
    return show != "look" or judge_health(each).level in {HealthLevel.LOOK, HealthLevel.BAD}


async def _render_list(request: web.Request, template: str) -> web.StreamResponse:
    desk, asked = request.app[DESK], parse_filters(request)
    listing = await run_blocking(desk.data.listing)
    now = desk.runtime.clock.now_ms()
    version = f"{listing.version}.{now // 20_000}"
    if request.query.get("have") == version:
        return web.Response(status=204)
    return await desk.render_response(template, **_list_context(listing, asked, now), version=version)


def _list_context(listing: SessionListing, asked: SessionFilter, now_ms: int) -> dict[str, Any]:
    kept = filter_sessions(listing.sessions, asked, now_ms)
    return {
        "asked": asked,
        "query": asked.query_string,
        "shown": kept[asked.first : asked.first + ROWS_SHOWN],
        "more": max(len(kept) - asked.first - ROWS_SHOWN, 0),
        "next": asked.first + ROWS_SHOWN,
        "totals": _count_totals(listing),
        "projects": sorted({each.project for each in listing.sessions if each.project}),
        "models": sorted({model for each in listing.sessions for model in each.models}),
        "now_ms": now_ms,
        "active_ms": ACTIVE_MS,
    }


def _count_totals(listing: SessionListing) -> ListTotals:
    known = listing.sessions
    return ListTotals(
        len(known),
        len({each.project for each in known if each.project}),
        listing.pending,
    )


SESSIONS_SECTION = NavSection(
    "Sessions",
    "/",
    ("sessions", "session", "reading"),
    (
        web.get("/", show_sessions),
        web.get("/sessions", show_sessions_part),
        web.get("/sessions/more", show_more_sessions),
        web.get("/sessions/words", show_word_matches),
        *session.SESSION_ROUTES,
        *session.TRAJECTORY_ROUTES,
    ),
)
