"""Dataset: how many training rows there are, what they are good for, and whether they are safe elsewhere."""

from typing import Any

from aiohttp import web

from flightlog.app.dataset import looked_at, stats_here
from flightlog.web.desk import DESK, aside
from flightlog.web.family import Family


async def dataset(request: web.Request) -> web.StreamResponse:
    """Show the rows of the repository the server was started in."""
    return await request.app[DESK].answer("dataset.html", **await aside(_looked))


def _looked() -> dict[str, Any]:
    place = looked_at()
    return {"stats": stats_here(place) if place is not None else None, "where": str(place.tracked) if place else ""}


FAMILY = Family("Dataset", "/dataset", ("dataset",), (web.get("/dataset", dataset),))
