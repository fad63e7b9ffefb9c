"""RunContext, Budget, RunWorkTree.

One session alone works in the directory itself; several at once each get a copy that they see at
the same path. The shadow repository of the run is the only memory. With tracking off there is
none: nothing is saved, set back or lent.

Asked before each call to the model and told after it, so that nothing is asked for once the
budget is spent; what is on its way at that moment, one call of each running session, is still paid.
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
from flightlog.lab.store import RunStore
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.runtime import Job, Runtime
from flightlog.store.directories import copy_tree, remove_tree
from flightlog.store.files import create_file, resolve_inside
from flightlog.store.git.snapshots import SnapshotDirs, WorkTreeSnapshot, WorkTreeSnapshots, open_trees

Tell = Callable[[str, str, float], None]  # session, words (none: it got an answer), spent by the run so far
Elsewhere = Callable[[Job], "Future[bytes]"]


class RunWorkTree:
    """The trees of a run."""

    def __init__(
        self,
        book: RunStore,
        work_dir: Path,
        place: tuple[Path, str],
        now_s: Callable[[], float],
        tree: Path | None = None,
    ) -> None:
        """Open the shadow of `work_dir`, or of `tree`, which agents then see at its path.

        `place` is the person's home and where programs are.
        """
        if book.path.resolve().is_relative_to(work_dir.resolve()):
            hint = "the agent would see its own recording; choose a --runs-dir outside"
            raise Invalid(f"the run lies inside its work directory: {book.path}", hint=hint)
        self._book = book
        self._home, self._programs = place
        self._now_s = now_s
        self.work_dir = work_dir.resolve()
        self.tree = tree or self.work_dir
        self.main: WorkTreeSnapshots | None = self._open_trees(self.tree, "main") if book.config.track_changes else None

    def write_memory_file(self) -> None:
        """Put the memory file where it is to be, unless there is one."""
        config = self._book.config
        if config.memory_file:
            create_file(resolve_inside(self.tree, config.memory_file), config.memory_seed.encode())

    def ensure_baseline(self, name: str) -> WorkTreeSnapshot | None:
        """Keep the tree the run begins with, or the one that was kept by a process that died right then."""
        if self.main is None:
            return None
        try:
            return self.main.find_snapshot(name)
        except NotFound:
            return self.main.save_snapshot(name)

    def save_tree(self, trees: WorkTreeSnapshots | None, name: str) -> WorkTreeSnapshot | None:
        """Keep a tree as it is now."""
        return trees.save_snapshot(name) if trees is not None else None

    def restore_tree(self, tree: str, name: str) -> None:
        """Make the work directory what it was at `tree`; what stands there now is kept as `name`, if it differs."""
        if self.main is None or not tree:
            return
        there = self.main.save_snapshot(name)
        if there.tree != self.main.find_snapshot(tree).tree:
            self.main.restore_snapshot(tree)

    def copy_for_session(self, session: str, tree: str) -> WorkTreeSnapshots:
        """Copy the work directory for one session and make it what it was at `tree`."""
        place = self.copy_of(session)
        remove_tree(place)
        copy_tree(self.tree, place)
        trees = self._open_trees(place, session)
        trees.restore_snapshot(tree)
        return trees

    def reopen_copy(self, session: str) -> WorkTreeSnapshots | None:
        """The private copy of a session whose process died, if it is still there."""
        place = self.copy_of(session)
        return self._open_trees(place, session) if place.is_dir() else None

    def copy_of(self, session: str) -> Path:
        """Where the private copy of a session is."""
        return self._book.scratch_dir / "trees" / session

    def _open_trees(self, work_tree: Path, line: str) -> WorkTreeSnapshots:
        place = SnapshotDirs(self._book.shadow_dir, work_tree, self._home, self._programs)
        return open_trees(place, now=self._now_s, line=line)


class Budget:
    """What may be spent and what was."""

    def __init__(self, limit_usd: float | None, spent_usd: float = 0.0) -> None:
        """Begin with what earlier attempts spent."""
        self._limit = limit_usd
        self._spent = spent_usd
        self._lock = threading.Lock()
        self.unpriced = 0

    @property
    def spent_usd(self) -> float:
        """What was spent."""
        return self._spent

    @property
    def remaining_usd(self) -> float | None:
        """What may still be spent; None is no limit."""
        return None if self._limit is None else max(self._limit - self._spent, 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be spent any more."""
        return self._limit is not None and self._spent >= self._limit

    def charge(self, usd: float | None) -> None:
        """Count what a response cost; one without a price is counted as such."""
        with self._lock:
            if usd is None:
                self.unpriced += 1
            else:
                self._spent += usd


class RunEnvironment(Struct, frozen=True):
    """What a run takes from outside. `environ` is the person's own; agents get a part of it.

    `permit` is asked before a run starts, continues or is branched from, with its configuration, its
    directory and the digest of its `config.yaml` (none for a run that is to be created): it raises
    ConsentNeeded for what a person has not allowed. `remember` records such a digest as the person's own.
    `elsewhere` carries sessions that can run together out on other machines.
    """

    runtime: Runtime
    tell: Tell
    permit: Callable[[RunConfig, Path, str], None]
    remember: Callable[[str], None]
    means: IsolationMode
    leash: tuple[str, ...]
    elsewhere: Elsewhere | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        """The person's environment."""
        return self.runtime.environ

    @property
    def home(self) -> Path:
        """The person's home directory."""
        return Path(self.runtime.home)


class RunContext:
    """A run on its way: its book, its ground, its purse, its agents at work."""

    def __init__(
        self,
        book: RunStore,
        ground: RunWorkTree,
        setting: RunEnvironment,
        driver: Driver,
        more_usd: float | None = None,
    ) -> None:
        """Begin with what earlier attempts spent; `more_usd` may be spent on top, whatever the run's budget is."""
        self.book = book
        self.ground = ground
        self.setting = setting
        self.driver = driver
        spent = book.state.spent_usd
        self.purse = Budget(book.config.max_budget_usd if more_usd is None else spent + more_usd, spent)
        self.is_apart = False
        self.mode = book.state.started.permission_mode if book.state.started else book.config.permission_mode
        self.stop_reason = ""
        self._at_work: dict[str, AgentProcess] = {}
        self._lock = threading.Lock()

    def stop_all(self, reason: str) -> None:
        """Let no more sessions begin, and end those at work."""
        with self._lock:
            self.stop_reason = self.stop_reason or reason
            at_work = list(self._at_work.values())
        for each in at_work:
            each.stop()

    def agent_records(self, session: str) -> Sequence[dict[str, Any]]:
        """What the agent of a session has said so far."""
        with self._lock:
            running = self._at_work.get(session)
        return running.records() if running is not None else ()

    @contextmanager
    def track_agent(self, session: str, running: AgentProcess) -> Iterator[None]:
        """Know an agent while it works, so that it can be stopped."""
        with self._lock:
            self._at_work[session] = running
            late = bool(self.stop_reason)
        try:
            if late:
                running.stop()
            yield
        finally:
            with self._lock:
                del self._at_work[session]
            running.stop()
