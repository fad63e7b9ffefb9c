"""State of a running run: its environment, work tree, budget and running agents.

A session that runs alone works in the work directory itself; sessions that run in parallel each get
a copy, which they see at the same path. All snapshots are in the run's shadow repository. Without
`track_changes` there is none: nothing is saved, restored or copied.

The budget is checked before each model call and charged after it. A call is refused if it would
exceed the budget by costing as much as the most expensive one before. Calls in flight when the
budget runs out, at most one for each running session, are still paid.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.process import AgentProcess
from flightlog.agents.protocol import Driver
from flightlog.agents.sandbox import IsolationMode
from flightlog.lab.config import RunConfig
from flightlog.lab.store import RunStore, create_run
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.runtime import Job, Runtime
from flightlog.store.directories import copy_tree, remove_tree
from flightlog.store.files import create_file, resolve_inside
from flightlog.store.git.snapshots import (
    SnapshotDirs,
    WorkTreeSnapshot,
    WorkTreeSnapshots,
    open_trees,
)

Tell = Callable[[str, str, float], None]  # session, message ("": an answer), spent so far
SubmitJob = Callable[[Job], "Future[bytes]"]


class RunEnvironment(Struct, frozen=True):
    """Everything a run takes from the machine. `environ` is the person's; agents get a part of it.

    `permit` is called before a run starts, continues or is branched from, with its configuration,
    its directory and the digest of its `config.yaml` ("" before the run exists); it raises
    ConsentNeeded for what a person has not allowed. `remember` records such a digest as the
    person's own. `elsewhere` submits sessions that can run in parallel to other machines.
    """

    runtime: Runtime
    tell: Tell
    permit: Callable[[RunConfig, Path, str], None]
    remember: Callable[[str], None]
    isolation_mode: IsolationMode
    parent_death_prefix: tuple[str, ...]
    elsewhere: SubmitJob | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        return self.runtime.environ

    @property
    def home(self) -> Path:
        return Path(self.runtime.home)

    def open_snapshots(self, shadow: Path, work_tree: Path, *, line: str) -> WorkTreeSnapshots:
        """Open the repository at `shadow` for snapshots of `work_tree`, in sequence `line`."""
        dirs = SnapshotDirs(shadow, work_tree, self.home, self.runtime.program_path)
        return open_trees(dirs, now=self.runtime.clock.now_s, line=line)

    def create_run(self, path: Path, config: RunConfig) -> RunStore:
        """Create a run's directory and record the run as the person's own."""
        now, new_id = self.runtime.clock.timestamp, self.runtime.new_id
        return create_run(path, config, now=now, new_id=new_id, remember=self.remember)


class RunWorkTree:
    """The work directory of a run, its private copies and their snapshots."""

    def __init__(
        self, run: RunStore, environment: RunEnvironment, tree: Path | None = None
    ) -> None:
        """Open the shadow repository of the work directory, or of `tree`, mounted at its path."""
        work_dir = Path(run.config.work_dir).resolve()
        if run.path.resolve().is_relative_to(work_dir):
            hint = "the agent would see its own recording; choose a --runs-dir outside"
            raise Invalid(f"the run is inside its work directory: {run.path}", hint=hint)
        self._run = run
        self._environment = environment
        self.work_dir = work_dir
        self.tree = tree or work_dir
        self.main = self._open_trees(self.tree, "main") if run.config.track_changes else None

    def write_memory_file(self) -> None:
        config = self._run.config
        if config.memory_file:
            create_file(resolve_inside(self.tree, config.memory_file), config.memory_seed.encode())

    def ensure_baseline(self, name: str) -> WorkTreeSnapshot | None:
        """Return the first snapshot; save it unless a process that died had saved it."""
        if self.main is None:
            return None
        try:
            return self.main.find_snapshot(name)
        except NotFound:
            return self.main.save_snapshot(name)

    def save_tree(self, trees: WorkTreeSnapshots | None, name: str) -> WorkTreeSnapshot | None:
        """Save a snapshot; None where changes are not tracked."""
        return trees.save_snapshot(name) if trees is not None else None

    def restore_tree(self, tree: str, name: str) -> None:
        """Restore the work directory to snapshot `tree`; save its present state as `name` first."""
        if self.main is None or not tree:
            return
        present = self.main.save_snapshot(name)
        if present.tree != self.main.find_snapshot(tree).tree:
            self.main.restore_snapshot(tree)

    def copy_for_session(self, session: str, tree: str) -> WorkTreeSnapshots:
        """Copy the work directory for one session and restore the copy to snapshot `tree`."""
        copy = self.copy_of(session)
        remove_tree(copy)
        copy_tree(self.tree, copy)
        trees = self._open_trees(copy, session)
        trees.restore_snapshot(tree)
        return trees

    def reopen_copy(self, session: str) -> WorkTreeSnapshots | None:
        """Open the private copy of a session whose process died; None if it is gone."""
        copy = self.copy_of(session)
        return self._open_trees(copy, session) if copy.is_dir() else None

    def copy_of(self, session: str) -> Path:
        return self._run.scratch_dir / "trees" / session

    def _open_trees(self, work_tree: Path, line: str) -> WorkTreeSnapshots:
        return self._environment.open_snapshots(self._run.shadow_dir, work_tree, line=line)


class Budget:
    """A limit in US dollars, and what was spent of it; safe to use from several threads."""

    def __init__(self, limit_usd: float | None, spent_usd: float = 0.0) -> None:
        self._limit = limit_usd
        self._spent = spent_usd
        self._highest = 0.0
        self._is_closed = False
        self._lock = threading.Lock()
        self.unpriced = 0

    @property
    def spent_usd(self) -> float:
        return self._spent

    @property
    def remaining_usd(self) -> float | None:
        """US dollars left; None without a limit."""
        return None if self._limit is None else max(self._limit - self._spent, 0.0)

    @property
    def is_empty(self) -> bool:
        return self._limit is not None and (self._is_closed or self._spent >= self._limit)

    def allows_call(self) -> bool:
        """Return whether one more call probably fits; after a no, the budget counts as empty."""
        with self._lock:
            if self._limit is not None and self._spent + self._highest > self._limit:
                self._is_closed = True
        return not self.is_empty

    def charge(self, usd: float | None, *, is_one_call: bool = True) -> None:
        """Add the cost of a response; count a response of unknown price in `unpriced`."""
        with self._lock:
            if usd is None:
                self.unpriced += 1
            else:
                self._spent += usd
                self._highest = max(self._highest, usd if is_one_call else 0.0)


class RunContext:
    """A running run: its store, work tree, environment, budget and running agents."""

    def __init__(
        self,
        run: RunStore,
        work_tree: RunWorkTree,
        environment: RunEnvironment,
        driver: Driver,
        more_usd: float | None = None,
    ) -> None:
        """Start with what earlier attempts spent; `more_usd` beyond that replaces the budget."""
        self.run = run
        self.work_tree = work_tree
        self.environment = environment
        self.driver = driver
        spent = run.state.spent_usd
        self.budget = Budget(
            run.config.max_budget_usd if more_usd is None else spent + more_usd, spent
        )
        self.is_apart = False
        self.mode = (
            run.state.start.permission_mode if run.state.start else run.config.permission_mode
        )
        self.stop_reason = ""
        self._running: dict[str, AgentProcess] = {}
        self._lock = threading.Lock()

    def stop_all(self, reason: str) -> None:
        """Start no more sessions and stop the running agents."""
        with self._lock:
            self.stop_reason = self.stop_reason or reason
            agents = list(self._running.values())
        for agent in agents:
            agent.stop()

    def agent_records(self, session: str) -> Sequence[dict[str, Any]]:
        """Return the records that the agent of a session has printed so far."""
        with self._lock:
            running = self._running.get(session)
        return running.records() if running is not None else ()

    @contextmanager
    def track_agent(self, session: str, running: AgentProcess) -> Iterator[None]:
        """Register a running agent, so that `stop_all` reaches it."""
        with self._lock:
            self._running[session] = running
            is_late = bool(self.stop_reason)
        try:
            if is_late:
                running.stop()
            yield
        finally:
            with self._lock:
                del self._running[session]
            running.stop()
