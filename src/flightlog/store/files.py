"""Whole files: replaced at once, set aside, and kept inside their directory.

Knows paths and bytes, not what they mean. After a crash a file is the old one or the new one;
a temporary file may stay behind, and carries its owner's process so that `sweep` can tell.
"""

import errno
import functools
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.runtime import Runtime

_TEMP = re.compile(r"\..+\.(?P<owner>\d+-\d+-[0-9a-f]+)-\d+\.tmp")
_PART_BYTES_MAX = 255
_SYNCS_MAX = 16

sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync.


def replace_file(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Make `path` hold `data`, whole, or leave it as it was."""
    with open_temporary(path, durable=durable) as (temp, file), os_errors_as_unavailable(path):
        write_all(file, data)
        os.fchmod(file, mode)
        commit_temporary(temp, file, path, durable=durable)


def create_file(path: Path, data: bytes, *, durable: bool = True) -> bool:
    """Make `path` hold `data` unless there is something already; say whether it was made."""
    with open_temporary(path, durable=durable) as (temp, file), os_errors_as_unavailable(path):
        write_all(file, data)
        if durable:
            os.fsync(file)
        try:
            os.link(temp, path)  # fails when there is one, so that two starters agree on one
        except FileExistsError:
            return False
        if durable:
            sync_dir(path.parent)
    return True


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that were written without it survive a power cut, all of them together."""
    listed = list(paths)
    if not listed:
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - brings much along, and few writers need it

    # The waits overlap, and file systems commit what waits together at once.
    with ThreadPoolExecutor(min(_SYNCS_MAX, len(listed)), thread_name_prefix="sync") as pool:
        list(pool.map(_sync_file, listed))
    for folder in {path.parent for path in listed}:
        with os_errors_as_unavailable(folder):
            sync_dir(folder)


def _sync_file(path: Path) -> None:
    with os_errors_as_unavailable(path):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def rename_file(path: Path, name: str) -> Path:
    """Give a file another name in its directory, unless that is taken; return where it is then."""
    target = path.with_name(name)
    with os_errors_as_unavailable(path):
        if not target.exists():
            path.rename(target)
            sync_dir(path.parent)
    return target


@contextmanager
def open_temporary(path: Path, *, durable: bool = True) -> Iterator[tuple[Path, int]]:
    """Open a private file beside `path`; it is gone afterwards unless it was committed."""
    ensure_dir(path.parent, durable=durable)
    temp = path.with_name(f".{path.name[:120]}.{process_tag()}-{threading.get_native_id()}.tmp")
    with os_errors_as_unavailable(path):
        temp.unlink(missing_ok=True)
        file = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        yield temp, file
    finally:
        os.close(file)
        with suppress(OSError):
            temp.unlink(missing_ok=True)


def commit_temporary(temp: Path, file: int, path: Path, *, durable: bool = True) -> None:
    """Give the file open at `temp` the name `path`."""
    if durable:
        os.fsync(file)
    temp.rename(path)
    if durable:
        sync_dir(path.parent)


def write_all(file: int, data: bytes) -> None:
    """Write all of `data` at the file's position."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def quarantine_file(path: Path) -> Path:
    """Set `path` aside under a new numbered name and return it; what was set aside before stays."""
    with os_errors_as_unavailable(path):
        number = 1
        while True:
            aside = path.with_name(f"{path.name}.damaged-{number}")
            try:
                os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                number += 1
            else:
                break
        # The empty file reserves the name; the rename puts the evidence in its place.
        path.rename(aside)
        sync_dir(path.parent)
    return aside


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files; one that is gone already is as good."""
    folders = set()
    for path in paths:
        with os_errors_as_unavailable(path):
            path.unlink(missing_ok=True)
        folders.add(path.parent)
    for folder in folders:
        with os_errors_as_unavailable(folder):
            sync_dir(folder)


def set_aside(path: Path, folder: Path) -> Path:
    """Copy `path` into `folder` under a new numbered name and return it; the same bytes are kept once."""
    data = path.read_bytes()
    number = 1
    while True:
        aside = folder / f"{path.name}.damaged-{number}"
        if create_file(aside, data) or aside.read_bytes() == data:
            return aside
        number += 1


def remove_stale_temps(directory: Path, older_than_s: float, now: float) -> list[Path]:
    """Remove temporary files left by processes that are gone and return their paths."""
    swept = []
    with os_errors_as_unavailable(directory):
        listed = sorted(directory.iterdir())
    for path in listed:
        named = _TEMP.fullmatch(path.name)
        if not named or is_running(named["owner"]):
            continue
        with suppress(FileNotFoundError), os_errors_as_unavailable(path):
            if now - path.lstat().st_mtime > older_than_s:
                path.unlink()
                swept.append(path)
    return swept


def ensure_dir(path: Path, *, durable: bool = True) -> None:
    """Make `path` and its parents, for their owner only, with names that survive a power cut if `durable`."""
    if path.is_dir():
        return
    ensure_dir(path.parent, durable=durable)
    with os_errors_as_unavailable(path):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if not path.is_dir():
            raise Invalid(f"not a directory: {path}", hint="move that file away")
        if durable:
            sync_dir(path.parent)


def resolve_inside(root: Path, name: str) -> Path:
    """Return the path of `name` under `root`, or refuse it: no way out, by dots or by a symlink."""
    parts = name.split("/")
    if not all(_is_plain(part) for part in parts):
        raise Invalid(f"not a name for a file of ours: {name[:60]!r}", hint="use a relative path without '..'")
    top = root.resolve()
    path = top.joinpath(*parts)
    if not path.parent.resolve().is_relative_to(top) or not path.resolve().is_relative_to(top):
        raise Invalid(f"a symbolic link leads out of the directory: {name[:60]!r}", hint="remove the link")
    return path


def find_project(folder: Path) -> Path:
    """Return the top of the repository that holds `folder`, else `folder` itself; no git is run."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def contained_in_project(runtime: Runtime, path: Path) -> Path:
    """Return `path`, or refuse it if a symbolic link leads it out of the current project."""
    return ensure_contained(find_project(Path(runtime.cwd)), path)


def ensure_contained(project: Path, path: Path) -> Path:
    """Return `path`, or raise Invalid if it lies in `project` by name and a symbolic link leads it out.

    A cloned repository can ship such a link in place of a directory that we would write to.
    """
    top, named = os.path.realpath(project), os.path.abspath(path)  # noqa: PTH100 - must not follow links
    inside_by_name = Path(named).is_relative_to(top) or Path(named).is_relative_to(os.path.abspath(project))  # noqa: PTH100
    if inside_by_name and not Path(os.path.realpath(path)).is_relative_to(top):
        raise Invalid(f"a symbolic link leads out of the project: {path}", hint="remove the link, or name its target")
    return path


@contextmanager
def os_errors_as_unavailable(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one a person can act on."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = "free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "flightlog doctor"
        raise Unavailable(f"the file system refuses: {error.strerror}: {path}", hint=hint) from error


def sync_dir(path: Path) -> None:
    """Make the names in `path` survive a power cut."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def process_tag() -> str:
    """Name this process so that no other has the name: number, start, boot."""
    return _own_name()


def process_name(pid: int) -> str:
    """Name a process so that no other has the name; `is_running` knows it by that."""
    return f"{pid}-{_process_start_ticks(pid)}-{_read_boot_id()}"


@functools.cache
def _own_name() -> str:
    return process_name(os.getpid())


# Asking the system takes a while, and every temporary file wants to know.
os.register_at_fork(after_in_child=_own_name.cache_clear)


def is_running(name: str) -> bool:
    """Say whether the process that was named still runs on this machine."""
    pid, started, boot = name.split("-")
    return boot == _read_boot_id() and started != "0" and _process_start_ticks(int(pid)) == int(started)


def _is_plain(part: str) -> bool:
    plain = part not in {"", ".", ".."} and part.isprintable() and "\\" not in part
    return plain and len(part.encode("utf-8", "surrogatepass")) <= _PART_BYTES_MAX


def _process_start_ticks(pid: int) -> int:
    """When the process started, in ticks since boot; 0 when it is gone or the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


@functools.cache
def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    except OSError:
        return "0"
