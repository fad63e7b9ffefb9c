"""JSON lines: append them whole from many processes, read them back from damaged files.

A writer that dies leaves at most half a line. The next writer terminates it, so no other record
is lost. A reader never stops at damage. A record is a JSON object on one line.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from flightlog.model.errors import Damage, Invalid
from flightlog.store import salvage
from flightlog.store.files import (
    ensure_dir,
    os_errors_as_unavailable,
    process_tag,
    sync_data,
    sync_dir,
)
from flightlog.store.locks import WAIT_S, LocksUnavailable, lock_file

LINE_BYTES_MAX = 16 << 20  # of our own lines; larger content belongs in a blob
# Of foreign lines: images in transcripts make lines of many megabytes.
READ_BYTES_MAX = 256 << 20
TORN_TAIL = "torn at the end"
# Bytes per read: large enough for speed, small enough to keep memory low.
_CHUNK_BYTES = 1 << 20

ReadAt = Callable[[int, int], bytes]  # (offset, length)
Last = Callable[[int], bytes]  # (length): the last bytes of the file


class LineLocation(NamedTuple):
    """Where a line was written."""

    path: Path
    offset: int
    length: int


class JsonlLine(Struct, frozen=True):
    """One sound record. `length` counts bytes in the file; `data` differs only in repaired text."""

    path: str
    offset: int
    length: int
    data: bytes


def append_line(path: Path, line: bytes, *, durable: bool = False) -> LineLocation:
    """Append `line`; if a crash left half a line before it, terminate that first."""
    return append_built_line(path, lambda _: line, durable=durable)


def append_built_line(
    path: Path, make: Callable[[Last], bytes], *, durable: bool = False
) -> LineLocation:
    """Append the line `make(last)` returns; it is called with the file locked."""
    while True:
        try:
            with os_errors_as_unavailable(path):
                location = _append_under_lock(path, make, durable=durable)
        except FileNotFoundError:
            ensure_dir(path.parent)
        else:
            if location:
                return location


def list_shards(path: Path) -> list[Path]:
    """List the files that were written instead of `path` because it could not be locked."""
    return sorted(path.parent.glob(f"{path.name}.*.shard.jsonl"))


def read_together(path: Path) -> Iterator[JsonlLine | Damage]:
    """Yield the records and damage of `path`, then of its shards."""
    for file in [path, *list_shards(path)]:
        with suppress(FileNotFoundError):
            yield from read_lines(file)


def read_lines(path: Path, start: int = 0) -> Iterator[JsonlLine | Damage]:
    """Yield every sound record from the line that begins at `start`, and the damage between them.

    To follow a growing file, continue at the end of the last item, or at its offset if it is
    `TORN_TAIL`.
    """

    def read_at(offset: int, length: int) -> bytes:
        with os_errors_as_unavailable(path):
            return os.pread(file, length, offset)

    with os_errors_as_unavailable(path):
        file = os.open(path, os.O_RDONLY)
    try:
        yield from scan_lines(str(path), read_at, start)
    finally:
        os.close(file)


def scan_lines(
    name: str, read_at: ReadAt, start: int = 0, longest: int = READ_BYTES_MAX
) -> Iterator[JsonlLine | Damage]:
    """Yield records and damage; `read_at(offset, length)` returns less only at the end."""
    at = start
    while chunk := read_at(at, _CHUNK_BYTES):
        end = chunk.rfind(b"\n")
        if end >= 0:
            for line in chunk[:end].split(b"\n"):
                yield from _examine_line(name, at, line)
                at += len(line) + 1
            continue
        del chunk
        length, has_end = _measure_line(read_at, at)
        if length > longest:
            yield Damage(name, at, length, f"longer than {longest} bytes")
        else:
            yield from _examine_line(name, at, read_at(at, length), is_tail=not has_end)
        at += length + has_end


def last_line_end(read_at: ReadAt, end: int) -> int:
    """Return where the last whole line before `end` ends; the next is not finished yet."""
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        newline = read_at(start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _append_under_lock(
    path: Path, make: Callable[[Last], bytes], *, durable: bool
) -> LineLocation | None:
    """Append under the file's lock; return None if the file was moved while we waited."""
    with _open_for_append(path) as file:
        try:
            lock_file(file, path, limit_s=WAIT_S)
        except LocksUnavailable:
            pass
        else:
            is_moved = not os.path.samestat(os.fstat(file), path.stat())
            return None if is_moved else _append_to_file(file, path, make, durable=durable)
    # Without locks no file can be shared: each thread of each process has its own.
    path = path.with_name(f"{path.name}.{process_tag()}-{threading.get_native_id()}.shard.jsonl")
    with _open_for_append(path) as file:
        return _append_to_file(file, path, make, durable=durable)


def _append_to_file(
    file: int, path: Path, make: Callable[[Last], bytes], *, durable: bool
) -> LineLocation:
    size = os.fstat(file).st_size
    if size == 0:
        # Before the first byte, so that the name of a file with content survives a power cut.
        sync_dir(path.parent)
    line = make(lambda count: os.pread(file, count, max(0, size - count)))
    assert line, "a record is not empty"
    assert b"\n" not in line, "a record is one line"
    if len(line) > LINE_BYTES_MAX:
        hint = "large content belongs in a blob"
        raise Invalid(f"a line of {len(line)} bytes: {path}", hint=hint)
    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    _write_or_undo(file, size, (b"\n" if is_torn else b"") + line + b"\n", durable=durable)
    return LineLocation(path, size + is_torn, len(line))


def _write_or_undo(file: int, size: int, data: bytes, *, durable: bool) -> None:
    """Write `data` in one call; remove it again if it was not written whole."""
    written = 0
    try:
        written = os.write(file, data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - undone below
        if durable:
            sync_data(file)
    except OSError:
        with suppress(OSError):
            if os.fstat(file).st_size == size + written:
                os.ftruncate(file, size)
        raise


@contextmanager
def _open_for_append(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _measure_line(read_at: ReadAt, start: int) -> tuple[int, bool]:
    """Return the length of the line at `start` and whether it has an end, without storing it."""
    at = start
    while chunk := read_at(at, _CHUNK_BYTES):
        end = chunk.find(b"\n")
        if end >= 0:
            return at + end - start, True
        at += len(chunk)
    return at - start, False


def _examine_line(
    name: str, offset: int, line: bytes, *, is_tail: bool = False
) -> Iterator[JsonlLine | Damage]:
    if not line.strip(b" \t\r"):
        return
    if salvage.is_sound(line):
        yield JsonlLine(name, offset, len(line), line)
        return
    for span in salvage.iter_spans(line):
        if not span.reason:
            yield from _repair_record(name, offset + span.start, line[span.start : span.end])
        else:
            why = TORN_TAIL if is_tail and span.end == len(line) else span.reason
            yield Damage(name, offset + span.start, span.end - span.start, why)


def _repair_record(name: str, offset: int, record: bytes) -> Iterator[JsonlLine | Damage]:
    data, bad = salvage.repair_text(record)
    if not salvage.is_sound(data):
        yield Damage(name, offset, len(record), "nested too deeply")
        return
    if bad:
        yield Damage(name, offset + bad.start, bad.end - bad.start, bad.reason)
    yield JsonlLine(name, offset, len(record), data)
