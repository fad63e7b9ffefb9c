"""Dataset: how many training rows there are, what they are good for, and whether they are safe elsewhere."""

from typing import Any

from aiohttp import web

from flightlog.app.dataset import dataset_stats, find_dataset
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK
from flightlog.web.family import NavSection


async def show_dataset(request: web.Request) -> web.StreamResponse:
    """Show the rows of the repository the server was started in."""
    return await request.app[DESK].answer_with("dataset.html", _dataset_context)


def _dataset_context(runtime: Runtime) -> dict[str, Any]:
    place = find_dataset(runtime)
    return {
        "stats": dataset_stats(runtime, place) if place is not None else None,
        "where": str(place.tracked_dir) if place else "",
    }


FAMILY = NavSection("Dataset", "/dataset", ("dataset",), (web.get("/dataset", show_dataset),))
