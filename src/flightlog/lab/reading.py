"""One session of a run, read: what it said, what it asked, what it changed, and how all that joins.

Worked out from the session's directory, the journal and the shadow repository, each part when it
is first asked for. Its pages are written from this and `inspect` shows it; it writes nothing.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.archive.growing import list_session_folder, read_session_folder
from flightlog.lab import changelog, rebuilt
from flightlog.lab.book import SOURCE, Book
from flightlog.lab.changes import Interval, intervals
from flightlog.lab.lineage import Lineage
from flightlog.lab.plan import Planned
from flightlog.lab.replaying.trimmed import trimmed
from flightlog.lab.state import Attempt
from flightlog.lab.told import Call, calls_of, exchanges_of, lanes_of, message_ids
from flightlog.model.errors import NotFound
from flightlog.model.known import Known
from flightlog.model.session import Note, NoteKind, Session, Step
from flightlog.sources.claude_code.discover import AGENT
from flightlog.store.exchanges import Exchanges
from flightlog.store.trees import Place, Trees, open_trees
from flightlog.views.atif.emit import Bundle, trajectory


class Reading:
    """A session's latest attempt, and all that can be worked out of it."""

    def __init__(self, book: Book, planned: Planned, trees: Trees | None) -> None:
        """Read session `planned` of the run; without `trees` nothing is known of files."""
        attempt = book.state.last(planned.name)
        if attempt is None:
            raise NotFound(
                f"{planned.name} of {book.name} did not run yet", hint=f"flightlog lab run --resume {book.name}"
            )
        self.book = book
        self.planned = planned
        self.attempt: Attempt = attempt
        self.folder: Path = book.path / planned.name
        self._trees = trees

    @functools.cached_property
    def session(self) -> Session | None:
        """The session as its transcript tells it."""
        return read_session_folder(self.folder, self.attempt.session_id, self._agent)

    @functools.cached_property
    def exchanges(self) -> Exchanges:
        """What was captured of it."""
        return exchanges_of(self.folder)

    @functools.cached_property
    def calls(self) -> list[Call]:
        """Its requests, in order."""
        return calls_of(self.exchanges)

    @functools.cached_property
    def copied(self) -> frozenset[str]:
        """The responses it holds only because the session it goes on from gave them."""
        return message_ids(self._parent)

    @property
    def compactions(self) -> int:
        """How often its own context was compacted; a fork brings those of its parent along."""
        return _compactions(self.session) - _compactions(self._parent)

    @functools.cached_property
    def _parent(self) -> Session | None:
        branch = self.book.state.branch
        if branch is not None and self.planned.index == 1:
            return read_session_folder(self.book.path / SOURCE, branch.source_session_id, self._agent)
        parent = self.book.state.last(self.planned.parent) if self.planned.parent else None
        return read_session_folder(self.book.path / parent.session, parent.session_id, self._agent) if parent else None

    @functools.cached_property
    def bundle(self) -> Bundle | None:
        """Its trajectories."""
        if self.session is None:
            return None
        told = source_of(AGENT).thread_contexts(list_session_folder(self.folder, self.attempt.session_id))
        told[""] = replace(told.get("", Known()), copied=told.get("", Known()).copied | self.copied)
        made = trajectory(self.session, known=told)
        branch = self.book.state.branch
        return trimmed(made, branch) if branch is not None and self.planned.index == 1 else made

    @functools.cached_property
    def lineage(self) -> Lineage | None:
        """How its records, steps, requests and trees join."""
        if self.session is None or self.bundle is None:
            return None
        return Lineage(self.session, self.bundle.documents, self.calls, self.attempt.saved)

    @functools.cached_property
    def intervals(self) -> list[Interval]:
        """What lies between the trees saved along it."""
        return list(intervals(self.attempt.tree, self.attempt.saved, self.calls, self.session))

    def steps(self, lane: str = "") -> list[Step]:
        """The responses of one of its threads that are its own."""
        every = lanes_of(self.session) if self.session else {}
        return [step for step in every.get(lane, ()) if step.message_id not in self.copied]

    def lanes(self) -> list[str]:
        """Its threads, the main one first."""
        return list(lanes_of(self.session)) if self.session else []

    def changes(self, step: Step | None = None) -> Iterator[dict[str, Any]]:
        """Its entries of the changelog, all or those of one step."""
        if self._trees is None:
            yield from self._rebuilt(step)
            return
        head: dict[str, Any] = {"session_index": self.planned.index}
        head |= {"replicate": self.planned.replicate} if self.planned.replicate else {}
        for interval in self.intervals:
            owner = interval.owner
            if step is not None and (owner is None or owner.step.message_id != step.message_id):
                continue
            number = self.lineage.step_id(owner.lane, owner.step) if self.lineage and owner else None
            yield from changelog.entries(self._trees, interval, head, number)

    def _rebuilt(self, step: Step | None) -> Iterator[dict[str, Any]]:
        """Where no tree was saved: what the tool calls say."""
        for lane in self.lanes():
            for each in self.steps(lane):
                if (step is None or each.message_id == step.message_id) and self.lineage and self.session:
                    yield from rebuilt.entries(lane, each, self.lineage.step_id(lane, each), self.session.cwd)

    @property
    def _agent(self) -> str:
        return self.book.state.started.agent if self.book.state.started else ""


def _compactions(session: Session | None) -> int:
    items = (item for turn in (session.turns if session else ()) for item in turn.items)
    return sum(isinstance(item, Note) and item.kind is NoteKind.COMPACTION for item in items)


def trees_of(book: Book, programs: str) -> Trees | None:
    """Open the shadow repository of a run for reading; a run without one has none."""
    if not book.shadow.is_dir():
        return None
    # Nothing is saved or set back through this one, so that it matters not where the work directory is now.
    return open_trees(Place(book.shadow, book.path, Path("/nonexistent"), programs), now=lambda: 0.0, line="reading")
