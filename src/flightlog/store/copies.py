"""Directories copied whole, set aside and thrown away: scratch that belongs to us.

A copy shares blocks with its source where the file system can. Knows no git: what a project
ignores is copied too, so that whoever works in the copy finds what it needs.
"""

import shutil
import subprocess
from pathlib import Path

from flightlog.model.errors import Invalid, Unavailable
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, sync_dir


def create_dir(path: Path) -> bool:
    """Make the directory `path`, for its owner only; say whether it was not there before."""
    ensure_dir(path.parent)
    with os_errors_as_unavailable(path):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        sync_dir(path.parent)
    return True


def copy_tree(source: Path, into: Path) -> None:
    """Copy everything in `source`, links as links, modes and times kept, into the new directory `into`."""
    ensure_dir(into.parent)
    with os_errors_as_unavailable(into):
        if into.exists():
            raise Invalid(f"there is something already: {into}", hint="name a new directory")
        try:
            # `cp` clones blocks where it can; Python's own copy does not.
            done = subprocess.run(["cp", "-a", str(source), str(into)], capture_output=True, check=False)
        except FileNotFoundError:
            shutil.copytree(source, into, symlinks=True)
            return
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(f"the directory cannot be copied: {said[0] if said else source}", hint="free some space")


def set_aside(path: Path, into: Path) -> Path:
    """Move `path` into the directory `into` under its own name, numbered when that is taken."""
    ensure_dir(into)
    target = next(
        place
        for number in range(1, 10_000)
        if not (place := into / (path.name if number == 1 else f"{path.name}.{number}")).exists()
    )
    with os_errors_as_unavailable(path):
        path.rename(target)
        sync_dir(into)
        sync_dir(path.parent)
    return target


def remove_tree(path: Path) -> None:
    """Remove a directory of ours with all that is in it; one that is not there is fine."""
    with os_errors_as_unavailable(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
