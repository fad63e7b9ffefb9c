"""Search over everything, and the trace: from one thing to all the others."""

import re
from typing import Any
from urllib.parse import quote

from aiohttp import web

from flightlog.app.everywhere import search as everywhere
from flightlog.app.tracing.ground import Ground
from flightlog.app.tracing.trace import Trace
from flightlog.app.tracing.trace import trace as follow
from flightlog.model.address import parse
from flightlog.model.errors import Invalid
from flightlog.model.links import KINDS
from flightlog.web.desk import DESK, Desk, aside
from flightlog.web.family import Family

SHOWN = 50
WORDS_MIN = 2
_SESSION = re.compile(r"/session_(\d+)(?:_r(\d+))?")
BEHIND = "what sessions said last: another command is indexing them. Search again in a moment"
KINDS_SHOWN = ("run", "task", "finding", "issue")


async def search(request: web.Request) -> web.StreamResponse:
    """Show what has the words: sessions, runs, loops, findings, issues."""
    desk = request.app[DESK]
    return await desk.answer("search.html", **await aside(_found, desk, request.query.get("q", "")[:400].strip()))


async def trace(request: web.Request) -> web.StreamResponse:
    """Show one thing and all that belongs to it."""
    desk = request.app[DESK]
    written = request.query.get("address", "")[:400].strip()
    return await desk.answer("trace.html", **await aside(_traced, desk, written))


def _found(desk: Desk, typed: str) -> dict[str, Any]:
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


def _traced(desk: Desk, written: str) -> dict[str, Any]:
    if not written:
        return {"told": None, "kinds": KINDS}
    told = follow(written, Ground(desk.runtime, archive=desk.data.archive()))
    shown = [(kind, told.of(kind)) for kind in KINDS if kind != told.start.kind or told.of(kind)]
    named = [(told.start.kind, told.start.address), *((each.kind, each.address) for each in told.found)]
    opens = {address: opened(desk, kind, address) for kind, address in named}
    return {"told": told, "shown": shown, "most": SHOWN, "opens": opens, "kinds": KINDS, "prompt": _prompt(told)}


def opened(desk: Desk, kind: str, address: str) -> str:
    """The page that shows a thing itself; empty where it has none of its own."""
    if kind in {"session", "turn", "step"}:
        at = parse(address)
        if at.session not in desk.data.archive().recordings:
            return ""
        place = f"{at.turn}.{at.step}" if at.step else f"{at.turn}" if at.turn else ""
        lane = f"lane={at.lane}&" if at.lane else ""
        query = f"?{lane}at={place}#{place}" if place else f"?{lane}".rstrip("?&")
        return f"/sessions/{at.session}{query}"
    if kind == "task":
        return f"/loops/{address.partition('/')[0]}"
    run = f"/lab/runs/{quote(address.partition('/')[0])}" if "/" in address else ""
    places = {"run": _of_run(run, address), "request": run, "sample": f"{run}/samples"}
    places |= {"finding": "/retro", "issue": f"/retro/issues/{address}", "row": "/dataset"}
    return places.get(kind, "")


def _of_run(run: str, address: str) -> str:
    """`RUN/session_02_r01` is called `2r1` in addresses of the lab's pages."""
    named = _SESSION.search(address)
    replicate = f"r{int(named[2])}" if named and named[2] else ""
    return f"{run}/{int(named[1])}{replicate}" if named else run


def _prompt(told: Trace) -> str:
    return next((each.title for each in told.of("turn")), "")


FAMILY = Family("Search", "/search", ("search", "trace"), (web.get("/search", search), web.get("/trace", trace)))
