"""Dataset: how many training rows there are, what they are good for, and whether they are safe elsewhere."""

from typing import Any

from aiohttp import web

from flightlog.app.dataset import looked_at, stats_here
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK
from flightlog.web.family import Family


async def dataset(request: web.Request) -> web.StreamResponse:
    """Show the rows of the repository the server was started in."""
    return await request.app[DESK].answer_with("dataset.html", _looked)


def _looked(runtime: Runtime) -> dict[str, Any]:
    place = looked_at(runtime)
    return {
        "stats": stats_here(runtime, place) if place is not None else None,
        "where": str(place.tracked) if place else "",
    }


FAMILY = Family("Dataset", "/dataset", ("dataset",), (web.get("/dataset", dataset),))
