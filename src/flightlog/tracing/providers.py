"""Links and incidents of every feature, and a search over runs, loops, findings and issues.

Sessions are searched by the archive's index; the other features are few enough to be read on
demand. A feature that cannot be read is reported and left out.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

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
from flightlog.loop.directories import JOURNAL, iter_session_dirs, open_loop_session
from flightlog.loop.links import TaskLinks, find_incidents
from flightlog.loop.service import all_sessions, loops_dir
from flightlog.model.addresses import LinkProvider, TraceLink
from flightlog.model.errors import FlightlogError, Incident, IncidentFeature, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.model.text import one_line
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import is_trusted
from flightlog.retro import store
from flightlog.retro.links import RetroLinks
from flightlog.retro.store import project_of, read_analysis_and_board
from flightlog.sources.foreign_json import find_lines
from flightlog.store.git.repository import Repository, find_repository
from flightlog.views.session.edits import LineEdit, edits_of_session
from flightlog.views.session.timeline import iter_steps

HITS_MAX = 30  # per feature
_WIDTH = 160  # of a title or an excerpt
RUNS = "runs"


class ProjectMatch(Struct, frozen=True):
    """Something that contains the text; `flightlog trace` takes its `address`."""

    kind: str
    address: str
    title: str
    text: str = ""


class ProjectSearchResults(Struct, frozen=True):
    """The matches, and the features that could not be read."""

    hits: tuple[ProjectMatch, ...]
    omissions: tuple[str, ...] = ()


def search_project(runtime: Runtime, text: str) -> ProjectSearchResults:
    """Find `text`, ignoring case, in the features of the current project."""
    project = store.project_of(runtime, Path(runtime.cwd))
    hits: list[ProjectMatch] = []
    left_out: list[str] = []
    for name, iter_matches in _ROOMS.items():
        try:
            hits += _matching_hits(iter_matches(runtime, project), text.strip().lower())
        except (FlightlogError, OSError) as error:
            left_out.append(f"{name}: {error}")
    return ProjectSearchResults(tuple(hits), tuple(left_out))


def _matching_hits(candidates: Iterator[ProjectMatch], needle: str) -> list[ProjectMatch]:
    matches = (
        hit for hit in candidates if needle in f"{hit.address}\n{hit.title}\n{hit.text}".lower()
    )
    hits = []
    for hit in islice(matches if needle else (), HITS_MAX):
        title, text = one_line(hit.title, _WIDTH), _text_around(hit.text, needle)
        hits.append(ProjectMatch(hit.kind, hit.address, title, text))
    return hits


def _text_around(text: str, needle: str) -> str:
    at = max(text.lower().find(needle) - _WIDTH // 3, 0)
    return one_line(text[at : at + 4 * _WIDTH], _WIDTH)


def _iter_runs(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for run in service.open_runs(runtime, project / service.RUNS):
        first = run.planned_sessions()[0].session_dir
        prompts = " · ".join(session.prompt for session in run.config.sessions)
        words = f"{run.config.hypothesis or ''} {' '.join(run.config.tags)}".strip()
        yield ProjectMatch("run", f"{run.name}/{first}", f"{run.name} {words}", prompts)


def _iter_tasks(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for directory in all_sessions(runtime, project):
        plan = open_loop_session(directory).read_plan(make_redactor(runtime, project))
        for task in plan.tasks:
            address = f"{directory.name}/{task.task_id}"
            yield ProjectMatch("task", address, f"{directory.name}: {task.name}", plan.plan)


def _iter_findings(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    analysis, _ = store.read_analysis_and_board(runtime, project)
    for pattern in analysis.patterns if analysis else ():
        yield ProjectMatch("finding", pattern.id, pattern.label, pattern.detail)


def _iter_issues(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    _, board = store.read_analysis_and_board(runtime, project)
    for issue in board.issues.values():
        yield ProjectMatch("issue", issue.id, issue.title, issue.description)


_ROOMS: dict[str, Callable[[Runtime, Path], Iterator[ProjectMatch]]] = {
    "runs": _iter_runs,
    "loops": _iter_tasks,
    "findings": _iter_findings,
    "issues": _iter_issues,
}


def iter_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    """Yield the incidents of loop sessions, lab runs, running sessions and the dataset of a project."""
    features: dict[IncidentFeature, Callable[[Runtime, Path], Iterator[Incident]]]
    features = {
        "loop": _loop_incidents,
        "lab": _lab_incidents,
        "live": _live_incidents,
        "dataset": _dataset_incidents,
    }
    for feature, find in features.items():
        try:
            yield from find(runtime, project)
        except FlightlogError:
            yield Incident("room cannot be read", runtime.clock.now_ms(), feature)


def _loop_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    top = loops_dir(runtime, project)
    for directory in iter_session_dirs(top) if top.is_dir() else ():
        if (directory / JOURNAL).is_file():
            yield from find_incidents(directory)


def _lab_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for run in open_runs(runtime, project / RUNS) if (project / RUNS).is_dir() else ():
        yield from links.find_incidents(run.name, run.state)


def _live_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    for last in read_last_states(runtime):
        paths = ((session, Path(session.project_path)) for session in last.state.sessions)
        sessions = [session for session, path in paths if path.is_relative_to(project)]
        yield from health.find_incidents(sessions, last.error, last.now_ms)


def _dataset_incidents(runtime: Runtime, project: Path) -> Iterator[Incident]:
    dirs = find_dataset(runtime, project) if (project / ".git").exists() else None
    if dirs is not None:
        yield from check.find_incidents(check.check_dataset(dirs), runtime.clock.now_ms())


class TraceContext:
    """A project and the recordings of this machine."""

    def __init__(
        self,
        runtime: Runtime,
        folder: Path | None = None,
        archive: Archive | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Trace in the project around `folder`; nothing is read yet.

        `progress` receives the progress of reading all sessions.
        """
        self._runtime = runtime
        self._progress = progress
        self.folder = project_of(runtime, folder or Path(runtime.cwd))
        self.archive = archive or open_archive(runtime)
        self.troubles: list[str] = []

    @functools.cached_property
    def repository(self) -> Repository | None:
        """Return the repository here, if there is one."""
        return find_repository(self.folder, trusted=is_trusted(self._runtime, self.folder))

    @functools.cached_property
    def _top(self) -> str:
        return str(self.folder.resolve())

    @functools.cached_property
    def runs(self) -> RunLinks:
        """Return links to the runs here."""
        runs = service.open_runs(self._runtime, self.folder / service.RUNS)
        return RunLinks(runs, self._runtime.program_path)

    @functools.cached_property
    def link_providers(self) -> tuple[LinkProvider, ...]:
        """Return the link provider of each feature."""
        return (
            self.runs,
            TaskLinks(all_sessions(self._runtime, self.folder)),
            DatasetLinks(read_dataset(self.folder / TRACKED)),
            RetroLinks(*read_analysis_and_board(self._runtime, self.folder)),
            RequestLinks(self.archive),
        )

    @functools.cache  # noqa: B019 - a context lives as long as one trace
    def find_session(self, name: str) -> Session | None:
        """Return a session, recorded by the agent or in a run, or None."""
        if name in self.archive.recordings:
            return self.archive.read_session(name)
        return self.runs.read_session(name)

    def resolve_session_id(self, prefix: str) -> str:
        """Return the full id of the only session that starts with `prefix`."""
        matches = set(self.runs.sessions_starting_with(prefix))
        with suppress(NotFound):
            matches.add(self.archive.find_recording(prefix).session)
        if len(matches) > 1:
            hint = "use a longer prefix"
            raise Invalid(f"{len(matches)} sessions start with {prefix!r}", hint=hint)
        if not matches:
            raise NotFound(f"no session starts with {prefix!r}", hint="flightlog session list")
        return matches.pop()

    def edits_of_session(self, session: Session) -> tuple[LineEdit, ...]:
        """Return the edits of a session, with paths relative to the project where possible."""
        own = self.runs.edits_of_session(session)
        if own is None:
            indexed = dict(self.archive.iter_edits([session.id]))
            own = indexed.get(session.id, edits_of_session(session))
        return tuple(self._to_project_path(edit, session.cwd) for edit in own)

    @functools.cached_property
    def all_edits(self) -> tuple[tuple[str, tuple[LineEdit, ...]], ...]:
        """Return the edits of every session; those outside the project keep their path."""
        edits = [
            (session, tuple(self._to_project_path(edit, "") for edit in own))
            for session, own in self.archive.iter_edits(progress=self._progress)
        ]
        for name in self.runs.sessions_starting_with(""):
            session = self.find_session(name)
            edits += [(name, self.edits_of_session(session))] if session is not None else []
        return tuple(edits)

    def relative_path(self, file: Path) -> str:
        """Return a file's path relative to the project."""
        return os.path.relpath(file.resolve(), self.folder.resolve())

    def _to_project_path(self, edit: LineEdit, cwd: str) -> LineEdit:
        top = self._top
        path = edit.path if edit.path.startswith("/") else f"{cwd.rstrip('/')}/{edit.path}"
        if path.startswith(f"{top}/"):
            return LineEdit(edit.at, edit.at_ms, path[len(top) + 1 :], edit.line, edit.lines)
        return edit


class RequestLinks:
    """Links to the API requests that transcripts name."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def find_links(self, prefix: str) -> Iterator[TraceLink]:
        """Yield the requests whose id starts with `prefix`, by searching every transcript."""
        if not prefix.startswith("req_"):
            return
        for recording in self._archive.recordings.values():
            if any(any(find_lines(file.path, prefix)) for file in recording.files):
                own_links = self.links_for_session(self._archive.read_session(recording.session))
                yield from (link for link in own_links if link.address.startswith(prefix))

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the requests of a session, each at the step that it returned."""
        if session.id in self._archive.recordings:
            for at, step in iter_steps(session):
                if step.request_id:
                    yield TraceLink("request", step.request_id, step.model, (str(at),))


def iter_provider_links(context: TraceContext, session: Session) -> Iterator[TraceLink]:
    """Yield every provider's links for a session; note those that cannot be read."""
    for provider in context.link_providers:
        try:
            yield from provider.links_for_session(session)
        except FlightlogError as error:
            context.troubles.append(error.message)
