"""What analysis says: findings and cache misses of all sessions, and the panels of one session."""

import asyncio
from typing import Any, TypeVar

from aiohttp import web

from flightlog.analysis.cache import compare_with_client, list_without_hits, total_outcomes
from flightlog.analysis.context_parts import KIND_ORDER
from flightlog.analysis.service import (
    BLOCKS_MAX,
    SessionAnalysis,
    group_misses,
    list_blocks,
    list_misses,
    read_client_count,
)
from flightlog.archive.archive import Archive
from flightlog.model.text import parse_since
from flightlog.usage.price_table import PRICES_FROM
from flightlog.web.context import CONTEXT, NavSection, WebContext, run_blocking
from flightlog.web.data import SelectValues
from flightlog.web.pages.home import finding_values
from flightlog.web.pages.session import HITS_MAX, SESSION, select_findings, session_id

T = TypeVar("T")
DAYS = {"7d": 7, "30d": 30, "all": 0}
PERIODS = {"7d": "7 days", "30d": "30 days", "all": "all time"}
FINDINGS_SHOWN = 200
MISSES_SHOWN = 50
COLUMNS_MAX = 160  # of the chart of a session's context


async def show_findings(request: web.Request) -> web.StreamResponse:
    """Show what went wrong in the sessions of a time, the most expensive first."""
    context = request.app[CONTEXT]
    period = request.query.get("since", "7d")
    period = period if period in PERIODS else "7d"
    values = await context.slow.wait_for(
        f"findings {period}", lambda: finding_values(context, DAYS[period], FINDINGS_SHOWN)
    )
    if values is None:
        return await _show_working(context, "flightlog session findings")
    return await context.render_response(
        "findings_all.html", period=period, periods=PERIODS, **values
    )


async def show_cache(request: web.Request) -> web.StreamResponse:
    """Show the cache misses of all sessions by cause, project, day and model."""
    context = request.app[CONTEXT]
    period = request.query.get("since", "30d")
    period = period if period in PERIODS else "30d"
    values = await context.slow.wait_for(f"cache {period}", lambda: _cache_context(context, period))
    if values is None:
        return await _show_working(context, "flightlog cache")
    return await context.render_response("cache.html", **values)


async def _show_working(context: WebContext, command: str) -> web.Response:
    return await context.render_response("working.html", command=command)


def _cache_context(context: WebContext, period: str) -> dict[str, Any]:
    zone = context.runtime.zone
    now_ms = context.runtime.clock.now_ms()
    since_ms = 0 if period == "all" else parse_since(period, now_ms, zone)
    analyses = context.data.analyses(since_ms)
    misses = list_misses(analyses, since_ms)
    costly = sorted(misses, key=lambda miss: (-(miss.extra_cost_usd or 0.0), miss.address))
    return {
        "period": period,
        "periods": PERIODS,
        "sessions": len(analyses),
        "known": sum(analysis.has_request_log for analysis in analyses),
        "totals": total_outcomes(misses),
        "groups": {
            by: group_misses(misses, by, analyses, zone)
            for by in ("cause", "project", "day", "model")
        },
        "misses": costly[:MISSES_SHOWN],
        "blocks": [block for block in list_blocks(analyses) if block.times_read],
        "misses_more": max(len(misses) - MISSES_SHOWN, 0),
        "prices": PRICES_FROM,
    }


async def show_session_findings(request: web.Request) -> web.StreamResponse:
    """Show what went wrong in a session."""
    findings = await _read_panel(request, select_findings)
    return await request.app[CONTEXT].render_response("findings.html", findings=findings)


async def show_cache_panel(request: web.Request) -> web.StreamResponse:
    """Show what the prompt cache did in a session."""
    values = await _read_panel(request, _cache_values)
    return await request.app[CONTEXT].render_response("cache_panel.html", **values)


async def show_context_panel(request: web.Request) -> web.StreamResponse:
    """Show what filled the context window of a session, and its most expensive blocks."""
    values = await _read_panel(request, _context_values)
    return await request.app[CONTEXT].render_response("context_panel.html", **values)


async def _read_panel(request: web.Request, select: SelectValues[T]) -> T:
    start = request.app[CONTEXT].data.start_analysis
    future = await run_blocking(start, session_id(request), select)
    # Shielded, because other requests may wait for the same values.
    return await asyncio.shield(asyncio.wrap_future(future))


def _cache_values(archive: Archive, detail: SessionAnalysis) -> dict[str, Any]:
    client = read_client_count(archive, detail.session)
    outcomes = list_without_hits(detail.cache)
    return {
        "has_request_log": detail.has_request_log,
        "outcomes": outcomes[:HITS_MAX],
        "is_used": bool(outcomes),
        "totals": total_outcomes(detail.cache),
        "client": client,
        "differences": compare_with_client(detail.cache, client)[1] if client else (),
    }


def _context_values(_: Archive, detail: SessionAnalysis) -> dict[str, Any]:
    measured = detail.context
    requests = [request for request in measured.requests if not request.thread]
    # A long session has one column for several requests, that of the longest prompt.
    step = -(-len(requests) // COLUMNS_MAX) or 1
    groups = [requests[at : at + step] for at in range(0, len(requests), step)]
    fullest = [max(group, key=lambda request: request.input_tokens) for group in groups]
    sums = [measured.sum_kinds(request) for request in fullest]
    return {
        "columns": list(zip(fullest, sums, strict=True)),
        "kinds": [kind for kind in KIND_ORDER if any(kind in column for column in sums)],
        "peak": max(fullest, key=lambda request: request.input_tokens, default=None),
        "last": requests[-1] if requests else None,
        "requests": len(requests),
        "blocks": [block for block in measured.blocks[:BLOCKS_MAX] if block.times_read],
    }


FINDINGS_SECTION = NavSection(
    "Findings",
    "/findings",
    ("findings_all", "working"),
    (
        web.get("/findings", show_findings),
        web.get(SESSION + "/findings", show_session_findings),
        web.get(SESSION + "/cache", show_cache_panel),
        web.get(SESSION + "/context", show_context_panel),
    ),
    "What went wrong in your sessions, with the steps that show it and their cost.",
)
CACHE_SECTION = NavSection(
    "Cache",
    "/cache",
    ("cache",),
    (web.get("/cache", show_cache),),
    "Where the prompt cache was missed, why, and what that cost.",
)
