"""Search the features of a project by name and text: runs, loops, findings, issues.

Sessions are searched by the archive's index; these are few enough to be read on demand. A feature
that cannot be read is reported and left out.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from flightlog.lab import service
from flightlog.loop.directories import open_loop_session
from flightlog.loop.service import all_sessions
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line
from flightlog.privacy.service import make_redactor
from flightlog.retro import store

HITS_MAX = 30  # per feature
_WIDTH = 160  # of a title or an excerpt


class ProjectMatch(Struct, frozen=True):
    """Something that contains the text; `flightlog trace` takes its `address`."""

    kind: str
    address: str
    title: str
    text: str = ""


class ProjectSearchResults(Struct, frozen=True):
    """The matches, and the features that could not be read."""

    hits: tuple[ProjectMatch, ...]
    left_out: tuple[str, ...] = ()


def search_project(runtime: Runtime, text: str, folder: Path | None = None) -> ProjectSearchResults:
    """Find `text`, ignoring case, in the features of the project at `folder`."""
    project = store.project_of(folder or Path(runtime.cwd))
    hits: list[ProjectMatch] = []
    left_out: list[str] = []
    for name, iter_matches in _ROOMS.items():
        try:
            hits += _matching_hits(iter_matches(runtime, project), text.strip().lower())
        except (FlightlogError, OSError) as error:
            left_out.append(f"{name}: {error}")
    return ProjectSearchResults(tuple(hits), tuple(left_out))


def _matching_hits(candidates: Iterator[ProjectMatch], needle: str) -> list[ProjectMatch]:
    matches = (hit for hit in candidates if needle in f"{hit.address}\n{hit.title}\n{hit.text}".lower())
    return [
        ProjectMatch(hit.kind, hit.address, one_line(hit.title, _WIDTH), _text_around(hit.text, needle))
        for hit in islice(matches if needle else (), HITS_MAX)
    ]


def _text_around(text: str, needle: str) -> str:
    at = max(text.lower().find(needle) - _WIDTH // 3, 0)
    return one_line(text[at : at + 4 * _WIDTH], _WIDTH)


def _iter_runs(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for run in service.open_runs(runtime, project / service.RUNS):
        first = run.planned_sessions()[0].name
        prompts = " · ".join(session.prompt for session in run.config.sessions)
        words = f"{run.config.hypothesis or ''} {' '.join(run.config.tags)}".strip()
        yield ProjectMatch("run", f"{run.name}/{first}", f"{run.name} {words}", prompts)


def _iter_tasks(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for directory in all_sessions(runtime, project):
        plan = open_loop_session(directory).read_plan(make_redactor(runtime, project))
        for task in plan.tasks:
            yield ProjectMatch("task", f"{directory.name}/{task.task_id}", f"{directory.name}: {task.name}", plan.plan)


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
