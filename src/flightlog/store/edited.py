"""Files that people edit while we write them: exchanged, never simply overwritten.

A new file takes the old one's name by an exchange of names, so that whatever stood there is
still in our hands: if it is not what we had read, somebody saved in between, and their file is
put back. The one exchanged out is kept beside for a while, because an editor may still write
into it. After a crash the name holds the old file or the new one, whole.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path

from flightlog.store.files import (
    commit_temporary,
    ensure_dir,
    open_temporary,
    os_errors_as_unavailable,
    sync_dir,
    write_all,
)
from flightlog.store.settings_file import read_if_exists

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


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
