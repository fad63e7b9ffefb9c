"""The search and trace pages."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from aiohttp import web
from msgspec import Struct

from flightlog.model.addresses import KINDS, parse_address
from flightlog.model.errors import Invalid
from flightlog.tracing.providers import TraceContext, search_project
from flightlog.tracing.trace import build_trace
from flightlog.web.context import CONTEXT, NavSection, WebContext, make_page
from flightlog.web.session_list import SessionMatches

SHOWN = 50  # results of one kind
WORDS_MIN = 2
READ_BYTES_MAX = 2 << 20  # a tenth of a second, to say in which step a word is
_FILTER = re.compile(
    r'-?\b(?:tool|model|file|project|since|cost|agent):(?:"[^"]*"|\S+)', re.IGNORECASE
)
_ADDRESS = re.compile(r"[\w#@./:-]{4,}")  # what a person may want to trace
SUGGESTIONS = ("since:7d", "since:30d", "tool:bash", "tool:edit", "cost:>1")
_SESSION = re.compile(r"/session_(\d+)(?:_r(\d+))?")
BEHIND = "the newest records, because another command is indexing them; search again in a moment"
KINDS_SHOWN = ("run", "task", "finding", "issue")


class FilterChip(Struct, frozen=True):
    """A filter of the query, or one to add, and the query that results from a click."""

    text: str
    query: str
    is_set: bool


def list_chips(query: str, agents: Iterable[str]) -> list[FilterChip]:
    """Return the filters of a query, to be taken out, then common ones that it does not have."""
    parts = [match[0] for match in _FILTER.finditer(query)]
    chips = [FilterChip(part, " ".join(query.replace(part, "", 1).split()), True) for part in parts]
    names = {part.lstrip("-").partition(":")[0].lower() for part in parts}
    offered = [*SUGGESTIONS, *(f"agent:{agent}" for agent in agents)]
    added = (text for text in offered if text.partition(":")[0] not in names)
    return chips + [FilterChip(text, f"{query} {text}".strip(), False) for text in added]


def _search_context(request: web.Request) -> dict[str, Any]:
    """Return the sessions, runs, loops, findings and issues that match."""
    context, query = request.app[CONTEXT], request.query.get("q", "")[:400].strip()
    agents = sorted({summary.agent for summary in context.data.listing().sessions})
    chips = list_chips(query, agents if len(agents) > 1 else ())
    is_address = bool(_ADDRESS.fullmatch(query)) and not _FILTER.search(query)
    return {"chips": chips, "is_address": is_address, **_search_values(context, query)}


def _search_values(context: WebContext, query: str) -> dict[str, Any]:
    if len(query) < WORDS_MIN:
        empty = {"by_title": [], "found": SessionMatches([], 0), "error": None, "kinds": []}
        return {"q": query, "searched": False, **empty, "omissions": (), "any": False}
    listing = context.data.listing().sessions
    needle = query.lower()
    texts = ((one, f"{one.title}\n{one.project}\n{one.session}".lower()) for one in listing)
    titled = [summary for summary, text in texts if needle in text]
    error = None
    try:
        found = context.data.search(query, SHOWN, READ_BYTES_MAX)
    except Invalid as invalid:
        found, error = SessionMatches([], 0), invalid
    results = search_project(context.runtime, query)
    kinds = [(kind, [hit for hit in results.hits if hit.kind == kind]) for kind in KINDS_SHOWN]
    return {
        "q": query,
        "searched": True,
        "by_title": titled[:SHOWN],
        "found": found,
        "error": error,
        "titles": context.data.titles(),
        "kinds": [(kind, hits_of_kind) for kind, hits_of_kind in kinds if hits_of_kind],
        "omissions": (*([BEHIND] if context.data.is_behind else []), *results.omissions),
        "any": bool(titled or found.matches or results.hits or error),
    }


def _trace_context(request: web.Request) -> dict[str, Any]:
    """Return an item and everything linked to it."""
    context, address = request.app[CONTEXT], request.query.get("address", "")[:400].strip()
    if not address:
        return {"trace": None, "kinds": KINDS}
    archive = context.data.current_archive()
    trace = build_trace(address, TraceContext(context.runtime, archive=archive))
    kinds = (kind for kind in KINDS if kind != trace.start.kind or trace.items_of_kind(kind))
    shown = [(kind, trace.items_of_kind(kind)) for kind in kinds]
    start = (trace.start.kind, trace.start.address)
    addresses = [start, *((item.kind, item.address) for item in trace.links)]
    return {
        "trace": trace,
        "shown": shown,
        "limit": SHOWN,
        "opens": {address: page_address(context, kind, address) for kind, address in addresses},
        "kinds": KINDS,
        "prompt": next((item.title for item in trace.items_of_kind("turn")), ""),
    }


def page_address(context: WebContext, kind: str, address: str) -> str:
    """Return the page that shows an item, or "" if there is none."""
    if kind in {"session", "turn", "step"}:
        parsed = parse_address(address)
        if parsed.session not in context.data.current_archive().recordings:
            return ""
        row = ".".join(str(part) for part in (parsed.turn, parsed.step) if part)
        subagent = f"subagent={parsed.subagent}&" if parsed.subagent else ""
        query = f"?{subagent}at={row}#{row}" if row else f"?{subagent}".rstrip("?&")
        return f"/sessions/{parsed.session}{query}"
    if kind == "task":
        return f"/loops/{address.partition('/')[0]}"
    run = f"/lab/runs/{quote(address.partition('/')[0])}" if "/" in address else ""
    pages = {"run": _run_page_address(run, address), "request": run, "sample": f"{run}/samples"}
    pages |= {"finding": "/retro", "issue": f"/retro/issues/{address}", "row": "/dataset"}
    return pages.get(kind, "")


def _run_page_address(run: str, address: str) -> str:
    """Return the lab page of a session; `RUN/session_02_r01` is `2r1` in page addresses."""
    match = _SESSION.search(address)
    replicate = f"r{int(match[2])}" if match and match[2] else ""
    return f"{run}/{int(match[1])}{replicate}" if match else run


SEARCH_SECTION = NavSection(
    "Search",
    "/search",
    ("search",),
    (web.get("/search", make_page("search.html", _search_context)),),
    "Words, tools, files and times in all sessions, runs, loops, findings and issues.",
)
TRACE_SECTION = NavSection(
    "Trace",
    "/trace",
    ("trace",),
    (web.get("/trace", make_page("trace.html", _trace_context)),),
    "Everything that belongs to a session, step, commit, row, task, finding or issue.",
)
