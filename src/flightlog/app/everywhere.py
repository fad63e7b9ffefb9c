"""One search over what the rooms of a project hold by name and by word: runs, loops, findings, issues.

Sessions are searched by the archive's own index; what is here is small enough to be read when asked.
A room that cannot be read is left out and said.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.app import lab, loop_look, retro
from flightlog.app.privacy import redactor
from flightlog.loop.look.session import look
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line

HITS_MAX = 30
_WIDTH = 160


class Hit(Struct, frozen=True):
    """Something that has the words; `address` is what `flightlog trace` takes."""

    kind: str
    address: str
    title: str
    text: str = ""


class Everywhere(Struct, frozen=True):
    """What was found, and which rooms could not be looked into."""

    hits: tuple[Hit, ...]
    left_out: tuple[str, ...] = ()


def search(runtime: Runtime, typed: str, folder: Path | None = None) -> Everywhere:
    """Find `typed`, in either case, in the rooms of the project at `folder`."""
    project = retro.project_of(folder or Path(runtime.cwd))
    hits: list[Hit] = []
    left_out: list[str] = []
    for name, offer in _ROOMS.items():
        try:
            hits += _some(offer(runtime, project), typed.strip().lower())
        except (FlightlogError, OSError) as error:
            left_out.append(f"{name}: {error}")
    return Everywhere(tuple(hits), tuple(left_out))


def _some(offered: Iterator[Hit], needle: str) -> list[Hit]:
    kept: list[Hit] = []
    for hit in offered if needle else ():
        if needle in f"{hit.address}\n{hit.title}\n{hit.text}".lower():
            kept.append(Hit(hit.kind, hit.address, one_line(hit.title, _WIDTH), _around(hit.text, needle)))
        if len(kept) >= HITS_MAX:
            break
    return kept


def _around(text: str, needle: str) -> str:
    at = max(text.lower().find(needle) - _WIDTH // 3, 0)
    return one_line(text[at : at + 4 * _WIDTH], _WIDTH)


def _runs(runtime: Runtime, project: Path) -> Iterator[Hit]:
    for book in lab.open_books(runtime, project / lab.RUNS):
        first = book.planned()[0].name
        said = " · ".join(each.prompt for each in book.config.sessions)
        words = f"{book.config.hypothesis or ''} {' '.join(book.config.tags)}".strip()
        yield Hit("run", f"{book.name}/{first}", f"{book.name} {words}", said)


def _loops(runtime: Runtime, project: Path) -> Iterator[Hit]:
    for directory in loop_look.all_sessions(runtime, project):
        plan = look(directory).plan(redactor(runtime, project))
        for task in plan.tasks:
            yield Hit("task", f"{directory.name}/{task.task_id}", f"{directory.name}: {task.name}", plan.plan)


def _findings(runtime: Runtime, project: Path) -> Iterator[Hit]:
    analysis, _ = retro.look(runtime, project)
    for each in analysis.patterns if analysis else ():
        yield Hit("finding", each.id, each.label, each.detail)


def _issues(runtime: Runtime, project: Path) -> Iterator[Hit]:
    _, board = retro.look(runtime, project)
    for each in board.issues.values():
        yield Hit("issue", each.id, each.title, each.description)


_ROOMS: dict[str, Callable[[Runtime, Path], Iterator[Hit]]] = {
    "runs": _runs,
    "loops": _loops,
    "findings": _findings,
    "issues": _issues,
}
