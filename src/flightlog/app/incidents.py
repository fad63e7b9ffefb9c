"""What every room of a project found wrong, asked for one room after another.

The rooms do not know each other: each tells `model.Incident`s, and retro is given them here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from flightlog.app.dataset import looked_at
from flightlog.app.lab import open_books
from flightlog.app.live import look_here
from flightlog.app.loop_look import root
from flightlog.dataset import check as dataset
from flightlog.lab import incidents as lab
from flightlog.live import incidents as live
from flightlog.loop.look import incidents as loop
from flightlog.loop.run.where import JOURNAL, sessions
from flightlog.model.damage import Incident, IncidentRoom
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime

RUNS = "runs"


def incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    """Yield the incidents of loop sessions, lab runs, running sessions and the dataset of a project."""
    rooms: dict[IncidentRoom, Callable[[Runtime, Path], Iterator[Incident]]]
    rooms = {"loop": _loop, "lab": _lab, "live": _live, "dataset": _dataset}
    for room, found_in in rooms.items():
        try:
            yield from found_in(runtime, project)
        except FlightlogError:
            yield Incident("room cannot be read", runtime.clock.now_ms(), room)


def _loop(runtime: Runtime, project: Path) -> Iterator[Incident]:
    top = root(runtime, project)
    for directory in sessions(top) if top.is_dir() else ():
        if (directory / JOURNAL).is_file():
            yield from loop.incidents(directory)


def _lab(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for book in open_books(runtime, project / RUNS) if (project / RUNS).is_dir() else ():
        yield from lab.incidents(book.name, book.state)


def _live(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for seen in look_here(runtime):
        here = [each for each in seen.state.sessions if Path(each.project_path).is_relative_to(project)]
        yield from live.incidents(here, seen.broken, seen.now_ms)


def _dataset(runtime: Runtime, project: Path) -> Iterator[Incident]:
    place = looked_at(runtime, project) if (project / ".git").exists() else None
    if place is not None:
        yield from dataset.incidents(dataset.check(place), runtime.clock.now_ms())
