"""Privacy: which sessions hold what looks like secrets, what the repository may publish, who may see which file."""

from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.consent import repository_target
from flightlog.privacy.tiers import LAYOUTS
from flightlog.web.desk import DESK, WebContext, run_blocking
from flightlog.web.family import NavSection

SEARCHED_BYTES_MAX = 32 << 20
SHOWN = 200


async def show_privacy(request: web.Request) -> web.StreamResponse:
    """Show what is private here, and what would leave."""
    desk = request.app[DESK]
    return await desk.render_response("privacy.html", **await run_blocking(_privacy_context, desk))


def _privacy_context(desk: WebContext) -> dict[str, Any]:
    runtime = desk.runtime
    archive = desk.data.current_archive()
    counts = archive.count_secrets(SEARCHED_BYTES_MAX)
    holding = [(session, rules) for session, rules in counts.items() if rules]
    here = repository_target(runtime, Path(runtime.cwd))
    return {
        "holding": holding[:SHOWN],
        "more": max(len(holding) - SHOWN, 0),
        "looked": len(counts),
        "not_looked": len(archive.recordings) - len(counts),
        "titles": desk.data.titles(),
        "allows": here.allows,
        "trusted": here.trusted,
        "layouts": LAYOUTS,
    }


FAMILY = NavSection("Privacy", "/privacy", ("privacy",), (web.get("/privacy", show_privacy),))
