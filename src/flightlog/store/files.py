"""Whole files: replace them atomically, set them aside, keep them inside their directory.

After a crash a file is the old one or the new one. A temporary file may be left; its name has
the process that made it, so that `remove_stale_temps` can remove it.
"""

import errno
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.runtime import Runtime

_TEMP = re.compile(r"\..+\.(?P<owner>\d+-\d+-[0-9a-f]+)-\d+\.tmp")  # named by `open_temporary`
_PART_BYTES_MAX = 255  # the longest file name of common file systems
_SYNCS_MAX = 16  # threads; more waits do not overlap any better
PROC = Path("/proc")  # macOS has none
_PS = "/bin/ps"  # not by PATH, which may begin with a directory of the project
_PS_LIMIT_S = 5.0  # it takes about 10 ms

sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync.


def replace_file(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Write `data` to `path` atomically: after an error the old content is still there."""
    with open_temporary(path, durable=durable) as (temp, file), os_errors_as_unavailable(path):
        write_all(file, data)
        os.fchmod(file, mode)
        commit_temporary(temp, file, path, durable=durable)


def create_file(path: Path, data: bytes, *, durable: bool = True) -> bool:
    """Write `data` to `path` unless it exists; return whether it was written."""
    with open_temporary(path, durable=durable) as (temp, file), os_errors_as_unavailable(path):
        write_all(file, data)
        if durable:
            os.fsync(file)
        try:
            os.link(temp, path)  # fails if the file exists, so that two writers agree on one
        except FileExistsError:
            return False
        if durable:
            sync_dir(path.parent)
    return True


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that were written without `durable` survive a power cut, all at once."""
    files = list(paths)
    _sync_all([(path, os.O_NOFOLLOW) for path in files], {path.parent for path in files})


def sync_dirs(paths: Iterable[Path]) -> None:
    """Make the names in several directories survive a power cut, all at once."""
    _sync_all([], set(paths))


def _sync_all(files: list[tuple[Path, int]], folders: set[Path]) -> None:
    todo = [*files, *((path, os.O_DIRECTORY) for path in folders)]
    if not todo:
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to load, needed by few

    # The waits overlap, and file systems commit them together.
    with ThreadPoolExecutor(min(_SYNCS_MAX, len(todo)), thread_name_prefix="sync") as pool:
        list(pool.map(_fsync, *zip(*todo, strict=True)))


def rename_file(path: Path, name: str) -> Path:
    """Rename a file in its directory unless the new name exists; return the new path."""
    target = path.with_name(name)
    with os_errors_as_unavailable(path):
        if not target.exists():
            path.rename(target)
            sync_dir(path.parent)
    return target


@contextmanager
def open_temporary(path: Path, *, durable: bool = True) -> Iterator[tuple[Path, int]]:
    """Open a private file beside `path`; it is removed afterwards unless it was committed."""
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
    """Rename the open file `temp` to `path`."""
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
    """Rename `path` to a new numbered name beside it and return that; earlier ones stay."""
    with os_errors_as_unavailable(path):
        for number in itertools.count(1):
            aside = path.with_name(f"{path.name}.damaged-{number}")
            # The empty file reserves the name; the rename replaces it.
            with suppress(FileExistsError):
                os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
        path.rename(aside)
        sync_dir(path.parent)
    return aside


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files durably; a missing one is not an error."""
    folders = set()
    for path in paths:
        with os_errors_as_unavailable(path):
            path.unlink(missing_ok=True)
        folders.add(path.parent)
    for folder in folders:
        sync_dir(folder)


def set_aside(path: Path, folder: Path) -> Path:
    """Copy `path` into `folder` under a numbered name, equal bytes once; return the copy."""
    data = path.read_bytes()
    copies = (folder / f"{path.name}.damaged-{number}" for number in itertools.count(1))
    return next(copy for copy in copies if create_file(copy, data) or copy.read_bytes() == data)


def remove_stale_temps(directory: Path, older_than_s: float, now: float) -> list[Path]:
    """Remove temporary files of processes that ended and return their paths."""
    removed = []
    with os_errors_as_unavailable(directory):
        paths = sorted(directory.iterdir())
    for path in paths:
        match = _TEMP.fullmatch(path.name)
        if not match or is_running(match["owner"]):
            continue
        with suppress(FileNotFoundError), os_errors_as_unavailable(path):
            if now - path.lstat().st_mtime > older_than_s:
                path.unlink()
                removed.append(path)
    return removed


def ensure_dir(path: Path, *, durable: bool = True) -> None:
    """Make `path` and its parents, for their owner only; if `durable`, they survive a power cut."""
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
    """Return the path of `name` under `root`; raise `Invalid` if dots or a link lead out of it."""
    parts = name.split("/")
    if not all(map(_is_plain, parts)):
        hint = "use a relative path without '..'"
        raise Invalid(f"not a usable file name: {name[:60]!r}", hint=hint)
    top = root.resolve()
    path = top.joinpath(*parts)
    if not path.parent.resolve().is_relative_to(top) or not path.resolve().is_relative_to(top):
        hint = "remove the link"
        raise Invalid(f"a symbolic link leads out of the directory: {name[:60]!r}", hint=hint)
    return path


def find_project(folder: Path) -> Path:
    """Return the top of the repository that holds `folder`, else `folder`; git is not run."""
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), folder)


def contained_in_project(runtime: Runtime, path: Path) -> Path:
    """Return `path`; raise `Invalid` if a symbolic link leads it out of the current project."""
    return ensure_contained(find_project(Path(runtime.cwd)), path)


def ensure_contained(project: Path, path: Path) -> Path:
    """Return `path`; raise `Invalid` if a symbolic link in `project` leads it out of there.

    A cloned repository can ship such a link in place of a directory that we would write to.
    """
    top, named = os.path.realpath(project), Path(os.path.abspath(path))  # noqa: PTH100 - follows no link
    is_inside = named.is_relative_to(top) or named.is_relative_to(os.path.abspath(project))  # noqa: PTH100
    if is_inside and not Path(os.path.realpath(path)).is_relative_to(top):
        hint = "remove the link, or name its target"
        raise Invalid(f"a symbolic link leads out of the project: {path}", hint=hint)
    return path


@contextmanager
def os_errors_as_unavailable(path: Path) -> Iterator[None]:
    """Raise `Unavailable` for an `OSError` in the block, except for `FileNotFoundError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        hint = "free some space" if is_full else "flightlog doctor"
        raise Unavailable(f"file system error: {error.strerror}: {path}", hint=hint) from error


def sync_dir(path: Path) -> None:
    """Make the names in `path` survive a power cut."""
    _fsync(path, os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    with os_errors_as_unavailable(path):
        file = os.open(path, os.O_RDONLY | flags)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def stat_identity(path: Path) -> tuple[int, int, int] | None:
    """Return inode, time of change and size, which differ after a write; None without a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@functools.cache
def process_tag() -> str:
    """Return the unique name of this process."""
    return process_name(os.getpid())


# Cached, because every temporary file has it in its name; a forked child has another one.
os.register_at_fork(after_in_child=process_tag.cache_clear)


def process_name(pid: int, proc: Path = PROC) -> str:
    """Return a unique name of a process, for `is_running`: pid, start and boot."""
    return f"{pid}-{process_start(pid, proc)}-{_read_boot_id(proc)}"


def is_running(name: str, proc: Path = PROC) -> bool:
    """Return whether the process with this name still runs on this machine."""
    pid, started, boot = name.split("-")
    is_this_boot = boot == _read_boot_id(proc)
    return is_this_boot and started != "0" and process_start(int(pid), proc) == int(started)


def process_start(pid: int, proc: Path = PROC) -> int:
    """Return when the process started, which tells it from a later one with the same pid.

    In ticks since boot, or in seconds since 1970 where there is no /proc; 0 if it ended or that is
    unknown.
    """
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return 0 if has_processes(proc) else read_ps(pid)[1]


def has_processes(proc: Path = PROC) -> bool:
    """Return whether the system lists its processes in `proc`."""
    return (proc / "self").exists()


def read_ps(pid: int) -> tuple[str, int, str]:
    """Return a process's state letter, its start in seconds since 1970, and its command line.

    Runs `ps`, for systems without /proc; the start is 0 if the process ended.
    """
    import calendar  # noqa: PLC0415 - only systems without /proc need it
    import subprocess  # noqa: PLC0415 - as above

    # One `-o` per column: after `=`, the rest of the argument is the column's header.
    command = [_PS, "-o", "stat=", "-o", "lstart=", "-o", "command=", "-p", str(pid)]
    try:
        plain = {"LC_ALL": "C", "TZ": "UTC"}
        result = subprocess.run(
            command, env=plain, capture_output=True, timeout=_PS_LIMIT_S, check=False
        )
        state, *date, line = result.stdout.decode("utf-8", "replace").strip().split(None, 6)
        started_s = calendar.timegm(time.strptime(" ".join(date), "%a %b %d %H:%M:%S %Y"))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return "", 0, ""
    return state, started_s, line


def _is_plain(part: str) -> bool:
    is_name = part not in {"", ".", ".."} and part.isprintable() and "\\" not in part
    return is_name and len(part.encode("utf-8", "surrogatepass")) <= _PART_BYTES_MAX


@functools.cache
def _read_boot_id(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    except OSError:
        return "0"
