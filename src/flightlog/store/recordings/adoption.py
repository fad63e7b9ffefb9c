"""Extend our copy of a file by the new bytes of its source; list the sessions we have copies of.

The size of the copy says how far it got; `SourceState` only saves the state of the source, so that an
unchanged file costs one `fstat`. A crash repeats work and loses nothing. If a source was
truncated, replaced or rewritten, a new generation begins beside the old one. A copy is never a
hard link: the agent would rewrite ours with its own.
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
from flightlog.store.jsonl import last_line_end
from flightlog.store.recordings import recording

if TYPE_CHECKING:
    from os import PathLike


_FICLONE = 0x40049409  # <linux/fs.h>: share the blocks of another file
_BLOCK_BYTES = 4096  # a page: the kernel reads no less
_BLOCKS = 8  # blocks compared to see whether a file that grew was rewritten
_COPY_BYTES = 1 << 20  # per read
Check = Callable[[recording.Recording], bool | None]
REWRITTEN = ".rewritten"
DAMAGED = ".damaged"
ADOPTED = ".adopted"
TRANSCRIPT = "transcript.jsonl"  # the main thread, in our copies of sessions and in runs
# The segments of a thread's transcript, with its name as group 1.
_THREAD = r"(transcript|agent-[A-Za-z0-9._-]+?)(?:\.g\d+)?\.jsonl(?:\.from-\d+(?:\.zst)?)?"


class SourceState(Struct, frozen=True):
    """The state of a source when it was adopted to its end."""

    source: str
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    generation: int
    line_end_offset: int


class AdoptionResult(Struct, frozen=True):
    """The result of one adoption: `[start, end)` is new; whole lines end at `source_state.line_end_offset`."""

    path: Path
    start: int
    end: int
    source_state: SourceState


def adopt_file(
    source: Path, dest: Path, seen: SourceState | None = None, check: Check | None = None
) -> AdoptionResult:
    """Extend our copy `dest` by what is new in `source`; the caller holds the session's lock.

    `check` returns whether the end of a copy is as the manifest has it; if it returns None, the
    whole copy is compared.
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
    if seen and _is_unchanged(seen, source, now):
        copy_path = recording.generation_path(dest, seen.generation)
        if copy_path.exists() or copy_path.with_name(f"{copy_path.name}.from-0.zst").exists():
            return AdoptionResult(copy_path, seen.size_bytes, seen.size_bytes, seen)
    number = max(recording.list_generations(dest), default=1)
    path = recording.generation_path(dest, number)
    start = _find_copy_end(file, now.st_size, path, check)
    if start is None:
        number, start = number + 1, 0
        path = recording.generation_path(dest, number)
    end = _extend_copy(file, path, start, now.st_size)
    with recording.open_recording(path) as copy:
        lines_end = last_line_end(copy.read, end)
    stat_state = (now.st_dev, now.st_ino, end, now.st_mtime_ns)
    state = SourceState(str(source), *stat_state, number, lines_end)
    return AdoptionResult(path, start, end, state)


def _open_source(source: Path) -> int:
    """Open a source for reading; raise `Invalid` for a link, a pipe or a directory."""
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = "flightlog doctor"
        raise Invalid(f"cannot read: {error.strerror}: {source}", hint=hint) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Invalid(f"not a plain file: {source}", hint="only plain files are adopted")
    return file


def _is_unchanged(seen: SourceState, source: Path, now: os.stat_result) -> bool:
    state = (str(source), now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    return state == (seen.source, seen.device, seen.inode, seen.size_bytes, seen.mtime_ns)


def _find_copy_end(file: int, size: int, path: Path, check: Check | None) -> int | None:
    """Return where the copy ends, or None if the source no longer begins with it."""
    if not recording.list_segments(path):
        return 0
    recording.finish_sealing(path)
    with recording.open_recording(path) as copy:
        end = copy.size
        try:
            is_sound = check(copy) if check else True
            # All is compared if the source changed without growing, or if no manifest has the copy.
            compare = _is_begin_same if is_sound and size != end else _is_whole_same
            is_same = is_sound is not False and compare(file, copy)
        except Unreadable:
            return None
    return end if is_same else None


def _is_whole_same(file: int, copy: recording.Recording) -> bool:
    blocks = ((at, copy.read(at, _COPY_BYTES)) for at in range(0, copy.size, _COPY_BYTES))
    return all(block == os.pread(file, len(block), at) for at, block in blocks)


def _is_begin_same(file: int, copy: recording.Recording) -> bool:
    """Compare a few blocks of our copy, with first and last: an edit moves what follows it."""
    last = max(0, copy.size - _BLOCK_BYTES)
    offsets = {last * number // (_BLOCKS - 1) for number in range(_BLOCKS)}
    lengths = {at: min(_BLOCK_BYTES, copy.size - at) for at in offsets}
    return all(
        copy.read(at, length) == os.pread(file, length, at) for at, length in lengths.items()
    )


def _extend_copy(file: int, path: Path, start: int, end: int) -> int:
    """Append `[start, end)` of the source to our copy and return where the copy ends now."""
    ensure_dir(path.parent)
    live = [part for part in recording.list_segments(path) if not part.is_sealed]
    offset = next(
        (part.offset for part in live if part.offset + part.path.stat().st_size == start), start
    )
    target = path if offset == 0 else path.with_name(f"{path.name}.from-{offset}")
    if start == end and (start or target.exists()):
        return end
    out = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if start or not _try_clone(file, out):
            at = start
            while at < end and (count := _copy_some_bytes(file, out, at, end - at, at - offset)):
                at += count
        sync_data(out)
        if start == offset:
            sync_dir(path.parent)
        return offset + os.fstat(out).st_size
    finally:
        os.close(out)


def _try_clone(file: int, out: int) -> bool:
    """Share the source's blocks if the file system can (copy on write)."""
    try:
        fcntl.ioctl(out, _FICLONE, file)
    except OSError:
        return False
    return True


def _copy_some_bytes(file: int, out: int, at: int, count: int, to: int) -> int:
    """Copy some bytes, in the kernel if it can, and return how many."""
    with suppress(OSError, AttributeError):
        if copied := os.copy_file_range(file, out, min(count, _COPY_BYTES << 6), at, to):
            return copied
    return os.pwrite(out, os.pread(file, min(count, _COPY_BYTES), at), to)


def session_dir(home: "PathLike[str] | str", agent: str, session: str) -> Path:
    """Return the directory of a session; raise `Invalid` for unsafe ids."""
    return Path(home) / "sessions" / check_id(agent) / check_id(session)


def list_recorded_sessions(home: "PathLike[str] | str", agent: str) -> tuple[set[str], set[str]]:
    """Return the sessions we have copies of, and those of them whose sources were rewritten."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(root), _list_safe_names(f"{root}/{REWRITTEN}")


def list_damaged_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Return the sessions whose copies exist and have faults on record."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{DAMAGED}") & _list_safe_names(root)


def lost_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Return the sessions that were copied and whose directory is missing."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{ADOPTED}") - _list_safe_names(root)


def list_recorded_transcripts(
    home: "PathLike[str] | str", agent: str, session: str
) -> dict[str, list[int]]:
    """Return the transcripts of a session with their generations."""
    root = session_dir(home, agent, session)
    transcripts: dict[str, list[int]] = {}
    deeper = (Path(folder) for folder, _, _ in os.walk(root / "subagents"))
    for folder in (root, *deeper):
        with suppress(FileNotFoundError):
            matches = [re.fullmatch(_THREAD, file.name) for file in folder.iterdir()]
            for name in {match[1] for match in matches if match}:
                path = folder / f"{name}.jsonl"
                transcripts[str(path.relative_to(root))] = recording.list_generations(path)
    return transcripts


def _list_safe_names(root: str) -> set[str]:
    try:
        return set(filter(is_safe, os.listdir(root)))  # noqa: PTH208 - names are enough
    except OSError:
        return set()
