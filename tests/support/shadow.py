"""A work tree with its shadow repository, as a test asks for it."""

import os
import stat
import subprocess
from itertools import count
from pathlib import Path

from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SnapshotDirs

PROGRAMS = os.environ["PATH"]


def open_shadow(work, policy=None, programs=PROGRAMS, outer=None, **options):
    seconds = count(1_700_000_000)
    place = SnapshotDirs(work.parent / ".shadow_git", work, Path("/home/not-here"), programs, outer)
    return open_trees(place, policy, now=lambda: next(seconds), **options)


def check_out(trees, snapshot, into, line):
    """Lay a snapshot out in a new directory, which gets a line of its own."""
    into.mkdir()
    place = SnapshotDirs(
        trees.work_tree.parent / ".shadow_git", into, Path("/home/not-here"), PROGRAMS
    )
    other = open_trees(place, now=lambda: 1_700_000_000, line=line)
    other.restore_snapshot(snapshot)
    return other


def names(work):
    """The names of all snapshots, by time."""
    words = ["for-each-ref", "--sort=creatordate", "--format=%(refname:strip=2)", "refs/tags"]
    shadow = work.parent / ".shadow_git"
    done = subprocess.run(
        ["git", "--git-dir", shadow, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def content(folder):
    """Every file of a tree but git's own: kind, mode bit, bytes."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if ".git" in path.relative_to(folder).parts or (path.is_dir() and not path.is_symlink()):
            continue
        status = path.lstat()
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        files[str(path.relative_to(folder))] = (
            path.is_symlink(),
            bool(status.st_mode & stat.S_IXUSR),
            data,
        )
    return files


def kinds(trees, before, after):
    return {change.path: change.kind for change in trees.diff_snapshots(before, after)}


def fsck(work):
    done = subprocess.run(
        ["git", "--git-dir", work.parent / ".shadow_git", "fsck", "--strict"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
