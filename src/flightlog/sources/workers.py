"""Fork pool, parallel usage scan, read-ahead process.

Children take task numbers from a shared pipe until none is left, so a busy core does not delay the
others. A child that dies costs time, never a result: what it did not deliver is left to the caller.

Forked children take batches of files and map them into memory. A file that shrinks meanwhile
kills the child; the files it did not deliver are scanned here, so a dead child costs time,
never rows. Serves the bar of a cold report: twice as fast as ccusage on 1 GB.

The two take about the same time, so together they take half. If the reader dies, whoever
waits for it reads the rest.
"""

import gc
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from flightlog.model.session import SessionFile
from flightlog.sources.protocol import UsageScan
from flightlog.sources.usage_rows import pack_rows, response_keys
from flightlog.store.index.files import PendingRead
from flightlog.store.index.records import RecordBatch

if TYPE_CHECKING:
    from io import RawIOBase

TICKETS_MAX = 4096
_TICKET_BYTES = 4
_LENGTH_BYTES = 4
_PARCEL_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")
FORK_ABOVE_BYTES = 64 << 20  # below it, two forks take longer than the scan of one process
_BATCH_BYTES_MIN = 1 << 20
ScanFile = Callable[[SessionFile, int], UsageScan]
_decode_scans = msgspec.msgpack.Decoder(list[tuple[int, UsageScan]]).decode
_RECORDS_LENGTH_BYTES = 8
ReadRecords = Callable[[str, int], RecordBatch]
_encode_records = msgspec.msgpack.Encoder().encode
_decode_records = msgspec.msgpack.Decoder(RecordBatch).decode


def may_fork() -> bool:
    """Return whether this is the only thread; a forked child would never get the locks of others."""
    threading = sys.modules.get("threading")
    return threading is None or threading.active_count() == 1


def run_forked(
    count: int, work: Callable[[int], T], decode: Callable[[bytes | bytearray], T], workers: int
) -> Iterator[T]:
    """Yield the results of `work` for each number below `count` (at most `TICKETS_MAX`), in any order."""
    tickets, box = os.pipe()
    os.write(box, b"".join(number.to_bytes(_TICKET_BYTES, "big") for number in range(count)))
    os.close(box)

    def parcels() -> Iterator[bytearray]:
        done = bytearray()
        while ticket := os.read(tickets, _TICKET_BYTES):
            made = _encode(work(int.from_bytes(ticket, "big")))  # at once: a small process is a quick one
            done += len(made).to_bytes(_LENGTH_BYTES, "big") + made
            if len(done) > _PARCEL_BYTES:
                yield done
                done = bytearray()
        yield done

    children = [_start_worker(parcels) for _ in range(workers)]
    os.close(tickets)
    return _receive(children, decode)


def _start_worker(parcels: Callable[[], Iterable[bytearray]]) -> tuple[int, int]:
    import fcntl  # noqa: PLC0415 - a report after little growth does not come here

    results, outbox = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # room for a parcel or two, where it is to be had
            fcntl.fcntl(outbox, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    child = os.fork()
    if child:
        os.close(outbox)
        return child, results
    status = 1
    try:
        os.close(results)
        with os.fdopen(outbox, "wb", buffering=0) as file:
            for parcel in parcels():
                _write_parcel(file, parcel)
        status = 0
    finally:
        os._exit(status)


def _write_parcel(file: "RawIOBase", parcel: bytearray) -> None:
    rest = memoryview(parcel)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _receive(children: Sequence[tuple[int, int]], decode: Callable[[bytes | bytearray], T]) -> Iterator[T]:
    """Yield results as they arrive; an incomplete one of a dead child is dropped."""
    import select  # noqa: PLC0415 - as above

    parts = {results: bytearray() for _, results in children}
    news = select.poll()
    for results in parts:
        news.register(results, select.POLLIN)
    while parts:
        for results, _ in news.poll():
            sent = os.read(results, _PARCEL_BYTES)
            if sent:
                parts[results] += sent
                yield from _complete_messages(parts[results], decode)
            else:
                news.unregister(results)
                os.close(results)
                del parts[results]
    for child, _ in children:
        os.waitpid(child, 0)


def _complete_messages(part: bytearray, decode: Callable[[bytes | bytearray], T]) -> Iterator[T]:
    """Yield the complete messages in `part` and remove them from it."""
    at = 0
    while len(part) - at >= _LENGTH_BYTES:
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(part[at:start], "big")
        if len(part) < end:
            break
        with suppress(msgspec.DecodeError):
            yield decode(part[start:end])
        at = end
    del part[:at]


def scan_files(
    pending: Sequence[PendingRead], scan: ScanFile, scan_mapped: ScanFile, workers: int = 2
) -> Iterator[tuple[int, UsageScan]]:
    """Scan every file and yield its position in `pending` and its scan, in any order.

    Scans made by another process arrive packed; there `scan_mapped` may map the file, because a
    file that shrinks ends only that process.
    """
    sizes = [max(read.file.size - read.start, 0) for read in pending]
    collecting = gc.isenabled()
    gc.disable()  # a scan makes no cycles, and looking for them takes a fifth of the time
    try:
        if sum(sizes) < FORK_ABOVE_BYTES or workers < 2 or not may_fork():
            for position, read in enumerate(pending):
                yield position, scan(read.file, read.start)
        else:
            missing = yield from _scan_forked(pending, sizes, scan_mapped, workers)
            for position, read in missing.items():
                yield position, scan(read.file, read.start)
    finally:
        if collecting:
            gc.enable()


def _scan_forked(
    pending: Sequence[PendingRead], sizes: Sequence[int], scan: ScanFile, workers: int
) -> Generator[tuple[int, UsageScan], None, dict[int, PendingRead]]:
    """Yield the scans of forked workers; return the reads that a dead worker did not deliver."""
    batches = _batch_files(pending, sizes)

    def scan_batch(number: int) -> list[tuple[int, UsageScan]]:
        return [(position, _scan_packed(pending[position], scan)) for position in batches[number]]

    missing = dict(enumerate(pending))
    for scans in run_forked(len(batches), scan_batch, _decode_scans, workers):
        for position, found in scans:
            if missing.pop(position, None):
                yield position, found
    return missing


def _batch_files(pending: Sequence[PendingRead], sizes: Sequence[int]) -> list[list[int]]:
    """Group files, large sessions first, so that a batch is neither tiny nor a worker's whole share.

    A session is never split: its rows lie together in the worker that packs them.
    """
    batch_bytes = max(sum(sizes) // TICKETS_MAX, _BATCH_BYTES_MIN)
    sessions: dict[str, list[int]] = defaultdict(list)
    for position, read in enumerate(pending):
        sessions[read.file.session].append(position)
    batches: list[list[int]] = []
    room = 0
    for positions in sorted(sessions.values(), key=lambda each: sum(sizes[at] for at in each), reverse=True):
        if room <= 0:
            batches.append([])
            room = batch_bytes
        batches[-1] += positions
        room -= sum(sizes[position] for position in positions)
    return batches


def _scan_packed(read: PendingRead, scan: ScanFile) -> UsageScan:
    """Return a scan as the index will store it, so that its rows are packed once, in the worker."""
    found = scan(read.file, read.start)
    found.packed, found.keys = pack_rows(found.rows, found.totals), response_keys(found.rows)
    found.rows, found.totals = [], []
    return found


def read_all(readings: Sequence[PendingRead], read_records: ReadRecords) -> Iterator[RecordBatch]:
    """Yield the records of each reading, in order."""
    size = sum(max(each.file.size - each.start, 0) for each in readings)
    done = 0
    if size >= FORK_ABOVE_BYTES and threading.active_count() == 1:
        for found in _read_ahead(readings, read_records):
            done += 1
            yield found
    for reading in readings[done:]:
        yield read_records(reading.file.path, reading.start)


def _read_ahead(readings: Sequence[PendingRead], read_records: ReadRecords) -> Iterator[RecordBatch]:
    inbox, outbox = os.pipe()
    child = os.fork()
    if not child:
        _send_all(readings, read_records, inbox, outbox)
    os.close(outbox)
    try:
        with os.fdopen(inbox, "rb") as file:
            for _ in readings:
                body = _read_message(file)
                if body is None:
                    return
                yield _decode_records(body)
    finally:
        os.waitpid(child, 0)


def _send_all(readings: Sequence[PendingRead], read_records: ReadRecords, inbox: int, outbox: int) -> None:
    status = 1
    try:
        gc.disable()
        os.close(inbox)
        with os.fdopen(outbox, "wb") as file:
            for reading in readings:
                body = _encode_records(read_records(reading.file.path, reading.start))
                file.write(len(body).to_bytes(_RECORDS_LENGTH_BYTES, "big") + body)
        status = 0
    finally:
        os._exit(status)


def _read_message(file: BinaryIO) -> bytes | None:
    length = int.from_bytes(file.read(_RECORDS_LENGTH_BYTES), "big")
    body = file.read(length)
    return body if length and len(body) == length else None
