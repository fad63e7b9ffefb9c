"""Looking back: the findings of the last analysis with their evidence, and the issues by rank. Changes nothing."""

from typing import Any

from aiohttp import web

from flightlog.app.retro import look
from flightlog.web.desk import DESK, aside
from flightlog.web.family import Family

FINDINGS_SHOWN = 200


async def retro(request: web.Request) -> web.StreamResponse:
    """Show what was found and what is being done about it."""
    return await request.app[DESK].answer("retro.html", **await aside(_retro))


def _retro() -> dict[str, Any]:
    analysis, board = look()
    patterns = analysis.patterns if analysis else ()
    issues = sorted(board.issues.values(), key=lambda each: (-each.priority_score, each.id))
    return {
        "meta": analysis.meta if analysis else None,
        "patterns": patterns[:FINDINGS_SHOWN],
        "more": max(0, len(patterns) - FINDINGS_SHOWN),
        "recorded": {"friction", "outcome", "cost", "failure again", "prompts that work"},
        "issues": issues,
        "clusters": board.clusters,
    }


FAMILY = Family("Retro", "/retro", ("retro",), (web.get("/retro", retro),))
