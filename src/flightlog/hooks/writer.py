"""Writing for the hook: one line appended whole, directories of our own, a count of what was lost.

The rules are those of `store.lines`, which this module may not import: locked, a torn end sealed
off, one write, taken back when short, a file of one's own where locks do not work. A test holds
the two to the same behaviour. Runs as a script, like `recorder`.
"""

import errno
import fcntl
import os
import sys
import time

LOCK_WAIT_S = 0.4

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES_MAX = 10
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def find_data_dir(environ: "os._Environ[str] | dict[str, str]") -> str:
    """Return flightlog's data directory, also to the rest of the package: there is no other finder.

    A `FLIGHTLOG_HOME` that is no absolute path is passed over: a hook cannot report it.
    """
    given = os.path.expanduser(environ.get("FLIGHTLOG_HOME", ""))
    return given if os.path.isabs(given) else find_own_dir(environ.get("XDG_DATA_HOME", ""), "~/.local/share")


def find_own_dir(given: str, usual: str) -> str:
    """Return our directory below the one an XDG variable gives, else below the system's usual one."""
    if not os.path.isabs(given.strip()):
        given = "~/Library/Application Support" if sys.platform == "darwin" else usual
    return os.path.join(os.path.expanduser(given.strip()), "flightlog")


def append_line(path: str, line: bytes, *, durable: bool) -> None:
    """Append `line`, to a shard of our own when `path` cannot be locked."""
    for _ in range(_TRIES_MAX):
        file = os.open(path, _FLAGS, 0o600)
        try:
            if not _try_lock(file):
                break
            if _is_at(file, path):
                return _append_to_file(file, os.path.dirname(path), line, durable=durable)
        finally:
            os.close(file)
    file = os.open(f"{path}.{os.getpid()}-{time.time_ns():x}.shard.jsonl", _FLAGS | os.O_EXCL, 0o600)
    try:
        return _append_to_file(file, os.path.dirname(path), line, durable=durable)
    finally:
        os.close(file)


def make_dir(path: str) -> None:
    """Make `path` and its parents for their owner alone, with names that survive a power cut."""
    if os.path.isdir(path):
        return
    make_dir(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    _sync_dir(os.path.dirname(path))


def count_lost(home: str) -> None:
    """Count one record that could not be written: in the home, else in the temporary directory."""
    elsewhere = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - opened with O_NOFOLLOW, holds one number
    for path in (os.path.join(home, "lost"), os.path.join(elsewhere, f"flightlog-lost-{os.getuid()}")):
        try:
            add_lost(path, 1)
        except (OSError, ValueError):
            continue
        return


def _is_at(file: int, path: str) -> bool:
    """Whether `path` still names the file we locked: it may have been moved while we waited."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _append_to_file(file: int, directory: str, line: bytes, *, durable: bool) -> None:
    size = os.fstat(file).st_size
    if size == 0:
        # Before the first byte, so that a file that holds bytes has a name that survives a power cut.
        _sync_dir(directory)
    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    whole = (b"\n" if is_torn else b"") + line + b"\n"
    written = 0
    try:
        written = os.write(file, whole)
        if written < len(whole):
            raise OSError(errno.ENOSPC, "the line did not fit")  # noqa: TRY301 - one way out for both
        if durable:
            getattr(os, "fdatasync", os.fsync)(file)
    except OSError:
        if os.fstat(file).st_size == size + written:
            os.ftruncate(file, size)
        raise


def _try_lock(file: int) -> bool:
    """Lock `file`; False where locks do not work, or where somebody holds it too long."""
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


def add_lost(path: str, more: int) -> None:
    """Add to the number in `path`; it is overwritten in place, which works on a full disk too."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _try_lock(file)
        counted = os.pread(file, 20, 0)
        if more or not counted:
            os.pwrite(file, b"%020d\n" % (more + int(counted or 0)), 0)
    finally:
        os.close(file)


def _sync_dir(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
