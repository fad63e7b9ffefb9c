"""One search over what the rooms of a project hold by name and by word: runs, loops, findings, issues.

Sessions are searched by the archive's own index; what is here is small enough to be read when asked.
A room that cannot be read is left out and said.
"""

from collections.abc import Callable, Iterator
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

HITS_MAX = 30
_WIDTH = 160


class ProjectMatch(Struct, frozen=True):
    """Something that has the words; `address` is what `flightlog trace` takes."""

    kind: str
    address: str
    title: str
    text: str = ""


class ProjectSearchResults(Struct, frozen=True):
    """What was found, and which rooms could not be looked into."""

    hits: tuple[ProjectMatch, ...]
    left_out: tuple[str, ...] = ()


def search_project(runtime: Runtime, typed: str, folder: Path | None = None) -> ProjectSearchResults:
    """Find `typed`, in either case, in the rooms of the project at `folder`."""
    project = store.project_of(folder or Path(runtime.cwd))
    hits: list[ProjectMatch] = []
    left_out: list[str] = []
    for name, offer in _ROOMS.items():
        try:
            hits += _matching_hits(offer(runtime, project), typed.strip().lower())
        except (FlightlogError, OSError) as error:
            left_out.append(f"{name}: {error}")
    return ProjectSearchResults(tuple(hits), tuple(left_out))


def _matching_hits(offered: Iterator[ProjectMatch], needle: str) -> list[ProjectMatch]:
    kept: list[ProjectMatch] = []
    for hit in offered if needle else ():
        if needle in f"{hit.address}\n{hit.title}\n{hit.text}".lower():
            kept.append(
                ProjectMatch(hit.kind, hit.address, one_line(hit.title, _WIDTH), _text_around(hit.text, needle))
            )
        if len(kept) >= HITS_MAX:
            break
    return kept


def _text_around(text: str, needle: str) -> str:
    at = max(text.lower().find(needle) - _WIDTH // 3, 0)
    return one_line(text[at : at + 4 * _WIDTH], _WIDTH)


def _iter_runs(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for book in service.open_runs(runtime, project / service.RUNS):
        first = book.planned_sessions()[0].name
        said = " · ".join(each.prompt for each in book.config.sessions)
        words = f"{book.config.hypothesis or ''} {' '.join(book.config.tags)}".strip()
        yield ProjectMatch("run", f"{book.name}/{first}", f"{book.name} {words}", said)


def _iter_tasks(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    for directory in all_sessions(runtime, project):
        plan = open_loop_session(directory).read_plan(make_redactor(runtime, project))
        for task in plan.tasks:
            yield ProjectMatch("task", f"{directory.name}/{task.task_id}", f"{directory.name}: {task.name}", plan.plan)


def _iter_findings(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    analysis, _ = store.read_analysis_and_board(runtime, project)
    for each in analysis.patterns if analysis else ():
        yield ProjectMatch("finding", each.id, each.label, each.detail)


def _iter_issues(runtime: Runtime, project: Path) -> Iterator[ProjectMatch]:
    _, board = store.read_analysis_and_board(runtime, project)
    for each in board.issues.values():
        yield ProjectMatch("issue", each.id, each.title, each.description)


_ROOMS: dict[str, Callable[[Runtime, Path], Iterator[ProjectMatch]]] = {
    "runs": _iter_runs,
    "loops": _iter_tasks,
    "findings": _iter_findings,
    "issues": _iter_issues,
}
