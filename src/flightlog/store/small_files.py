"""Small private files written whole: a crash leaves the old one or the new one, never half.

For keys and consents: a few hundred bytes, readable by their owner alone.
"""

import os
import tempfile
from pathlib import Path

PRIVATE = 0o600


def replace(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Put `data` at `path`, durable and with `mode`, in a directory made for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def create(path: Path, data: bytes) -> bool:
    """Put `data` at `path` unless something is there already; say whether it was put."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)  # fails if there is one, so two starters agree on one
    except FileExistsError:
        return False
    finally:
        Path(name).unlink(missing_ok=True)
    _sync_directory(path.parent)
    return True


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
