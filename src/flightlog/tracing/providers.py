"""Links and incidents of every feature.

The rooms do not know each other: each tells `model.Incident`s, and retro is given them here.

Everything is opened when it is first asked for; a room that is not there offers nothing.
"""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from flightlog.archive.archive import Archive, Progress, open_archive
from flightlog.dataset import check
from flightlog.dataset.layout import TRACKED
from flightlog.dataset.links import DatasetLinks
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.service import find_dataset
from flightlog.lab import links, service
from flightlog.lab.links import RunLinks
from flightlog.lab.service import open_runs
from flightlog.live import health
from flightlog.live.service import read_last_states
from flightlog.loop.directories import JOURNAL, iter_session_dirs
from flightlog.loop.links import TaskLinks, find_incidents
from flightlog.loop.service import all_sessions, loops_dir
from flightlog.model.addresses import LinkProvider, TraceLink
from flightlog.model.errors import FlightlogError, Incident, IncidentRoom, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.privacy.trust import is_trusted
from flightlog.retro.links import RetroLinks
from flightlog.retro.store import project_of, read_analysis_and_board
from flightlog.sources.foreign_json import find_lines
from flightlog.store.git.repository import Repository, find_repository
from flightlog.views.session.edits import LineEdit, edits_of_session
from flightlog.views.session.timeline import iter_steps

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
            yield from find_incidents(directory)


def _lab_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for book in open_runs(runtime, project / RUNS) if (project / RUNS).is_dir() else ():
        yield from links.find_incidents(book.name, book.state)


def _live_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for seen in read_last_states(runtime):
        here = [each for each in seen.state.sessions if Path(each.project_path).is_relative_to(project)]
        yield from health.find_incidents(here, seen.broken, seen.now_ms)


def _dataset_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    place = find_dataset(runtime, project) if (project / ".git").exists() else None
    if place is not None:
        yield from check.find_incidents(check.check_dataset(place), runtime.clock.now_ms())


class TraceContext:
    """A project and the recordings of this machine."""

    def __init__(
        self,
        runtime: Runtime,
        folder: Path | None = None,
        archive: Archive | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Stand in `folder`; nothing is read yet. `progress` is told how far a look at every session is."""
        self._runtime = runtime
        self._progress = progress
        self.folder = project_of(folder or Path(runtime.cwd))
        self.archive = archive or open_archive(runtime)
        self.troubles: list[str] = []

    @functools.cached_property
    def repository(self) -> Repository | None:
        """The repository here, if there is one."""
        return find_repository(self.folder, trusted=is_trusted(self._runtime, self.folder))

    @functools.cached_property
    def _top(self) -> str:
        return str(self.folder.resolve())

    @functools.cached_property
    def runs(self) -> RunLinks:
        """The runs here."""
        return RunLinks(service.open_runs(self._runtime, self.folder / service.RUNS), self._runtime.program_path)

    @functools.cached_property
    def link_providers(self) -> tuple[LinkProvider, ...]:
        """What the rooms offer: one line for each."""
        return (
            self.runs,
            TaskLinks(all_sessions(self._runtime, self.folder)),
            DatasetLinks(read_dataset(self.folder / TRACKED)),
            RetroLinks(*read_analysis_and_board(self._runtime, self.folder)),
            RequestLinks(self.archive),
        )

    @functools.cache  # noqa: B019 - a ground lives as long as one question
    def find_session(self, name: str) -> Session | None:
        """Tell a session, recorded by the agent or in a run; None when it is not on record."""
        if name in self.archive.recordings:
            return self.archive.read_session(name)
        return self.runs.read_session(name)

    def resolve_session_id(self, written: str) -> str:
        """Return the full id of the one session that begins with `written`."""
        of_runs = self.runs.sessions_starting_with(written)
        try:
            found = {self.archive.find_recording(written).session, *of_runs}
        except NotFound:
            found = set(of_runs)
        if len(found) > 1:
            raise Invalid(f"{len(found)} sessions begin with {written!r}", hint="write more of it")
        if not found:
            raise NotFound(f"no session begins with {written!r}", hint="flightlog session list")
        return found.pop()

    def edits_of_session(self, session: Session) -> tuple[LineEdit, ...]:
        """Return what a session wrote; paths inside the project are as the project names them."""
        own = self.runs.edits_of_session(session)
        if own is None:
            known = dict(self.archive.iter_edits([session.id]))
            own = known.get(session.id, edits_of_session(session))
        return tuple(self._to_project_path(edit, session.cwd) for edit in own)

    @functools.cached_property
    def all_edits(self) -> tuple[tuple[str, tuple[LineEdit, ...]], ...]:
        """What every session wrote, session by session; what lies outside the project keeps its path."""
        found = self.archive.iter_edits(progress=self._progress)
        told = [(session, tuple(self._to_project_path(edit, "") for edit in own)) for session, own in found]
        for name in self.runs.sessions_starting_with(""):
            session = self.find_session(name)
            told += [(name, self.edits_of_session(session))] if session is not None else []
        return tuple(told)

    def relative_path(self, written: Path) -> str:
        """Return a file's path as the project names it."""
        return os.path.relpath(written.resolve(), self.folder.resolve())

    def _to_project_path(self, edit: LineEdit, cwd: str) -> LineEdit:
        top = self._top
        path = edit.path if edit.path.startswith("/") else f"{cwd.rstrip('/')}/{edit.path}"
        if path.startswith(f"{top}/"):
            return LineEdit(edit.at, edit.at_ms, path[len(top) + 1 :], edit.line, edit.lines)
        return edit


class RequestLinks:
    """The requests that transcripts name."""

    def __init__(self, archive: Archive) -> None:
        """Look in the recordings of `archive`."""
        self._archive = archive

    def find_links(self, written: str) -> Iterator[TraceLink]:
        """Yield the request of that id; every transcript is searched for it."""
        if not written.startswith("req_"):
            return
        for recording in self._archive.recordings.values():
            if any(True for file in recording.files for _ in find_lines(file.path, written)):
                told = self._archive.read_session(recording.session)
                yield from (link for link in self.links_for_session(told) if link.address.startswith(written))

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the requests of a session, each at the step that answered it."""
        if session.id in self._archive.recordings:
            for at, step in iter_steps(session):
                if step.request_id:
                    yield TraceLink("request", step.request_id, step.model, (str(at),))


def iter_provider_links(ground: TraceContext, session: Session) -> Iterator[TraceLink]:
    """Yield everything the rooms offer on a session; one that cannot be read is noted."""
    for offer in ground.link_providers:
        try:
            yield from offer.links_for_session(session)
        except FlightlogError as error:
            ground.troubles.append(error.message)
