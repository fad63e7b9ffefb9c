"""Search over everything, and the trace: from one thing to all the others."""

import re
from typing import Any
from urllib.parse import quote

from aiohttp import web

from flightlog.model.addresses import KINDS, parse_address
from flightlog.model.errors import Invalid
from flightlog.tracing.providers import TraceContext
from flightlog.tracing.search import search_project as everywhere
from flightlog.tracing.trace import Trace
from flightlog.tracing.trace import build_trace as follow
from flightlog.web.context import DESK, NavSection, WebContext, run_blocking

SHOWN = 50
WORDS_MIN = 2
_SESSION = re.compile(r"/session_(\d+)(?:_r(\d+))?")
BEHIND = "what sessions said last: another command is indexing them. Search again in a moment"
KINDS_SHOWN = ("run", "task", "finding", "issue")


async def show_search(request: web.Request) -> web.StreamResponse:
    """Show what has the words: sessions, runs, loops, findings, issues."""
    desk = request.app[DESK]
    return await desk.render_response(
        "search.html", **await run_blocking(_search_context, desk, request.query.get("q", "")[:400].strip())
    )


async def show_trace(request: web.Request) -> web.StreamResponse:
    """Show one thing and all that belongs to it."""
    desk = request.app[DESK]
    written = request.query.get("address", "")[:400].strip()
    return await desk.render_response("trace.html", **await run_blocking(_trace_context, desk, written))


def _search_context(desk: WebContext, typed: str) -> dict[str, Any]:
    if len(typed) < WORDS_MIN:
        return {"q": typed, "asked": False, "sessions": [], "titled": [], "kinds": [], "left_out": (), "any": False}
    listing = desk.data.listing().sessions
    needle = typed.lower()
    titled = [each for each in listing if needle in f"{each.title}\n{each.project}\n{each.session}".lower()]
    try:
        hits = desk.data.search(typed, SHOWN)
    except Invalid:
        hits = []
    found = everywhere(desk.runtime, typed)
    kinds = [(kind, [hit for hit in found.hits if hit.kind == kind]) for kind in KINDS_SHOWN]
    return {
        "q": typed,
        "asked": True,
        "titled": titled[:SHOWN],
        "sessions": hits,
        "titles": desk.data.titles(),
        "kinds": [(kind, own) for kind, own in kinds if own],
        "left_out": (*([BEHIND] if desk.data.is_behind else []), *found.left_out),
        "any": bool(titled or hits or found.hits),
    }


def _trace_context(desk: WebContext, written: str) -> dict[str, Any]:
    if not written:
        return {"told": None, "kinds": KINDS}
    told = follow(written, TraceContext(desk.runtime, archive=desk.data.current_archive()))
    shown = [(kind, told.items_of_kind(kind)) for kind in KINDS if kind != told.start.kind or told.items_of_kind(kind)]
    named = [(told.start.kind, told.start.address), *((each.kind, each.address) for each in told.found)]
    opens = {address: page_address(desk, kind, address) for kind, address in named}
    return {
        "told": told,
        "shown": shown,
        "most": SHOWN,
        "opens": opens,
        "kinds": KINDS,
        "prompt": _first_turn_title(told),
    }


def page_address(desk: WebContext, kind: str, address: str) -> str:
    """The page that shows a thing itself; empty where it has none of its own."""
    if kind in {"session", "turn", "step"}:
        at = parse_address(address)
        if at.session not in desk.data.current_archive().recordings:
            return ""
        place = f"{at.turn}.{at.step}" if at.step else f"{at.turn}" if at.turn else ""
        lane = f"lane={at.lane}&" if at.lane else ""
        query = f"?{lane}at={place}#{place}" if place else f"?{lane}".rstrip("?&")
        return f"/sessions/{at.session}{query}"
    if kind == "task":
        return f"/loops/{address.partition('/')[0]}"
    run = f"/lab/runs/{quote(address.partition('/')[0])}" if "/" in address else ""
    places = {"run": _run_page_address(run, address), "request": run, "sample": f"{run}/samples"}
    places |= {"finding": "/retro", "issue": f"/retro/issues/{address}", "row": "/dataset"}
    return places.get(kind, "")


def _run_page_address(run: str, address: str) -> str:
    """`RUN/session_02_r01` is called `2r1` in addresses of the lab's pages."""
    named = _SESSION.search(address)
    replicate = f"r{int(named[2])}" if named and named[2] else ""
    return f"{run}/{int(named[1])}{replicate}" if named else run


def _first_turn_title(told: Trace) -> str:
    return next((each.title for each in told.items_of_kind("turn")), "")


SEARCH_SECTION = NavSection(
    "Search", "/search", ("search", "trace"), (web.get("/search", show_search), web.get("/trace", show_trace))
)
