"""Files that people or other programs edit too: exchange, back up, restore.

Their permissions stay, and if they are symbolic links (people keep them in a repository) the
link stays and its target is replaced.

`replace_if_unchanged` swaps the names of the new and the old file, so that the old content is
not lost: if it is not what we had read, another program saved in between, and the names are
swapped back. The old file is kept aside for a while, because an editor may still write to it.
After a crash the name holds the old file or the new one, whole.
"""

import ctypes
import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from flightlog.model.errors import Conflict, NotFound
from flightlog.store import files

_NEW_FILE_MODE = 0o600  # settings may hold keys
_AT_FDCWD = -100  # <fcntl.h>: paths are relative to the current directory
_RENAME_EXCHANGE = 2  # <linux/fs.h>
_RENAME_SWAP = 2  # <sys/stdio.h> of macOS
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


def read_if_exists(path: Path) -> bytes | None:
    """Return the bytes of `path`, or None if it does not exist."""
    try:
        with files.os_errors_as_unavailable(path):
            return path.read_bytes()
    except FileNotFoundError:
        return None


def replace_or_conflict(path: Path, old: bytes | None, new: bytes) -> None:
    """Write `new` to `path`; raise `Conflict` if it no longer holds `old`."""
    target = path.resolve()
    with files.os_errors_as_unavailable(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE_MODE
        temporary = target.with_name(f".{target.name}.flightlog-{os.getpid()}.tmp")
        _write_new_file(temporary, new, mode)
        try:
            if read_if_exists(path) != old:
                hint = "run the command again"
                raise Conflict(f"changed by another program just now: {path}", hint=hint)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        files.sync_dir(target.parent)


def back_up(path: Path, data: bytes) -> Path:
    """Write `data` to a new numbered backup of `path`, unless the last one is equal."""
    backups = list_backups(path)
    if backups and backups[-1].read_bytes() == data:
        return backups[-1]
    number = _backup_number(backups[-1]) + 1 if backups else 1
    copy = path.with_name(f"{path.name}.flightlog-{number}.bak")
    try:
        with files.os_errors_as_unavailable(copy):
            _write_new_file(copy, data, _NEW_FILE_MODE)
            files.sync_dir(copy.parent)
    except FileNotFoundError as error:
        raise NotFound(f"no such directory: {copy.parent}", hint="flightlog doctor") from error
    return copy


def list_backups(path: Path) -> list[Path]:
    """Return the backups of `path`, oldest first."""
    return sorted(path.parent.glob(f"{path.name}.flightlog-*.bak"), key=_backup_number)


def _backup_number(copy: Path) -> int:
    return int(copy.name.rpartition("-")[2].removesuffix(".bak"))


def remove_with_dir(path: Path) -> None:
    """Remove `path`, and its directory if that is empty then."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def _write_new_file(path: Path, data: bytes, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        files.write_all(file, data)
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def replace_if_unchanged(
    path: Path, before: bytes | None, after: bytes, aside: Path, *, durable: bool = True
) -> bool:
    """Write `after` to `path` if it holds `before`, and return whether it did.

    The old file is moved to `aside`.
    """
    with files.open_temporary(path) as (temp, file), files.os_errors_as_unavailable(path):
        files.write_all(file, after)
        if durable:
            os.fsync(file)
        if before is None:
            try:
                os.link(temp, path)  # fails if the file exists
            except FileExistsError:
                return False
            return True
        if read_if_exists(path) != before:
            return False
        if not _swap_files(temp, path):
            files.commit_temporary(temp, file, path, durable=durable)
            return True
        if temp.read_bytes() != before:
            # Another program saved between our read and the swap: its file goes back.
            _swap_files(temp, path)
            return False
        files.ensure_dir(aside.parent)
        temp.rename(aside)
        if durable:
            files.sync_dir(path.parent)
    return True


def _swap_files(one: Path, two: Path) -> bool:
    """Swap the names of two files atomically; return False if the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(two))
    if sys.platform == "darwin":
        failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
    elif hasattr(library, "renameat2"):
        places = (_AT_FDCWD, names[0], _AT_FDCWD, names[1])
        failed = library.renameat2(*places, ctypes.c_uint(_RENAME_EXCHANGE))
    else:
        return False
    if failed:
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number), str(two))
    return True
