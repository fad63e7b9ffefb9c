"""Append whole lines for the hook, make and list directories, count lost records.

Follows the rules of `store.jsonl`, which this module may not import: lock, terminate a torn last
line, write once, undo a short write, use a file of its own where locks do not work. A test
compares the two. Runs as a script, like `recorder`.
"""

import binascii
import errno
import fcntl
import os
import sys
import time

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than this module
if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORIES = "config-dirs"  # one configuration directory per line
PROJECTS = "init-projects"  # where `init --project` wrote, one directory per line
DIRECTORIES_BYTES_MAX = 1 << 16  # some hundred directories
LOCK_WAIT_S = 0.4  # leaves time to write a file of our own before the hook's limit of a second

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES_MAX = 10  # the file may be moved while we wait for its lock
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def find_data_dir(environ: "os._Environ[str] | dict[str, str]") -> str:
    """Return flightlog's data directory; the rest of the package calls this function too.

    A `FLIGHTLOG_HOME` that is not an absolute path is ignored: a hook cannot report it.
    """
    home = os.path.expanduser(environ.get("FLIGHTLOG_HOME", ""))
    if os.path.isabs(home):
        return home
    return find_own_dir(environ.get("XDG_DATA_HOME", ""), "~/.local/share")


def find_own_dir(given: str, usual: str) -> str:
    """Return flightlog's directory below an XDG directory, else the system's default."""
    if not os.path.isabs(given.strip()):
        given = "~/Library/Application Support" if sys.platform == "darwin" else usual
    return os.path.join(os.path.expanduser(given.strip()), "flightlog")


def find_config_dir(transcript: object) -> str:
    """Return the agent's configuration directory, from its transcript or environment."""
    if isinstance(transcript, str) and os.path.isabs(transcript):
        projects = os.path.dirname(os.path.dirname(transcript))
        if os.path.basename(projects) == "projects":
            return os.path.dirname(projects)
    directory = os.environ.get("CLAUDE_CONFIG_DIR", "").partition(",")[0].strip()
    return os.path.expanduser(directory or "~/.claude")


def note_directory(home: str, directory: str, name: str = DIRECTORIES) -> None:
    """Add a directory to a list: of configuration directories, unless `name` is another."""
    path, line = os.path.join(home, name), os.fsencode(directory)
    known = read_file(path, DIRECTORIES_BYTES_MAX, os.O_NOFOLLOW)
    if line not in known.split(b"\n") and b"\n" not in line and len(known) < DIRECTORIES_BYTES_MAX:
        append_line(path, line, durable=False)


def read_file(path: str, limit: int, flags: int = 0) -> bytes:
    """Return up to `limit` bytes of a file, without waiting for any; empty if it is unreadable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except OSError:
        return b""
    try:
        return os.read(file, limit)
    except OSError:  # a directory in its place
        return b""
    finally:
        os.close(file)


def append_line(
    path: str, line: bytes, *, durable: bool, is_known: "Callable[[int], bool] | None" = None
) -> None:
    """Append `line`, to a shard of this process if `path` cannot be locked.

    Nothing is written if `is_known`, which reads the locked file, returns true.
    """
    for _ in range(_TRIES_MAX):
        file = os.open(path, _FLAGS, 0o600)
        try:
            if not try_lock(file):
                break
            if _is_at(file, path):
                if is_known is not None and is_known(file):
                    return None
                return _append_to_file(file, os.path.dirname(path), line, durable=durable)
        finally:
            os.close(file)
    shard = f"{path}.{os.getpid()}-{time.time_ns():x}.shard.jsonl"
    file = os.open(shard, _FLAGS | os.O_EXCL, 0o600)
    try:
        return _append_to_file(file, os.path.dirname(path), line, durable=durable)
    finally:
        os.close(file)


def make_dir(path: str) -> None:
    """Make `path` and its parents, for their owner only; the names survive a power cut."""
    if os.path.isdir(path):
        return
    make_dir(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    _sync_dir(os.path.dirname(path))


def count_lost(home: str) -> None:
    """Count one lost record, in the data directory or else in the temporary directory."""
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - opened with O_NOFOLLOW, holds one number
    for path in (os.path.join(home, "lost"), os.path.join(temporary, name_loss_count(home))):
        try:
            add_lost(path, 1)
        except (OSError, ValueError):
            continue
        return


def name_loss_count(home: str) -> str:
    """Return the name of the file in the temporary directory that counts what `home` lost."""
    return f"flightlog-lost-{os.getuid()}-{binascii.crc32(os.fsencode(home)):08x}"


def _is_at(file: int, path: str) -> bool:
    """Return whether `path` still names the locked file: it may have been moved while we waited."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _append_to_file(file: int, directory: str, line: bytes, *, durable: bool) -> None:
    size = os.fstat(file).st_size
    if size == 0:
        # Before the first byte, so that the name of a file with content survives a power cut.
        _sync_dir(directory)
    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    whole = (b"\n" if is_torn else b"") + line + b"\n"
    written = 0
    try:
        written = os.write(file, whole)
        if written < len(whole):
            raise OSError(errno.ENOSPC, "short write")  # noqa: TRY301 - undone below like other errors
        if durable:
            getattr(os, "fdatasync", os.fsync)(file)
    except OSError:
        if os.fstat(file).st_size == size + written:
            os.ftruncate(file, size)
        raise


def try_lock(file: int, wait_s: float = LOCK_WAIT_S) -> bool:
    """Lock `file`; return False if locks do not work or another process holds it too long."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


def add_lost(path: str, more: int) -> None:
    """Add `more` to the number in `path`, in place, which works on a full disk too."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try_lock(file)
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
