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
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.archive.session_reader import list_session_folder, read_session_folder
from flightlog.lab import changelog, file_changes
from flightlog.lab.changelog import StepJoin
from flightlog.lab.file_changes import ChangeInterval, iter_intervals
from flightlog.lab.replay.certificate import trim_to_branch
from flightlog.lab.run_session import ApiCall, calls_of, exchanges_of, message_ids, steps_by_thread
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import SOURCE, PlannedSession, RunStore
from flightlog.model.errors import NotFound
from flightlog.model.session import Note, NoteKind, Session, Step, ThreadContext
from flightlog.store.exchanges import ExchangeStore
from flightlog.store.git.snapshots import SnapshotDirs, WorkTreeSnapshots, open_trees
from flightlog.views.atif.writer import TrajectoryBundle, build_trajectory


class RunSession:
    """A session's latest attempt, and all that can be worked out of it."""

    def __init__(self, book: RunStore, planned: PlannedSession, trees: WorkTreeSnapshots | None) -> None:
        """Read session `planned` of the run; without `trees` nothing is known of files."""
        attempt = book.state.last_attempt(planned.name)
        if attempt is None:
            raise NotFound(
                f"{planned.name} of {book.name} did not run yet", hint=f"flightlog lab run --resume {book.name}"
            )
        self.book = book
        self.planned = planned
        self.attempt: SessionAttempt = attempt
        self.folder: Path = book.path / planned.name
        self._trees = trees

    @functools.cached_property
    def session(self) -> Session | None:
        """The session as its transcript tells it."""
        return read_session_folder(self.folder, self.attempt.session_id, self._agent_name)

    @functools.cached_property
    def exchanges(self) -> ExchangeStore:
        """What was captured of it."""
        return exchanges_of(self.folder)

    @functools.cached_property
    def calls(self) -> list[ApiCall]:
        """Its requests, in order."""
        return calls_of(self.exchanges)

    @functools.cached_property
    def inherited_message_ids(self) -> frozenset[str]:
        """The responses it holds only because the session it goes on from gave them."""
        return message_ids(self._parent_session)

    @property
    def compaction_count(self) -> int:
        """How often its own context was compacted; a fork brings those of its parent along."""
        return _count_compactions(self.session) - _count_compactions(self._parent_session)

    @functools.cached_property
    def _parent_session(self) -> Session | None:
        branch = self.book.state.branch
        if branch is not None and self.planned.index == 1:
            return read_session_folder(self.book.path / SOURCE, branch.source_session_id, self._agent_name)
        parent = self.book.state.last_attempt(self.planned.parent) if self.planned.parent else None
        return (
            read_session_folder(self.book.path / parent.session, parent.session_id, self._agent_name)
            if parent
            else None
        )

    @functools.cached_property
    def bundle(self) -> TrajectoryBundle | None:
        """Its trajectories."""
        if self.session is None:
            return None
        told = source_of(AGENT_NAME).thread_contexts(list_session_folder(self.folder, self.attempt.session_id))
        told[""] = replace(
            told.get("", ThreadContext()), copied=told.get("", ThreadContext()).copied | self.inherited_message_ids
        )
        made = build_trajectory(self.session, known=told)
        branch = self.book.state.branch
        return trim_to_branch(made, branch) if branch is not None and self.planned.index == 1 else made

    @functools.cached_property
    def lineage(self) -> StepJoin | None:
        """How its records, steps, requests and trees join."""
        if self.session is None or self.bundle is None:
            return None
        return StepJoin(self.session, self.bundle.documents, self.calls, self.attempt.saved)

    @functools.cached_property
    def intervals(self) -> list[ChangeInterval]:
        """What lies between the trees saved along it."""
        return list(iter_intervals(self.attempt.tree, self.attempt.saved, self.calls, self.session))

    def own_steps(self, lane: str = "") -> list[Step]:
        """The responses of one of its threads that are its own."""
        every = steps_by_thread(self.session) if self.session else {}
        return [step for step in every.get(lane, ()) if step.message_id not in self.inherited_message_ids]

    def list_threads(self) -> list[str]:
        """Its threads, the main one first."""
        return list(steps_by_thread(self.session)) if self.session else []

    def iter_changes(self, step: Step | None = None) -> Iterator[dict[str, Any]]:
        """Its entries of the changelog, all or those of one step."""
        if self._trees is None:
            yield from self._iter_reported_changes(step)
            return
        head: dict[str, Any] = {"session_index": self.planned.index}
        head |= {"replicate": self.planned.replicate} if self.planned.replicate else {}
        for interval in self.intervals:
            owner = interval.owner
            if step is not None and (owner is None or owner.step.message_id != step.message_id):
                continue
            number = self.lineage.step_id(owner.lane, owner.step) if self.lineage and owner else None
            yield from changelog.iter_changelog_entries(self._trees, interval, head, number)

    def _iter_reported_changes(self, step: Step | None) -> Iterator[dict[str, Any]]:
        """Where no tree was saved: what the tool calls say."""
        for lane in self.list_threads():
            for each in self.own_steps(lane):
                if (step is None or each.message_id == step.message_id) and self.lineage and self.session:
                    yield from file_changes.iter_reported_changes(
                        lane, each, self.lineage.step_id(lane, each), self.session.cwd
                    )

    @property
    def _agent_name(self) -> str:
        return self.book.state.started.agent if self.book.state.started else ""


def _count_compactions(session: Session | None) -> int:
    items = (item for turn in (session.turns if session else ()) for item in turn.items)
    return sum(isinstance(item, Note) and item.kind is NoteKind.COMPACTION for item in items)


def trees_of(book: RunStore, programs: str) -> WorkTreeSnapshots | None:
    """Open the shadow repository of a run for reading; a run without one has none."""
    if not book.shadow_dir.is_dir():
        return None
    # Nothing is saved or set back through this one, so that it matters not where the work directory is now.
    return open_trees(
        SnapshotDirs(book.shadow_dir, book.path, Path("/nonexistent"), programs), now=lambda: 0.0, line="reading"
    )
