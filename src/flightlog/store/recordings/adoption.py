"""Extend our copy by the new bytes; whole sessions under one lock.

The copy itself says how far it got; `Seen` only remembers what the source looked like, so that an
unchanged file costs one look. A crash repeats work and loses nothing. A source that was
truncated, replaced or rewritten begins a new generation beside the old one. Never a hard link: the
agent would rewrite ours with its own.

Every report asks this, so nothing here loads what adopts or unpacks.
"""

import fcntl
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.model.addresses import check_id, is_safe
from flightlog.model.errors import Invalid, Unreadable
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, sync_data, sync_dir
from flightlog.store.recordings.recording import (
    Recording,
    finish_sealing,
    generation_path,
    list_generations,
    list_segments,
    open_recording,
)

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

_FICLONE = 0x40049409
_BLOCK_BYTES = 4096
_BLOCKS = 8
_COPY_BYTES = 1 << 20
Check = Callable[[Recording], bool | None]
REWRITTEN = ".rewritten"
DAMAGED = ".damaged"
ADOPTED = ".adopted"
TRANSCRIPT = "transcript.jsonl"  # the main thread, in our copies of sessions and in runs
_THREAD = r"(transcript|agent-[A-Za-z0-9._-]+?)(?:\.g\d+)?\.jsonl(?:\.from-\d+(?:\.zst)?)?"


class SourceState(Struct, frozen=True):
    """What a source looked like when it was adopted to its end."""

    source: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    generation: int
    lines_end: int


class AdoptionResult(Struct, frozen=True):
    """What one adoption did: the bytes `[start, end)` are new; whole lines reach to `seen.lines_end`."""

    path: Path
    start: int
    end: int
    seen: SourceState


def adopt_file(source: Path, dest: Path, seen: SourceState | None = None, check: Check | None = None) -> AdoptionResult:
    """Extend our copy `dest` by what is new in `source`; the caller holds the session's lock.

    `check` says whether the end of a copy is as the manifest has it; if it does not know, the whole copy is compared.
    """
    file = _open_source(source)
    try:
        with os_errors_as_unavailable(dest):
            return _adopt_open_file(file, source, dest, seen, check)
    finally:
        os.close(file)


def _adopt_open_file(
    file: int, source: Path, dest: Path, seen: SourceState | None, check: Check | None
) -> AdoptionResult:
    now = os.fstat(file)
    if seen and _is_unchanged(seen, source, now) and _has_copy(generation_path(dest, seen.generation)):
        return AdoptionResult(generation_path(dest, seen.generation), seen.size, seen.size, seen)
    number = max(list_generations(dest), default=1)
    path = generation_path(dest, number)
    start = _find_copy_end(file, now.st_size, path, check)
    if start is None:
        number, start = number + 1, 0
        path = generation_path(dest, number)
    end = _extend_copy(file, path, start, now.st_size)
    looks = (str(source), now.st_dev, now.st_ino, end, now.st_mtime_ns)
    return AdoptionResult(path, start, end, SourceState(*looks, generation=number, lines_end=last_line_end(path, end)))


def _open_source(source: Path) -> int:
    """Open a source for reading, if it is a plain file; never wait on a pipe, never follow a link."""
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Invalid(f"cannot read: {error.strerror}: {source}", hint="flightlog doctor") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Invalid(f"not a plain file: {source}", hint="only plain files are adopted")
    return file


def _is_unchanged(seen: SourceState, source: Path, now: os.stat_result) -> bool:
    looks = (str(source), now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    return looks == (seen.source, seen.device, seen.inode, seen.size, seen.mtime_ns)


def _has_copy(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.from-0.zst").exists()


def _find_copy_end(file: int, size: int, path: Path, check: Check | None) -> int | None:
    """Where the copy ends, if the source still begins with it; None when it was rewritten."""
    if not list_segments(path):
        return 0
    finish_sealing(path)
    with open_recording(path) as copy:
        end = copy.size
        try:
            is_sound = check(copy) if check else True
            compare = _is_begin_same if is_sound and size != end else _is_whole_same
            same = is_sound is not False and compare(file, copy)
        except Unreadable:
            return None
    return end if same else None


def _is_whole_same(file: int, copy: Recording) -> bool:
    """Compare all: nothing was added, yet the source looks changed, or there is no manifest of the copy."""
    pieces = ((at, copy.read(at, _COPY_BYTES)) for at in range(0, copy.size, _COPY_BYTES))
    return all(piece == os.pread(file, len(piece), at) for at, piece in pieces)


def _is_begin_same(file: int, copy: Recording) -> bool:
    """Compare a few blocks, the first and the last of our copy among them: an edit moves what follows it."""
    last = max(0, copy.size - _BLOCK_BYTES)
    places = {last * number // (_BLOCKS - 1) for number in range(_BLOCKS)}
    lengths = {at: min(_BLOCK_BYTES, copy.size - at) for at in places}
    return all(copy.read(at, length) == os.pread(file, length, at) for at, length in lengths.items())


def _extend_copy(file: int, path: Path, start: int, end: int) -> int:
    """Copy `[start, end)` of the source behind our copy and return where it ends now."""
    ensure_dir(path.parent)
    live = [part for part in list_segments(path) if not part.is_sealed]
    offset = next((part.offset for part in live if part.offset + part.path.stat().st_size == start), start)
    target = path if offset == 0 else path.with_name(f"{path.name}.from-{offset}")
    if start == end and (start or target.exists()):
        return end
    out = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if start or not _try_clone(file, out):
            _copy_range(file, out, start, end, offset)
        sync_data(out)
        if start == offset:
            sync_dir(path.parent)
        return offset + os.fstat(out).st_size
    finally:
        os.close(out)


def _try_clone(file: int, out: int) -> bool:
    """Share the source's blocks where the file system can; later writes to either do not show in the other."""
    try:
        fcntl.ioctl(out, _FICLONE, file)
    except OSError:
        return False
    return True


def _copy_range(file: int, out: int, start: int, end: int, offset: int) -> None:
    at = start
    while at < end and (moved := _copy_some_bytes(file, out, at, min(end - at, _COPY_BYTES << 6), at - offset)):
        at += moved


def _copy_some_bytes(file: int, out: int, at: int, count: int, to: int) -> int:
    """Move some bytes, inside the kernel if it can; an error that is real shows again the plain way."""
    with suppress(OSError, AttributeError):
        if moved := os.copy_file_range(file, out, count, at, to):
            return moved
    return os.pwrite(out, os.pread(file, min(count, _COPY_BYTES), at), to)


def last_line_end(path: Path, end: int) -> int:
    """Where the last whole line ends; behind it stands a line that is still being written."""
    with open_recording(path) as copy:
        at = end
        while at > 0:
            start = max(0, at - _COPY_BYTES)
            found = copy.read(start, at - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            at = start
    return 0


def session_dir(home: "PathLike[str] | str", agent: str, session: str) -> "Path":
    """Name the directory of a session; the ids come from outside and are checked."""
    from pathlib import Path  # noqa: PLC0415 - only where there is one

    return Path(home) / "sessions" / check_id(agent) / check_id(session)


def list_recorded_sessions(home: "PathLike[str] | str", agent: str) -> tuple[set[str], set[str]]:
    """Name the sessions we have copies of, readable or not, and those of them whose sources were rewritten."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(root), _list_safe_names(f"{root}/{REWRITTEN}")


def list_damaged_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Name the sessions whose copies were found damaged and are still there."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{DAMAGED}") & _list_safe_names(root)


def lost_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Name the sessions that were copied once and have no directory any more."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{ADOPTED}") - _list_safe_names(root)


def list_recorded_transcripts(home: "PathLike[str] | str", agent: str, session: str) -> dict[str, list[int]]:
    """Name the transcripts kept for a session, with their generations; raise `OSError` where it cannot be read."""
    from flightlog.store.recordings.recording import list_generations  # noqa: PLC0415 - as above

    root = session_dir(home, agent, session)
    found: dict[str, list[int]] = {}
    for folder in (root, root / "subagents"):
        for name in {match[1] for each in _list_dir_names(folder) if (match := re.fullmatch(_THREAD, each))}:
            path = folder / f"{name}.jsonl"
            found[str(path.relative_to(root))] = list_generations(path)
    return found


def _list_safe_names(root: str) -> set[str]:
    try:
        return set(filter(is_safe, os.listdir(root)))  # noqa: PTH208 - no report waits for pathlib
    except OSError:
        return set()


def _list_dir_names(folder: "Path") -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except FileNotFoundError:
        return []
