"""The work directory while sessions run: saved at every step, set back, and lent out as private copies.

One session alone works in the directory itself; several at once each get a copy that they see at
the same path. The shadow repository of the run is the only memory. With tracking off there is
none: nothing is saved, set back or lent.
"""

from collections.abc import Callable
from pathlib import Path

from flightlog.lab.book import RunStore
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.copies import copy_tree, remove_tree
from flightlog.store.files import create_file, resolve_inside
from flightlog.store.trees import SnapshotDirs, WorkTreeSnapshot, WorkTreeSnapshots, open_trees


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
