"""Whole directories: made aside and given their name at once, swept when their maker died."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.store.files import ensure_dir, is_running, os_errors_as_unavailable, process_tag, sync_dir

_ASIDE = re.compile(r"\..+\.(?P<owner>\d+-\d+-[0-9a-f]+)\.making")


@contextmanager
def staging_dir(parent: Path, name: str) -> Iterator[Path]:
    """Make a directory under a passing name; it is gone afterwards unless it was given its own with `appear`."""
    ensure_dir(parent)
    path = parent / f".{name}.{process_tag()}.making"
    with os_errors_as_unavailable(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish_dir(path: Path, final: Path) -> bool:
    """Give a directory its name, with all that is in it; say whether that name was free."""
    with os_errors_as_unavailable(final):
        sync_dir(path)
        if final.exists():
            return False
        try:
            path.rename(final)
        except OSError:
            if final.exists():
                return False
            raise
        sync_dir(final.parent)
    return True


def remove_abandoned_dirs(parent: Path) -> list[Path]:
    """Remove what makers that died left unfinished."""
    gone = []
    with suppress(FileNotFoundError), os_errors_as_unavailable(parent):
        for path in sorted(parent.iterdir()):
            named = _ASIDE.fullmatch(path.name)
            if named and not is_running(named["owner"]):
                shutil.rmtree(path, ignore_errors=True)
                gone.append(path)
    return gone
