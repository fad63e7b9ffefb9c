"""Locks between processes: every wait has a limit, and the error names the holder.

A lock is an `flock` on a file that is never removed: two processes could otherwise each lock a
file of that name. The kernel releases it when the last process that has the file open ends. A
`Lease` can also be taken over. Imports nothing slow, because a usage report takes a lock.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from flightlog.model.errors import Conflict, Unavailable
from flightlog.store import files

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
# A lock is held for one write or one git command, which takes up to 30 s on a very busy disk.
WAIT_S = 30.0
# The first retries come soon, for locks held for one write; later ones leave the CPU to the holder.
_RETRY_S, _RETRY_MAX_S = 0.001, 0.05
_NOTE_BYTES = 200  # a note is one phrase
_COMMAND_CHARS = 80  # enough to recognize a program on one line
_STATES = {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone", "x": "gone"}


class LocksUnavailable(Unavailable):
    """The file system of the lock file has no locks."""


class LockHolder(NamedTuple):
    """The process that holds a lock; `pid` is 0 if unknown, `note` is what it wrote to the file."""

    pid: int
    command: str
    since_s: float
    state: str
    note: str

    def describe_holder(self) -> str:
        """Return one phrase with everything known: note, process, command, start, state."""
        since = time.strftime("since %Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since_s))
        process = f"process {self.pid}"
        phrases = (
            self.note,
            process if self.pid and process not in self.note else "",
            f"running {self.command}" if self.command else "",
            since if self.since_s else "",
            self.state if self.state != "running" else "",
        )
        return ", ".join(filter(None, phrases)) or "another process"


def lock_file(file: int, path: Path | str, *, limit_s: float = 0.0, shared: bool = False) -> None:
    """Lock the open `file`; raise `Conflict` naming the holder if that takes longer than `limit_s`.

    Raises `LocksUnavailable` if the file system has no locks.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    end, pause_s = time.monotonic() + limit_s, _RETRY_S
    while True:
        try:
            return fcntl.flock(file, how)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                holder = _read_holder(file)
                is_stopped = holder.state == "stopped"
                hint = f"kill -CONT {holder.pid}" if is_stopped else "wait until it is done"
                raise Conflict(f"held by {holder.describe_holder()}: {path}", hint=hint) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
        except OSError as error:
            kind = LocksUnavailable if error.errno in _NO_LOCKS else Unavailable
            hint = "use a file system with locks"
            raise kind(f"cannot lock: {error.strerror}: {path}", hint=hint) from error


@contextmanager
def exclusive_lock(path: Path, who: str = "", *, limit_s: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on `path`, or raise `Conflict` naming the holder after `limit_s`.

    The note in the file is cleared at the end: if one is left, its process died holding the lock.
    """
    file = _open_lock_file(path)
    try:
        lock_file(file, path, limit_s=limit_s)
        with files.os_errors_as_unavailable(path):
            _write_note(file, who)
        yield
        with suppress(OSError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def was_interrupted(path: Path) -> bool:
    """Return whether `path` has a note: its last holder died, or a process holds it now."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


class Lease:
    """A lease on `path`, held until it is released or this process ends."""

    def __init__(self, path: Path, who: str, *, steal: bool = False) -> None:
        """Take the lease, or raise `Conflict` naming the holder; with `steal`, take it over."""
        self.path = path
        self._file = _steal_lease(path, who) if steal else _acquire_lease(path, who)

    def check_owner(self) -> None:
        """Raise `Conflict` if another process took the lease over."""
        try:
            ours = os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            ours = False
        if not ours:
            holder = holder_note(self.path) or "another process"
            raise Conflict(f"taken over by {holder}", hint="this one ends here")

    def release(self) -> None:
        """Release the lease; the file stays."""
        with files.os_errors_as_unavailable(self.path):
            try:
                self.check_owner()
                os.ftruncate(self._file, 0)
            except Conflict:
                pass  # it is no longer ours to clear
            finally:
                os.close(self._file)


def holder_note(path: Path) -> str:
    """Return the note of the process that holds `path`; empty if it is free."""
    holder = find_holder(path)
    return "" if holder is None else holder.note or holder.describe_holder()


def find_holder(path: Path | str) -> LockHolder | None:
    """Return the process that holds `path`, or None if it is free, missing or unreadable."""
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
    match = re.search(r"process (\d+)", note)
    pid = _locking_pid(os.fstat(file).st_ino) or int(match[1] if match else 0)
    state, started_s, command = read_process(pid)
    # The note is as old as the lock. A lock without one is at most as old as its process.
    return LockHolder(pid, command, os.fstat(file).st_mtime if note else started_s, state, note)


def _locking_pid(inode: int) -> int:
    """Return the process that the kernel lists for a lock on `inode`; 0 if there is no list."""
    with suppress(OSError, ValueError, IndexError):
        locks = [line.split() for line in _read_text(files.PROC / "locks").splitlines()]
        pids = (
            int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5].endswith(f":{inode}")
        )
        return max(pids, default=0)
    return 0


def read_process(pid: int, proc: Path = files.PROC) -> tuple[str, float, str]:
    """Return a process's state, its start in seconds since 1970, and its command line."""
    if not pid:
        return "running", 0.0, ""
    try:
        state, *fields = _read_text(proc / str(pid) / "stat").rpartition(")")[2].split()
        boot_s = time.time() - float(_read_text(proc / "uptime").split()[0])
        started_s = boot_s + int(fields[18]) / os.sysconf("SC_CLK_TCK")
        words = _read_text(proc / str(pid) / "cmdline").split("\0")
    except (OSError, ValueError, IndexError):
        state, started_s, command = files.read_ps(pid)
        words = command.split()
    if not started_s:
        return "gone", 0.0, ""
    # Interpreter, program and verb name the holder; later words may be long, or a secret.
    command = " ".join(" ".join(words[:3]).split())[:_COMMAND_CHARS]
    return _STATES.get(state[:1], "running"), started_s, command


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _open_lock_file(path: Path) -> int:
    files.ensure_dir(path.parent)
    with files.os_errors_as_unavailable(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _write_note(file: int, who: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, (who or f"process {os.getpid()}").encode(), 0)


def _acquire_lease(path: Path, who: str) -> int:
    while True:
        file = _open_lock_file(path)
        try:
            lock_file(file, path)
            if os.path.samestat(os.fstat(file), path.stat()):
                _write_note(file, who)
                return file
        except Conflict as error:
            os.close(file)
            hint = "wait until it is done, or take over with --steal"
            raise Conflict(error.message, hint=hint) from error
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # another process took it over between our open and our lock


def _steal_lease(path: Path, who: str) -> int:
    with files.open_temporary(path) as (temp, file), files.os_errors_as_unavailable(path):
        os.pwrite(file, who.encode(), 0)
        lease = os.dup(file)
        lock_file(lease, path)
        temp.rename(path)
    return lease
