"""A work tree with its shadow repository, as a test asks for it."""

import os
import stat
import subprocess
from itertools import count
from pathlib import Path

from flightlog.store.git.snapshots import SnapshotDirs, open_trees

PROGRAMS = os.environ["PATH"]


def opened(work, policy=None, programs=PROGRAMS, **options):
    seconds = count(1_700_000_000)
    place = SnapshotDirs(work.parent / ".shadow_git", work, Path("/home/not-here"), programs)
    return open_trees(place, policy, now=lambda: next(seconds), **options)


def content(folder):
    """Every file of a tree but git's own: kind, mode bit, bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".git" in path.relative_to(folder).parts or (path.is_dir() and not path.is_symlink()):
            continue
        status = path.lstat()
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(folder))] = (
            path.is_symlink(),
            bool(status.st_mode & stat.S_IXUSR),
            data,
        )
    return found


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
