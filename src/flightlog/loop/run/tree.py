"""Whether anything changed in the work tree, inside git or outside, commits included.

A look at names, sizes and times; the contents are not read. Sessions of ours, git's own files
and what tools build are no progress.
"""

import hashlib
import os
import subprocess
from pathlib import Path

_LEFT_OUT = frozenset({".git", "ralph-loop-sessions", "node_modules", ".venv", "__pycache__", ".pytest_cache"})
_FILES_MAX = 200_000


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
