"""Locks between processes: every wait has a limit, and a refusal names the process that holds the lock.

A lock is an `flock` on a file that is never removed: two processes could otherwise each lock a file of that
name. The kernel releases it when the last process that has the file open ends. `Lease` can also be taken over.
Imports nothing slow: opening the index takes a lock, and the usage report opens the index.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from flightlog.model.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from pathlib import Path


_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
# A lock is held for the length of one write or one git command; 30 s is what a very busy disk takes for that.
WAIT_S = 30.0
# The first retries come soon, for locks held for one write; later ones leave the processor to the holder.
_RETRY_S, _RETRY_MAX_S = 0.001, 0.05
_NOTE_BYTES = 200
_COMMAND_CHARS = 80
_STATES = {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone", "x": "gone"}


class LocksUnavailable(Unavailable):
    """The file system of the lock file has no locks."""


class LockHolder(NamedTuple):
    """The process that holds a lock: `pid` is 0 where the system does not say, `note` is what it wrote down."""

    pid: int
    command: str
    since_s: float
    state: str
    note: str

    def describe_holder(self) -> str:
        """Return one phrase with everything known: note, process, command, start, state."""
        since = time.strftime("since %Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since_s)) if self.since_s else ""
        process = f"process {self.pid}" if self.pid and f"process {self.pid}" not in self.note else ""
        command = f"running {self.command}" if self.command else ""
        said = (self.note, process, command, since, self.state if self.state != "running" else "")
        return ", ".join(filter(None, said)) or "another process"


def lock_file(file: int, path: "Path | str", *, limit_s: float = 0.0, shared: bool = False) -> None:
    """Lock the open `file`; raise `Conflict` with its holder after `limit_s`, `NoLocks` where locks do not work."""
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    end, pause_s = time.monotonic() + limit_s, _RETRY_S
    while True:
        try:
            return fcntl.flock(file, how)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                holder = _read_holder(file)
                wake = f"kill -CONT {holder.pid}" if holder.state == "stopped" else "wait until it is done"
                raise Conflict(f"held by {holder.describe_holder()}: {path}", hint=wake) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
        except OSError as error:
            kind = LocksUnavailable if error.errno in _NO_LOCKS else Unavailable
            raise kind(f"cannot lock: {error.strerror}: {path}", hint="use a file system with locks") from error


@contextmanager
def exclusive_lock(path: "Path", who: str = "", *, limit_s: float = 0.0) -> Iterator[None]:
    """Hold `path` alone, waiting up to `limit_s`; raise `Conflict` with its holder if another process has it.

    The note in the file is cleared at the end: one that is left belongs to a process that died holding the lock.
    """
    from flightlog.store.files import os_errors_as_unavailable  # noqa: PLC0415 - pathlib loads slowly

    file = _open_lock_file(path)
    try:
        lock_file(file, path, limit_s=limit_s)
        with os_errors_as_unavailable(path):
            _write_note(file, who)
        yield
        with suppress(OSError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def was_interrupted(path: "Path") -> bool:
    """Return whether the last holder of `path` died before it was done; only the holder of the lock may ask."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


class Lease:
    """A lease on `path`, held until it is released or this process ends."""

    def __init__(self, path: "Path", who: str, *, steal: bool = False) -> None:
        """Take the lease, or raise `Conflict` with its holder; with `steal`, take it over."""
        self.path = path
        self._file = _steal_lease(path, who) if steal else _acquire_lease(path, who)

    def check_owner(self) -> None:
        """Raise `Conflict` if another process took the lease over."""
        try:
            ours = os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            ours = False
        if not ours:
            raise Conflict(f"taken over by {holder_note(self.path) or 'another process'}", hint="this one ends here")

    def release(self) -> None:
        """Release the lease; the file stays."""
        from flightlog.store.files import os_errors_as_unavailable  # noqa: PLC0415 - as above

        with os_errors_as_unavailable(self.path):
            try:
                self.check_owner()
                os.ftruncate(self._file, 0)
            except Conflict:
                pass  # it is no longer ours to clear
            finally:
                os.close(self._file)


def holder_note(path: "Path") -> str:
    """Return the note of the process that holds `path`, or nothing when it is free."""
    held = find_holder(path)
    return "" if held is None else held.note or held.describe_holder()


def find_holder(path: "Path | str") -> LockHolder | None:
    """Return the process that holds `path`, or None when it is free, missing or cannot be looked at."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(file)
    except OSError:
        return None
    finally:
        os.close(file)
    return None


def _read_holder(file: int) -> LockHolder:
    note = os.pread(file, _NOTE_BYTES, 0).decode("utf-8", "replace").strip()
    named = re.search(r"process (\d+)", note)
    pid = _locking_pid(os.fstat(file).st_ino) or int(named[1] if named else 0)
    state, started_s, command = _read_process(pid)
    # The note is written when the lock is taken. A lock without one is at most as old as its process.
    return LockHolder(pid, command, os.fstat(file).st_mtime if note else started_s, state, note)


def _locking_pid(inode: int) -> int:
    """Return the process the kernel names for a lock on `inode`; 0 where the system has no such list."""
    with suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in _read_text("/proc/locks").splitlines()]
        held = (words for words in lines if words[1] == "FLOCK" and words[5].endswith(f":{inode}"))
        return max((int(words[4]) for words in held), default=0)
    return 0


def _read_process(pid: int) -> tuple[str, float, str]:
    """Return a process's state, its start in seconds since 1970, and its command line."""
    try:
        fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        started_s = (
            time.time() - float(_read_text("/proc/uptime").split()[0]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        )
        # Interpreter, program and verb name the holder; what follows may be long, or hold a secret.
        command = " ".join(" ".join(_read_text(f"/proc/{pid}/cmdline").split("\0")[:3]).split())[:_COMMAND_CHARS]
    except (OSError, ValueError, IndexError):
        return ("gone" if pid and os.path.exists("/proc/self") else "running"), 0.0, ""  # noqa: PTH110 - as above
    return _STATES.get(fields[0], "running"), started_s, command


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
        return file.read()


def _open_lock_file(path: "Path") -> int:
    from flightlog.store.files import ensure_dir, os_errors_as_unavailable  # noqa: PLC0415

    ensure_dir(path.parent)
    with os_errors_as_unavailable(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _write_note(file: int, who: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, (who or f"process {os.getpid()}").encode(), 0)


def _acquire_lease(path: "Path", who: str) -> int:
    while True:
        file = _open_lock_file(path)
        try:
            lock_file(file, path)
            if os.path.samestat(os.fstat(file), path.stat()):
                _write_note(file, who)
                return file
        except Conflict as error:
            os.close(file)
            raise Conflict(error.message, hint="wait until it is done, or take over with --steal") from error
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # it was taken over between our open and our lock


def _steal_lease(path: "Path", who: str) -> int:
    from flightlog.store.files import open_temporary, os_errors_as_unavailable  # noqa: PLC0415

    with open_temporary(path) as (temp, file), os_errors_as_unavailable(path):
        os.pwrite(file, who.encode(), 0)
        mine = os.dup(file)
        lock_file(mine, path)
        temp.rename(path)
    return mine
