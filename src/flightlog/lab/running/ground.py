"""The work directory while sessions run: saved at every step, set back, and lent out as private copies.

One session alone works in the directory itself; several at once each get a copy that they see at
the same path. The shadow repository of the run is the only memory. With tracking off there is
none: nothing is saved, set back or lent.
"""

from collections.abc import Callable
from pathlib import Path

from flightlog.lab.book import Book
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.copies import copy_tree, throw_away
from flightlog.store.files import create, inside
from flightlog.store.trees import Place, Snapshot, Trees, open_trees


class Ground:
    """The trees of a run."""

    def __init__(
        self, book: Book, work_dir: Path, place: tuple[Path, str], now_s: Callable[[], float], tree: Path | None = None
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
        self.main: Trees | None = self._opened(self.tree, "main") if book.config.track_changes else None

    def seed(self) -> None:
        """Put the memory file where it is to be, unless there is one."""
        config = self._book.config
        if config.memory_file:
            create(inside(self.tree, config.memory_file), config.memory_seed.encode())

    def first(self, name: str) -> Snapshot | None:
        """Keep the tree the run begins with, or the one that was kept by a process that died right then."""
        if self.main is None:
            return None
        try:
            return self.main.find(name)
        except NotFound:
            return self.main.snapshot(name)

    def save(self, trees: Trees | None, name: str) -> Snapshot | None:
        """Keep a tree as it is now."""
        return trees.snapshot(name) if trees is not None else None

    def bring(self, tree: str, name: str) -> None:
        """Make the work directory what it was at `tree`; what stands there now is kept as `name`, if it differs."""
        if self.main is None or not tree:
            return
        there = self.main.snapshot(name)
        if there.tree != self.main.find(tree).tree:
            self.main.restore(tree)

    def private(self, session: str, tree: str) -> Trees:
        """Copy the work directory for one session and make it what it was at `tree`."""
        place = self.copy_of(session)
        throw_away(place)
        copy_tree(self.tree, place)
        trees = self._opened(place, session)
        trees.restore(tree)
        return trees

    def again(self, session: str) -> Trees | None:
        """The private copy of a session whose process died, if it is still there."""
        place = self.copy_of(session)
        return self._opened(place, session) if place.is_dir() else None

    def copy_of(self, session: str) -> Path:
        """Where the private copy of a session is."""
        return self._book.scratch / "trees" / session

    def _opened(self, work_tree: Path, line: str) -> Trees:
        place = Place(self._book.shadow, work_tree, self._home, self._programs)
        return open_trees(place, now=self._now_s, line=line)
