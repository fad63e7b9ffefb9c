"""What a snapshot of a step costs, against the git calls it cannot do without.

    python -m tools.bench.trees [--rounds 15]

One file of 2,000, then of 20,000, is changed before each measurement; both sides look at the
same work tree in turns, each with a repository of its own. The floor is `add -A`, `write-tree`,
`commit-tree`, `update-ref`: with our settings (fsync on), which the bar is held against, and
with git's own, for information. A second table is of a work tree with a repository, in which each
step commits: there the floor also runs `add -A` and `write-tree` over the git directory. Exits 1 when a
bar is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.bench.table import Table

from flightlog.store.git.repository import ShadowRepository
from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SnapshotDirs

SIZES = (2_000, 20_000)
BAR = 1.3
REPOSITORY_BAR = 1.5


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    table = Table()
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            one_size(Path(folder), size, options.rounds, table, has_repository=False)
        with tempfile.TemporaryDirectory() as folder:
            one_size(Path(folder), size, options.rounds, table, has_repository=True)
    return 1 if table.failed else 0


def one_size(root: Path, size: int, rounds: int, table: Table, *, has_repository: bool) -> None:
    """Race the sides on a tree of `size` files."""
    work = root / "work"
    for number in range(size):
        path = work / f"d{number % 97:02d}" / f"e{number % 7}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + "value = 1\n" * (number % 300))
    if has_repository:
        commit_all(work, "init")
    trees = open_trees(
        SnapshotDirs(root / "ours", work, Path.home(), os.environ["PATH"]), now=time.time
    )
    names = iter(range(10_000))
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: trees.save_snapshot(f"s{next(names)}"),
        "floor, our settings": Floor(root / "floor", work, ours=True),
        "floor, plain": Floor(root / "plain", work, ours=False),
    }
    first = {name: time_call(side) for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for count in range(rounds):
        for name, side in sides.items():
            (work / "d03" / "e3" / "file3.py").write_text(f"# {count} {name}\n")
            if has_repository:
                commit_all(work, "")
            times[name].append(time_call(side))
    what = f"{size:,} files" + (", with a repository" if has_repository else "")
    table.title(f"Snapshot of a step, {what}")
    for name, durations in times.items():
        table.note(name, f"{statistics.median(durations):7.1f} ms   first {first[name]:8.1f} ms")
    medians = {name: statistics.median(durations) for name, durations in times.items()}
    bar = REPOSITORY_BAR if has_repository else BAR
    table.most(f"ours over floor, {what}", medians["ours"] / medians["floor, our settings"], bar)
    table.note("ours over the plain floor", f"{medians['ours'] / medians['floor, plain']:.2f} x")


def commit_all(work: Path, first: str) -> None:
    """Commit the work tree in its own repository, as an agent does."""
    names = {
        f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    env = {"PATH": os.environ["PATH"], "HOME": "/none", **names}
    commands = [["git", "init", "-q"]] if first else []
    for command in [*commands, ["git", "add", "-A"], ["git", "commit", "-qm", "step"]]:
        subprocess.run(command, cwd=work, env=env, check=True)


class Floor:
    """The four calls alone, and two for a repository."""

    def __init__(self, git_dir: Path, work: Path, *, ours: bool) -> None:
        """Make the repository."""
        self._env = {
            "PATH": os.environ["PATH"],
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(work),
            "HOME": "/none",
        }
        for who in ("AUTHOR", "COMMITTER"):
            self._env |= {f"GIT_{who}_NAME": "floor", f"GIT_{who}_EMAIL": "floor@localhost"}
        self._head = ""
        if ours:
            ShadowRepository(git_dir, os.environ["PATH"]).create_if_missing()
        else:
            subprocess.run(["git", "init", "-q", "--bare", str(git_dir)], check=True)

    def __call__(self) -> None:
        """Take a snapshot."""
        self._git("add", "-A")
        tree = self._git("write-tree")
        repository = Path(self._env["GIT_WORK_TREE"]) / ".git"
        if repository.is_dir():
            index = {
                "GIT_WORK_TREE": str(repository),
                "GIT_INDEX_FILE": f"{self._env['GIT_DIR']}/own",
            }
            self._git("add", "-A", more=index)
            self._git("write-tree", more=index)
        parent = ("-p", self._head) if self._head else ()
        commit = self._git("commit-tree", tree, *parent, "-m", "step")
        self._git("update-ref", "refs/heads/main", commit, *((self._head,) if self._head else ()))
        self._head = commit

    def _git(self, *command: str, more: dict[str, str] | None = None) -> str:
        env = self._env | (more or {})
        done = subprocess.run(
            ["git", *command],
            env=env,
            cwd=env["GIT_WORK_TREE"],
            check=True,
            capture_output=True,
        )
        return done.stdout.decode().strip()


def time_call(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
