"""Read one session of a run: its transcript, requests, changes, and how they join.

Computed lazily from the session's directory, the journal and the shadow repository. Output files
and `inspect` are made from this; it writes nothing.
"""

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.rebuild import without_billing_header
from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import list_session_folder, read_session_folder
from flightlog.lab import changelog, file_changes
from flightlog.lab.changelog import StepJoin
from flightlog.lab.file_changes import ChangeInterval, iter_intervals
from flightlog.lab.replay.certificate import WorkTreeState, add_side_calls, trim_to_branch
from flightlog.lab.run_session import SIDE, ApiCall, calls_of, message_ids, steps_by_thread
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import SOURCE, PlannedSession, RunStore
from flightlog.model.errors import UNREADABLE, FlightlogError, NotFound
from flightlog.model.session import Note, NoteKind, Session, Step, ThreadContext
from flightlog.sources.protocol import FileListing
from flightlog.store.exchanges import ExchangeStore, exchanges_of
from flightlog.store.git.snapshots import WorkTreeSnapshots, open_trees
from flightlog.store.git.worktree import SnapshotDirs
from flightlog.views.atif.writer import TrajectoryBundle, build_trajectory


class RunSession:
    """The latest attempt at a session, and everything derived from it."""

    def __init__(
        self, run: RunStore, planned: PlannedSession, trees: WorkTreeSnapshots | None
    ) -> None:
        """Read session `planned`; without `trees`, changes come from tool calls."""
        attempt = run.state.last_attempt(planned.session_dir)
        if attempt is None:
            hint = f"flightlog lab run --resume {run.name}"
            raise NotFound(f"{planned.session_dir} of {run.name} has not run yet", hint=hint)
        self.run = run
        self.planned = planned
        self.attempt: SessionAttempt = attempt
        self.folder: Path = run.path / planned.session_dir
        self._trees = trees

    @functools.cached_property
    def session(self) -> Session | None:
        return read_session_folder(self.folder, self.attempt.session_id, self._agent_name)

    @functools.cached_property
    def exchanges(self) -> ExchangeStore:
        return exchanges_of(self.folder)

    @functools.cached_property
    def calls(self) -> list[ApiCall]:
        return calls_of(self.exchanges)

    @functools.cached_property
    def inherited_message_ids(self) -> frozenset[str]:
        """The responses it only copied from the session that it continues."""
        return message_ids(self._parent_session)

    @property
    def compaction_count(self) -> int:
        """How often its own context was compacted, without its parent's compactions."""
        return _count_compactions(self.session) - _count_compactions(self._parent_session)

    @functools.cached_property
    def _parent_session(self) -> Session | None:
        branch = self.run.state.branch
        if branch is not None and self.planned.session_index == 1:
            folder = self.run.path / SOURCE
            return read_session_folder(folder, branch.source_session_id, self._agent_name)
        parent = (
            self.run.state.last_attempt(self.planned.parent_session)
            if self.planned.parent_session
            else None
        )
        return (
            read_session_folder(self.run.path / parent.session, parent.session_id, self._agent_name)
            if parent
            else None
        )

    @functools.cached_property
    def bundle(self) -> TrajectoryBundle | None:
        if self.session is None:
            return None
        threads = source_of(AGENT_NAME).thread_contexts(
            list_session_folder(self.folder, self.attempt.session_id)
        )
        threads[""] = replace(
            threads.get("", ThreadContext()),
            copied_message_ids=threads.get("", ThreadContext()).copied_message_ids
            | self.inherited_message_ids,
        )
        for name, sent in self._first_requests().items():
            known = threads.get(name, ThreadContext())
            tools, system = known.tools or sent.tools, known.system or sent.system
            threads[name] = replace(known, tools=tools, system=system)
        bundle = build_trajectory(self.session, contexts=threads)
        branch = self.run.state.branch
        if branch is not None and self.planned.session_index == 1:
            bundle = trim_to_branch(bundle, branch)
        return add_side_calls(bundle, self._side_cost_usd())

    def _first_requests(self) -> dict[str, ThreadContext]:
        """Return tools and system prompt of each thread as captured; old clients log neither."""
        first: dict[str, ThreadContext] = {}
        for call in self.calls:
            if call.subagent not in first and call.subagent != SIDE:
                with suppress(FlightlogError, *UNREADABLE):  # a damaged body: the rest is useful
                    first[call.subagent] = _sent_context(self.exchanges.sent_body(call.exchange))
        return first

    def _side_cost_usd(self) -> float:
        """Return what the client's own calls cost: compactions, titles, retries."""
        costs = [
            step.cost_usd or 0 for name in self.list_threads() for step in self.own_steps(name)
        ]
        return max(self.attempt.spent_usd - sum(costs), 0.0)

    @functools.cached_property
    def lineage(self) -> StepJoin | None:
        """The join of its records, steps, requests and snapshots."""
        if self.session is None or self.bundle is None:
            return None
        return StepJoin(self.session, self.bundle.documents, self.calls, self.attempt.snapshots)

    @functools.cached_property
    def intervals(self) -> list[ChangeInterval]:
        """The intervals between its snapshots, each with the step that owns it."""
        return list(
            iter_intervals(self.attempt.tree, self.attempt.snapshots, self.calls, self.session)
        )

    def check_transcript(self) -> None:
        """Raise `NotFound` if the session's transcript is gone."""
        if self.session is None:
            hint = "restore it from a backup: without it, the session cannot be replayed"
            raise NotFound(f"the transcript is gone: {self.folder}", hint=hint)

    def own_steps(self, subagent: str = "") -> list[Step]:
        """Return the responses of a thread that are not inherited."""
        threads = steps_by_thread(self.session) if self.session else {}
        steps, copied = threads.get(subagent, ()), self.inherited_message_ids
        return [step for step in steps if step.message_id not in copied]

    def list_threads(self) -> list[str]:
        """Return its threads, the main one first."""
        return list(steps_by_thread(self.session)) if self.session else []

    def iter_changes(self, step: Step | None = None) -> Iterator[dict[str, Any]]:
        """Yield its changelog entries, all or those of one step."""
        if self._trees is None:
            yield from self._iter_reported_changes(step)
            return
        head: dict[str, Any] = {"session_index": self.planned.session_index}
        head |= {"replicate": self.planned.replicate} if self.planned.replicate else {}
        for interval in self.intervals:
            owner = interval.owner
            if step is not None and (owner is None or owner.step.message_id != step.message_id):
                continue
            number = (
                self.lineage.step_id(owner.subagent, owner.step) if self.lineage and owner else None
            )
            yield from changelog.iter_changelog_entries(self._trees, interval, head, number)

    def _iter_reported_changes(self, step: Step | None) -> Iterator[dict[str, Any]]:
        if not self.lineage or not self.session:
            return
        for subagent in self.list_threads():
            for own in self.own_steps(subagent):
                if step is None or own.message_id == step.message_id:
                    step_id, cwd = self.lineage.step_id(subagent, own), self.session.cwd
                    yield from file_changes.iter_reported_changes(subagent, own, step_id, cwd)

    @property
    def _agent_name(self) -> str:
        return self.run.state.start.agent if self.run.state.start else ""


def read_run_sessions(run: RunStore, planned: Iterable[PlannedSession]) -> Archive:
    """Return sessions of a run as an archive; one that has not run yet is left out."""
    last = ((one.session_dir, run.state.last_attempt(one.session_dir)) for one in planned)
    files = (
        file
        for name, attempt in last
        if attempt is not None
        for file in list_session_folder(run.path / name, attempt.session_id)
    )
    return Archive({}, files=FileListing(tuple(files)))


def _sent_context(body: bytes) -> ThreadContext:
    request = msgspec.json.decode(body)
    texts = [str(block.get("text", "")) for block in without_billing_header(request.get("system"))]
    tools = tuple(tool for tool in request.get("tools") or () if "input_schema" in tool)
    return ThreadContext(tools, "\n".join(texts))


def _count_compactions(session: Session | None) -> int:
    items = (item for turn in (session.turns if session else ()) for item in turn.items)
    return sum(isinstance(item, Note) and item.kind is NoteKind.COMPACTION for item in items)


def trees_of(run: RunStore, programs: str) -> WorkTreeSnapshots | None:
    """Open a run's shadow repository for reading; None if it has none."""
    if not run.shadow_dir.is_dir():
        return None
    # Only reads, so the work directory need not exist and home needs no exclusion.
    dirs = SnapshotDirs(run.shadow_dir, run.path, Path("/nonexistent"), programs)
    return open_trees(dirs, now=lambda: 0.0, line="reading")


def read_work_tree_state(trees: WorkTreeSnapshots, name: str) -> WorkTreeState:
    """Return the work tree of a snapshot, to be compared with that of a branch."""
    state = trees.read_state(trees.find_snapshot(name))
    return WorkTreeState(trees.list_file_ids(name), state.times, state.repository)
