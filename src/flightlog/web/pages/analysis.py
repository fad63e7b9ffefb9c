"""What analysis says: findings and cache misses of all sessions, and the panels of one session."""

import asyncio
from functools import partial
from typing import Any

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
from flightlog.web.auth import Handler
from flightlog.web.context import CONTEXT, NavSection, WebContext, run_blocking
from flightlog.web.data import SelectValues
from flightlog.web.pages.home import finding_values
from flightlog.web.pages.session import HITS_MAX, SESSION, session_id

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
    work = partial(finding_values, context, DAYS[period], FINDINGS_SHOWN)
    values = await context.slow.wait_for(f"findings {period}", work)
    if values is None:
        return await _show_working(context, "flightlog session findings")
    values |= {"period": period, "periods": PERIODS}
    return await context.render_response("findings_all.html", **values)


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
    since_ms = 0 if period == "all" else parse_since(period, context.runtime.clock.now_ms(), zone)
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


def _make_panel(template: str, select: SelectValues[dict[str, Any]]) -> Handler:
    """Return a handler that shows a part of a session's analysis."""

    async def show(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        future = await run_blocking(context.data.start_analysis, session_id(request), select)
        # Shielded, because other requests may wait for the same values.
        values = await asyncio.shield(asyncio.wrap_future(future))
        return await context.render_response(template, **values)

    return show


def _finding_values(_: Archive, detail: SessionAnalysis) -> dict[str, Any]:
    return {"findings": detail.findings}


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
        web.get(SESSION + "/findings", _make_panel("findings.html", _finding_values)),
        web.get(SESSION + "/cache", _make_panel("cache_panel.html", _cache_values)),
        web.get(SESSION + "/context", _make_panel("context_panel.html", _context_values)),
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
