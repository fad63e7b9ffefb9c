"""State of a running run: its environment, work tree, budget and running agents.

A run works in a copy of the work directory, which its sessions see at the same path; sessions that
run in parallel each get their own. A repository outside of the work directory (of a linked work tree,
or above it) is copied with it. With `in_place`, or without mount namespaces, a run works in the
directory itself. All snapshots are in the run's shadow repository. Without `track_changes` there is
none: nothing is saved or restored.

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
from flightlog.agents.sandbox import BindMount, IsolationMode, isolation_prefix
from flightlog.lab.config import RunConfig, dump_run_config
from flightlog.lab.store import RunStore, create_run
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Job, Runtime
from flightlog.store.directories import copy_tree, publish_dir, remove_tree
from flightlog.store.files import create_file, resolve_inside
from flightlog.store.git.repository import find_outer_git_dir
from flightlog.store.git.snapshots import WorkTreeSnapshots, open_trees
from flightlog.store.git.worktree import SnapshotDirs, SnapshotPolicy, WorkTreeSnapshot

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

    def open_snapshots(
        self,
        shadow: Path,
        work_tree: Path,
        work_dir: Path,
        line: str,
        policy: SnapshotPolicy | None = None,
    ) -> WorkTreeSnapshots:
        """Open the repository at `shadow` for snapshots of `work_tree`, in sequence `line`.

        `work_tree` is the work directory, or a copy of it.
        """
        outer = find_outer_git_dir(work_dir)
        if outer is not None and work_tree != work_dir:
            outer = outer_copy_of(work_tree)
        dirs = SnapshotDirs(shadow, work_tree, self.home, self.runtime.program_path, outer)
        return open_trees(dirs, policy, now=self.runtime.clock.now_s, line=line)

    def create_run(self, path: Path, config: RunConfig, text: str = "") -> RunStore:
        """Create a run's directory and record the run as the person's own."""
        now, new_id = self.runtime.clock.timestamp, self.runtime.new_id
        frozen = dump_run_config(config, text)
        return create_run(path, frozen, now=now, new_id=new_id, remember=self.remember)


def outer_copy_of(tree: Path) -> Path:
    """Return where a copy of a work directory has its copy of a repository outside of it."""
    return tree.with_name(f"{tree.name}.git")


def copy_work_tree(source: Path, work_dir: Path, into: Path) -> None:
    """Copy a work directory, or the copy `source` of it, with a repository outside of it."""
    outer = find_outer_git_dir(work_dir)
    for copied in (into, outer_copy_of(into)):
        remove_tree(copied)
    if outer is not None:
        copy_tree(outer if source == work_dir else outer_copy_of(source), outer_copy_of(into))
    staged = into.with_name(f"{into.name}.making")
    remove_tree(staged)
    copy_tree(source, staged)
    publish_dir(staged, into)  # a copy that exists is whole


class RunWorkTree:
    """The work directory of a run, its private copies and their snapshots."""

    def __init__(
        self, run: RunStore, environment: RunEnvironment, tree: Path | None = None
    ) -> None:
        """Open the shadow repository of the work directory, or of `tree`, mounted at its path."""
        self._run = run
        self._environment = environment
        self.work_dir = Path(run.config.work_dir).resolve()
        self.tree = tree or self.work_dir
        self.main = self._open_trees(self.tree, "main") if run.config.track_changes else None

    def mounts_of(self, tree: Path) -> list[BindMount]:
        """Return the mounts that show the copy `tree` at the path of the work directory."""
        outer = find_outer_git_dir(self.work_dir)
        mounts = [BindMount(tree, self.work_dir)]
        return [BindMount(outer_copy_of(tree), outer), *mounts] if outer is not None else mounts

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
        self.main.save_snapshot(name)
        self.main.restore_snapshot(tree)

    def copy_for_session(self, session: str, tree: str) -> WorkTreeSnapshots:
        """Copy the work directory for one session and restore the copy to snapshot `tree`."""
        copy = self.copy_of(session)
        copy_work_tree(self.tree, self.work_dir, copy)
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
        shadow = self._run.shadow_dir
        return self._environment.open_snapshots(shadow, work_tree, self.work_dir, line)


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
        limit_usd = run.config.max_budget_usd if more_usd is None else spent + more_usd
        self.budget = Budget(limit_usd, spent)
        self.is_apart = False
        self.mode = (run.state.start or run.config).permission_mode
        self.stop_reason = ""
        self._running: dict[str, AgentProcess] = {}
        self._lock = threading.Lock()

    def command_prefix(self, tree: Path, cwd: Path | None = None) -> tuple[str, ...]:
        """Return the prefix of a command that sees `tree` at the work directory's path.

        In the directory itself, the command at least dies with its parent.
        """
        mode, work_dir = self.environment.isolation_mode, self.work_tree.work_dir
        if mode is not IsolationMode.NONE and tree != work_dir:
            return isolation_prefix(mode, self.work_tree.mounts_of(tree), cwd or work_dir)
        if mode is IsolationMode.ROOT:
            return isolation_prefix(mode, (), cwd or work_dir)
        return self.environment.parent_death_prefix

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
