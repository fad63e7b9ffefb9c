"""What every room of a project found wrong, asked for one room after another.

The rooms do not know each other: each tells `model.Incident`s, and retro is given them here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from flightlog.app.dataset import find_dataset
from flightlog.app.lab import open_runs
from flightlog.app.live import read_last_states
from flightlog.app.loop_look import loops_dir
from flightlog.dataset import check as dataset
from flightlog.lab import incidents as lab
from flightlog.live import incidents as live
from flightlog.loop.look import incidents as loop
from flightlog.loop.run.where import JOURNAL, iter_session_dirs
from flightlog.model.damage import Incident, IncidentRoom
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime

RUNS = "runs"


def iter_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    """Yield the incidents of loop sessions, lab runs, running sessions and the dataset of a project."""
    rooms: dict[IncidentRoom, Callable[[Runtime, Path], Iterator[Incident]]]
    rooms = {"loop": _loop_incidents, "lab": _lab_incidents, "live": _live_incidents, "dataset": _dataset_incidents}
    for room, found_in in rooms.items():
        try:
            yield from found_in(runtime, project)
        except FlightlogError:
            yield Incident("room cannot be read", runtime.clock.now_ms(), room)


def _loop_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    top = loops_dir(runtime, project)
    for directory in iter_session_dirs(top) if top.is_dir() else ():
        if (directory / JOURNAL).is_file():
            yield from loop.find_incidents(directory)


def _lab_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for book in open_runs(runtime, project / RUNS) if (project / RUNS).is_dir() else ():
        yield from lab.find_incidents(book.name, book.state)


def _live_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for seen in read_last_states(runtime):
        here = [each for each in seen.state.sessions if Path(each.project_path).is_relative_to(project)]
        yield from live.find_incidents(here, seen.broken, seen.now_ms)


def _dataset_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    place = find_dataset(runtime, project) if (project / ".git").exists() else None
    if place is not None:
        yield from dataset.find_incidents(dataset.check_dataset(place), runtime.clock.now_ms())
