"""Holding something alone, and losing it for sure: a lock that can be taken over.

Whoever holds it has the file locked *and* still finds it under its name. Taking over puts
another file there, so that a holder who was asleep meanwhile learns at its next `check`.
"""

import fcntl
import os
from pathlib import Path

from flightlog.model.errors import Conflict, Unavailable
from flightlog.store.files import NO_LOCKS, ensure_dir, temporary, told


class Lease:
    """A lease on `path`, held until it is released or this process ends."""

    def __init__(self, path: Path, who: str, *, steal: bool = False) -> None:
        """Take the lease, or say who holds it."""
        self.path = path
        ensure_dir(path.parent)
        self._file = _stolen(path, who) if steal else _taken(path, who)

    def check(self) -> None:
        """Raise unless the lease is still ours."""
        try:
            ours = os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            ours = False
        if not ours:
            raise Conflict(f"taken over by {holder(self.path) or 'somebody else'}", hint="this one ends here")

    def release(self) -> None:
        """Let go; the file stays, so that nobody locks a ghost."""
        with told(self.path):
            try:
                self.check()
                os.ftruncate(self._file, 0)
            except Conflict:
                pass  # it is no longer ours to clear
            finally:
                os.close(self._file)


def holder(path: Path) -> str:
    """Who holds the lease, or nothing when nobody does."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(file, 200, 0).decode("utf-8", "replace") or "somebody"
    except OSError:
        return ""
    finally:
        os.close(file)
    return ""


def _taken(path: Path, who: str) -> int:
    while True:
        with told(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                os.ftruncate(file, 0)
                os.pwrite(file, who.encode(), 0)
                return file
        except BlockingIOError as error:
            by = os.pread(file, 200, 0).decode("utf-8", "replace") or "somebody else"
            os.close(file)
            raise Conflict(f"held by {by}", hint="wait until it is done, or take over with --steal") from error
        except OSError as error:
            os.close(file)
            if error.errno in NO_LOCKS:
                raise Unavailable(
                    f"cannot lock: {error.strerror}: {path}", hint="use a file system with locks"
                ) from error
            raise
        os.close(file)  # it was taken over between our open and our lock


def _stolen(path: Path, who: str) -> int:
    with temporary(path) as (temp, file), told(path):
        os.pwrite(file, who.encode(), 0)
        mine = os.dup(file)
        fcntl.flock(mine, fcntl.LOCK_EX)
        temp.rename(path)
    return mine
