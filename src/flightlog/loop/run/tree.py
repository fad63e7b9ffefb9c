"""Whether anything changed in the work tree, inside git or outside, commits included; and what.

The first is a look at names, sizes and times. The second is a shadow of the tree beside the
session; where there can be none (no git, a home directory), the task goes on without a diff.
Sessions of ours, git's own files and what tools build are no progress.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flightlog.model.errors import FlightlogError
from flightlog.model.pages import OutputFile, Redacted, Tier
from flightlog.store.git.command import GitError, PersonGit
from flightlog.store.pages import write_output_files
from flightlog.store.trees import SnapshotDirs, SnapshotPolicy, WorkTreeSnapshot, WorkTreeSnapshots, open_trees

_LEFT_OUT = frozenset({".git", "ralph-loop-sessions", "node_modules", ".venv", "__pycache__", ".pytest_cache"})
_FILES_MAX = 200_000
_PATCH_BYTES_MAX = 4 << 20


class WorkTreeWatch:
    """Two looks at a work tree, and the difference as a page of the session."""

    def __init__(self, directory: Path, place: SnapshotDirs, now: Callable[[], float]) -> None:
        """Open the shadow; without one there is nothing to be shown."""
        self._directory = directory
        self._trees: WorkTreeSnapshots | None = None
        with suppress(FlightlogError, OSError):
            self._trees = open_trees(place, SnapshotPolicy(leave_out=("ralph-loop-sessions/",)), now=now)

    def save_snapshot(self, name: str) -> WorkTreeSnapshot | None:
        """Keep the tree as it is now."""
        with suppress(FlightlogError, OSError):
            return self._trees.save_snapshot(name) if self._trees else None
        return None

    def write_changes(
        self,
        name: str,
        looks: tuple[WorkTreeSnapshot | None, WorkTreeSnapshot | None],
        redact: Callable[[str], Redacted[str]],
    ) -> str:
        """Write what changed between two looks and return the page's name; nothing when nothing did."""
        before, after = looks
        if self._trees is None or before is None or after is None or before.tree == after.tree:
            return ""
        with suppress(FlightlogError, OSError):
            patch = self._trees.patch_between(before, after)
            if len(patch) > _PATCH_BYTES_MAX:  # whole lines, so that no value is cut before it is redacted
                patch = patch[: patch.rfind(b"\n", 0, _PATCH_BYTES_MAX) + 1]
            text = redact(patch.decode("utf-8", "replace")).value
            write_output_files(self._directory, [OutputFile(f"diffs/{name}.patch", Tier.PRIVATE, text)], durable=False)
            return f"diffs/{name}.patch"
        return ""


def fingerprint_tree(project: Path) -> str:
    """A name for the state of the tree; the same name, nothing changed."""
    seen = hashlib.sha256(_head_commit(project))
    count = 0
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            count += 1
            if count > _FILES_MAX:
                return seen.hexdigest()
            path = os.path.join(folder, name)  # noqa: PTH118 - called for each file of a project
            try:
                status = os.lstat(path)
            except OSError:
                continue
            seen.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _head_commit(project: Path) -> bytes:
    """What git has checked out, so that work which was committed counts."""
    try:
        return PersonGit(project).run_git("rev-parse", "HEAD").out
    except GitError:
        return b""
