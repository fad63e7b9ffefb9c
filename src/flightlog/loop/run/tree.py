"""Whether anything changed in the work tree, inside git or outside, commits included; and what.

The first is a look at names, sizes and times. The second is a shadow of the tree beside the
session; where there can be none (no git, a home directory), the task goes on without a diff.
Sessions of ours, git's own files and what tools build are no progress.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flightlog.model.errors import FlightlogError
from flightlog.model.pages import Page, Redacted, Tier
from flightlog.store.pages import publish
from flightlog.store.trees import Place, Policy, Snapshot, Trees, open_trees

_LEFT_OUT = frozenset({".git", "ralph-loop-sessions", "node_modules", ".venv", "__pycache__", ".pytest_cache"})
_FILES_MAX = 200_000
_PATCH_BYTES_MAX = 4 << 20


class Shadow:
    """Two looks at a work tree, and the difference as a page of the session."""

    def __init__(self, directory: Path, place: Place, now: Callable[[], float]) -> None:
        """Open the shadow; without one there is nothing to be shown."""
        self._directory = directory
        self._trees: Trees | None = None
        with suppress(FlightlogError, OSError):
            self._trees = open_trees(place, Policy(leave_out=("ralph-loop-sessions/",)), now=now)

    def look(self, name: str) -> Snapshot | None:
        """Keep the tree as it is now."""
        with suppress(FlightlogError, OSError):
            return self._trees.snapshot(name) if self._trees else None
        return None

    def changes(
        self, name: str, looks: tuple[Snapshot | None, Snapshot | None], redact: Callable[[str], Redacted[str]]
    ) -> str:
        """Write what changed between two looks and return the page's name; nothing when nothing did."""
        before, after = looks
        if self._trees is None or before is None or after is None or before.tree == after.tree:
            return ""
        with suppress(FlightlogError, OSError):
            patch = self._trees.patch(before, after)
            if len(patch) > _PATCH_BYTES_MAX:  # whole lines, so that no value is cut before it is redacted
                patch = patch[: patch.rfind(b"\n", 0, _PATCH_BYTES_MAX) + 1]
            text = redact(patch.decode("utf-8", "replace")).value
            publish(self._directory, [Page(f"diffs/{name}.patch", Tier.PRIVATE, text)], durable=False)
            return f"diffs/{name}.patch"
        return ""


def fingerprint(project: Path) -> str:
    """A name for the state of the tree; the same name, nothing changed."""
    seen = hashlib.sha256(_head(project))
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


def _head(project: Path) -> bytes:
    """What git has checked out, so that work which was committed counts."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return told.stdout
