"""The list of sessions: filters, sorting, search, and the family it heads."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.views.health import Level, health
from flightlog.views.session.outline import SessionSummary
from flightlog.web.desk import ACTIVE_MS, DESK, Desk, aside
from flightlog.web.family import Family
from flightlog.web.looking import Listing
from flightlog.web.pages import session, trajectory
from flightlog.web.searching import Hit

ROWS_SHOWN = 100
HITS_SHOWN = 30
WORDS_MIN = 3


class Asked(Struct, frozen=True):
    """What a person filters by."""

    q: str = ""
    project: str = ""
    model: str = ""
    show: str = ""
    sort: str = ""
    first: int = 0

    @property
    def any(self) -> bool:
        """Whether anything is filtered out."""
        return bool(self.q or self.project or self.model or self.show)

    @property
    def query(self) -> str:
        """The filters as part of an address."""
        named = {"q": self.q, "project": self.project, "model": self.model, "show": self.show, "sort": self.sort}
        return urlencode({name: value for name, value in named.items() if value})


class Totals(Struct, frozen=True):
    """What the list says about all sessions."""

    sessions: int
    projects: int
    pending: int


async def sessions(request: web.Request) -> web.StreamResponse:
    """Show the list as a page of its own."""
    return await _list(request, "sessions.html")


async def sessions_part(request: web.Request) -> web.StreamResponse:
    """Show the list alone, for a filter that changed or news; nothing when there is no news."""
    return await _list(request, "sessions_list.html")


async def sessions_more(request: web.Request) -> web.StreamResponse:
    """Show the next rows of the list."""
    return await _list(request, "sessions_rows.html")


async def words(request: web.Request) -> web.StreamResponse:
    """Show the sessions that say what was searched for."""
    desk, asked = request.app[DESK], asked_for(request)
    hits: list[Hit] = []
    if len(asked.q.strip()) >= WORDS_MIN:
        hits = await aside(_searched, desk, asked.q.strip())
    return await desk.answer("words.html", hits=hits, titles=desk.data.titles(), asked=asked)


def _searched(desk: Desk, typed: str) -> list[Hit]:
    try:
        return desk.data.search(typed, HITS_SHOWN)
    except Invalid:  # half a query, as it is being typed
        return []


def asked_for(request: web.Request) -> Asked:
    """Read the filters off an address."""
    said = {name: request.query.get(name, "")[:400] for name in ("q", "project", "model", "show", "sort")}
    first = request.query.get("first", "0")
    return Asked(**said, first=int(first) if first.isdecimal() and len(first) < 9 else 0)


def chosen(all_: Sequence[SessionSummary], asked: Asked, now_ms: int) -> list[SessionSummary]:
    """Filter and sort."""
    needle = asked.q.strip().lower()
    kept = [
        each
        for each in all_
        if (not asked.project or each.project == asked.project)
        and (not asked.model or asked.model in each.models)
        and (not needle or needle in _fields(each))
        and _shows(each, asked.show, now_ms)
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


def _fields(each: SessionSummary) -> str:
    return f"{each.title}\n{each.project}\n{each.branch}\n{each.session}\n{' '.join(each.models)}".lower()


def _shows(each: SessionSummary, show: str, now_ms: int) -> bool:
    if show == "active":
        return now_ms - each.changed_ms < ACTIVE_MS
    return show != "look" or health(each).level in {Level.LOOK, Level.BAD}


async def _list(request: web.Request, template: str) -> web.StreamResponse:
    desk, asked = request.app[DESK], asked_for(request)
    listing = await aside(desk.data.listing)
    now = desk.runtime.clock.now_ms()
    version = f"{listing.version}.{now // 20_000}"
    if request.query.get("have") == version:
        return web.Response(status=204)
    return await desk.answer(template, **_listed(listing, asked, now), version=version)


def _listed(listing: Listing, asked: Asked, now_ms: int) -> dict[str, Any]:
    kept = chosen(listing.sessions, asked, now_ms)
    return {
        "asked": asked,
        "query": asked.query,
        "shown": kept[asked.first : asked.first + ROWS_SHOWN],
        "more": max(len(kept) - asked.first - ROWS_SHOWN, 0),
        "next": asked.first + ROWS_SHOWN,
        "totals": _totals(listing),
        "projects": sorted({each.project for each in listing.sessions if each.project}),
        "models": sorted({model for each in listing.sessions for model in each.models}),
        "now_ms": now_ms,
        "active_ms": ACTIVE_MS,
    }


def _totals(listing: Listing) -> Totals:
    known = listing.sessions
    return Totals(
        len(known),
        len({each.project for each in known if each.project}),
        listing.pending,
    )


FAMILY = Family(
    "Sessions",
    "/",
    ("sessions", "session", "reading"),
    (
        web.get("/", sessions),
        web.get("/sessions", sessions_part),
        web.get("/sessions/more", sessions_more),
        web.get("/sessions/words", words),
        *session.ROUTES,
        *trajectory.ROUTES,
    ),
)
