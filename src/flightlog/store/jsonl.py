"""Lines: appended whole from many processes at once, read back whatever happened to the file.

A writer that dies leaves at most half a line, which the next writer seals off, so it costs
nobody else a record. A reader never stops at damage. Knows that a record is a JSON object on
one line, and nothing about what it says.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from flightlog.model.errors import Damage, Invalid
from flightlog.store import salvage
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, process_tag, sync_data, sync_dir
from flightlog.store.locks import WAIT_S, LocksUnavailable, lock_file

LINE_BYTES_MAX = 16 << 20
READ_BYTES_MAX = 256 << 20
TORN_TAIL = "torn at the end"
_CHUNK_BYTES = 1 << 20

ReadAt = Callable[[int, int], bytes]
Last = Callable[[int], bytes]


class LineLocation(NamedTuple):
    """Where a line was put."""

    path: Path
    offset: int
    length: int


class JsonlLine(Struct, frozen=True):
    """One sound record. `length` counts the bytes in the file; `data` differs only where text was mended."""

    path: str
    offset: int
    length: int
    data: bytes


def append_line(path: Path, line: bytes, *, durable: bool = False) -> LineLocation:
    """Append `line`, sealing off what an earlier crash left half written."""
    return append_built_line(path, lambda _: line, durable=durable)


def append_built_line(path: Path, make: Callable[[Last], bytes], *, durable: bool = False) -> LineLocation:
    """Append the line `make` returns; it is called with the file locked and may look at its last bytes."""
    while True:
        try:
            with os_errors_as_unavailable(path):
                place = _append_under_lock(path, make, durable=durable)
        except FileNotFoundError:
            ensure_dir(path.parent)
        else:
            if place:
                return place


def list_shards(path: Path) -> list[Path]:
    """List the files that stand in for `path` where it could not be locked."""
    return sorted(path.parent.glob(f"{path.name}.*.shard.jsonl"))


def read_together(path: Path) -> Iterator[JsonlLine | Damage]:
    """Read `path` and its shards as one."""
    for each in [path, *list_shards(path)]:
        with suppress(FileNotFoundError):
            yield from read_lines(each)


def read_lines(path: Path, start: int = 0) -> Iterator[JsonlLine | Damage]:
    """Read every sound record from the line that begins at `start`, and the damage between them.

    To follow a growing file, go on at the end of the last item, or at its offset if it is `TORN_TAIL`.
    """
    with os_errors_as_unavailable(path):
        file = os.open(path, os.O_RDONLY)
    try:
        yield from scan_lines(str(path), partial(_read_at, path, file), start)
    finally:
        os.close(file)


def scan_lines(
    name: str, read_at: ReadAt, start: int = 0, longest: int = READ_BYTES_MAX
) -> Iterator[JsonlLine | Damage]:
    """Read lines through `read_at(offset, length)`, which answers short at the end only."""
    at = start
    while chunk := read_at(at, _CHUNK_BYTES):
        end = chunk.rfind(b"\n")
        if end >= 0:
            for line in chunk[:end].split(b"\n"):
                yield from _examine_line(name, at, line)
                at += len(line) + 1
            continue
        del chunk
        length, ended = _measure_line(read_at, at)
        if length > longest:
            yield Damage(name, at, length, f"longer than {longest} bytes")
        else:
            yield from _examine_line(name, at, read_at(at, length), is_tail=not ended)
        at += length + ended


def _append_under_lock(path: Path, make: Callable[[Last], bytes], *, durable: bool) -> LineLocation | None:
    """Append under the file's lock, or to a shard of our own; None when the file was moved while we waited."""
    file = _open_for_append(path)
    try:
        try:
            lock_file(file, path, limit_s=WAIT_S)
        except LocksUnavailable:
            return _append_shard(path, make, durable=durable)
        if not os.path.samestat(os.fstat(file), path.stat()):
            return None
        return _append_to_file(file, path, make, durable=durable)
    finally:
        os.close(file)


def _append_shard(path: Path, make: Callable[[Last], bytes], *, durable: bool) -> LineLocation:
    """Without locks, nobody else may share the file: each thread of each process has its own."""
    path = path.with_name(f"{path.name}.{process_tag()}-{threading.get_native_id()}.shard.jsonl")
    file = _open_for_append(path)
    try:
        return _append_to_file(file, path, make, durable=durable)
    finally:
        os.close(file)


def _append_to_file(file: int, path: Path, make: Callable[[Last], bytes], *, durable: bool) -> LineLocation:
    size = os.fstat(file).st_size
    if size == 0:
        # Before the first byte, so that a file that holds bytes has a name that survives a power cut.
        sync_dir(path.parent)
    line = make(lambda count: os.pread(file, count, max(0, size - count)))
    assert line, "a record is not empty"
    assert b"\n" not in line, "a record is one line"
    if len(line) > LINE_BYTES_MAX:
        raise Invalid(f"a line of {len(line)} bytes: {path}", hint="large content belongs in a blob")
    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    _write_or_undo(file, size, (b"\n" if is_torn else b"") + line + b"\n", durable=durable)
    return LineLocation(path, size + is_torn, len(line))


def _write_or_undo(file: int, size: int, data: bytes, *, durable: bool) -> None:
    """Write `data` in one call; take it back when it did not all arrive."""
    written = 0
    try:
        written = os.write(file, data)
        _require_all_written(written, data)
        if durable:
            sync_data(file)
    except OSError:
        with suppress(OSError):
            if os.fstat(file).st_size == size + written:
                os.ftruncate(file, size)
        raise


def _require_all_written(written: int, data: bytes) -> None:
    if written < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _read_at(path: Path, file: int, offset: int, length: int) -> bytes:
    """Read `length` bytes, fewer only at the end of the file."""
    with os_errors_as_unavailable(path):
        return os.pread(file, length, offset)


def _measure_line(read_at: ReadAt, start: int) -> tuple[int, bool]:
    """Find how long the line at `start` is and whether it has an end, without holding it."""
    at = start
    while chunk := read_at(at, _CHUNK_BYTES):
        end = chunk.find(b"\n")
        if end >= 0:
            return at + end - start, True
        at += len(chunk)
    return at - start, False


def _examine_line(name: str, offset: int, line: bytes, *, is_tail: bool = False) -> Iterator[JsonlLine | Damage]:
    if not line.strip(b" \t\r"):
        return
    if salvage.is_sound(line):
        yield JsonlLine(name, offset, len(line), line)
        return
    for span in salvage.iter_spans(line):
        if not span.why:
            yield from _repair_record(name, offset + span.start, line[span.start : span.end])
        else:
            why = TORN_TAIL if is_tail and span.end == len(line) else span.why
            yield Damage(name, offset + span.start, span.end - span.start, why)


def _repair_record(name: str, offset: int, record: bytes) -> Iterator[JsonlLine | Damage]:
    data, bad = salvage.repair_text(record)
    if not salvage.is_sound(data):
        yield Damage(name, offset, len(record), "nested too deeply")
        return
    if bad:
        yield Damage(name, offset + bad.start, bad.end - bad.start, bad.why)
    yield JsonlLine(name, offset, len(record), data)
