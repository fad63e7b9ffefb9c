"""Files that people or other programs edit too: exchange, back up, restore.

They are not ours: their permissions stay, and where they are symbolic links (people keep them
in a repository) the link stays and the file it names is replaced. Knows bytes, not settings.

A new file takes the old one's name by an exchange of names, so that whatever stood there is
still in our hands: if it is not what we had read, somebody saved in between, and their file is
put back. The one exchanged out is kept beside for a while, because an editor may still write
into it. After a crash the name holds the old file or the new one, whole.
"""

import ctypes
import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from flightlog.model.errors import Conflict, NotFound
from flightlog.store.files import (
    commit_temporary,
    ensure_dir,
    open_temporary,
    os_errors_as_unavailable,
    sync_dir,
    write_all,
)

_NEW_FILE_MODE = 0o600
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


def read_if_exists(path: Path) -> bytes | None:
    """The bytes of `path`, or None when there is no such file."""
    try:
        with os_errors_as_unavailable(path):
            return path.read_bytes()
    except FileNotFoundError:
        return None


def replace_or_conflict(path: Path, old: bytes | None, new: bytes) -> None:
    """Make `path` hold `new`, unless it no longer holds `old`: then somebody else was there."""
    target = path.resolve()
    with os_errors_as_unavailable(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE_MODE
        temporary = target.with_name(f".{target.name}.flightlog-{os.getpid()}.tmp")
        _write_new_file(temporary, new, mode)
        try:
            if read_if_exists(path) != old:
                raise Conflict(f"changed by somebody else just now: {path}", hint="run the command again")
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_dir(target.parent)


def back_up(path: Path, data: bytes) -> Path:
    """Keep `data` beside `path` under the next free number, unless it is kept there already."""
    kept = list_backups(path)
    if kept and kept[-1].read_bytes() == data:
        return kept[-1]
    number = int(kept[-1].name.rpartition("-")[2].removesuffix(".bak")) + 1 if kept else 1
    copy = path.with_name(f"{path.name}.flightlog-{number}.bak")
    try:
        with os_errors_as_unavailable(copy):
            _write_new_file(copy, data, _NEW_FILE_MODE)
            sync_dir(copy.parent)
    except FileNotFoundError as error:
        raise NotFound(f"no such directory: {copy.parent}", hint="flightlog doctor") from error
    return copy


def list_backups(path: Path) -> list[Path]:
    """The kept copies of `path`, oldest first."""
    found = path.parent.glob(f"{path.name}.flightlog-*.bak")
    return sorted(found, key=lambda copy: int(copy.name.rpartition("-")[2].removesuffix(".bak")))


def remove_with_dir(path: Path) -> None:
    """Take `path` away, and its directory when nothing else is in it."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def _write_new_file(path: Path, data: bytes, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        write_all(file, data)
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def replace_if_unchanged(path: Path, before: bytes | None, after: bytes, aside: Path, *, durable: bool = True) -> bool:
    """Make `path` hold `after` if it holds `before`; otherwise leave it, and say so.

    What stood there is moved to `aside`.
    """
    with open_temporary(path) as (temp, file), os_errors_as_unavailable(path):
        write_all(file, after)
        if durable:
            os.fsync(file)
        if before is None:
            return _try_create(temp, path)
        if read_if_exists(path) != before:
            return False
        if not _swap_files(temp, path):
            commit_temporary(temp, file, path, durable=durable)
            return True
        if temp.read_bytes() != before:
            # Somebody saved between our look and the exchange: theirs goes back.
            _swap_files(temp, path)
            return False
        ensure_dir(aside.parent)
        temp.rename(aside)
        if durable:
            sync_dir(path.parent)
    return True


def _try_create(temp: Path, path: Path) -> bool:
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    return True


def _swap_files(one: Path, two: Path) -> bool:
    """Exchange the names of two files at once; False where the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(two))
    if sys.platform == "darwin":
        failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    else:
        return False
    if failed:
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number), str(two))
    return True
