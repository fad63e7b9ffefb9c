"""Fork pool, parallel usage scan, read-ahead for the index, work in a new process.

Children take task numbers from a shared pipe until it is empty, so a busy core does not delay the
others. A child that dies costs time, never a result: the caller does what it did not deliver.

The scan's children map files into memory; a file that shrinks meanwhile kills its child. Serves the
bar of a cold report: twice as fast as ccusage on 1 GB. Reading records and indexing them take about
the same time, so one child that reads ahead halves the total.
"""

import fcntl
import gc
import os
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from flightlog.model.errors import Unavailable
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import UsageScan
from flightlog.sources.usage_rows import pack_rows, response_keys
from flightlog.store.index.files import PendingRead
from flightlog.store.index.records import RecordBatch

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TICKETS_MAX = 4096  # all tickets are written before a child reads: 16 KB fit in every pipe
FORK_ABOVE_BYTES = 64 << 20  # below it, two forks take longer than the scan of one process
_TICKET_BYTES = 4
_LENGTH_BYTES = 4
_PARCEL_BYTES = 1 << 18  # results are sent in parcels: a system call for each would cost more
_PIPE_BYTES = 1 << 20
_BATCH_BYTES_MIN = 1 << 20
T = TypeVar("T")
ScanFile = Callable[[SessionFile, int], UsageScan]
ReadRecords = Callable[[SessionFile, int], RecordBatch]
_encode = msgspec.msgpack.Encoder().encode
_decode_scans = msgspec.msgpack.Decoder(list[tuple[int, UsageScan]]).decode
_decode_batch = msgspec.msgpack.Decoder(tuple[int, RecordBatch]).decode


def may_fork() -> bool:
    """Return whether this is the only thread: a child would wait forever for others' locks."""
    threading = sys.modules.get("threading")
    return threading is None or threading.active_count() == 1


def run_forked(
    count: int, work: Callable[[int], T], decode: Callable[[bytes | bytearray], T], workers: int
) -> Iterator[T]:
    """Yield the results of `work` for each number below `count` (at most `TICKETS_MAX`).

    Each worker delivers its results in the order of their numbers.
    """
    tickets, writing_end = os.pipe()
    numbers = (number.to_bytes(_TICKET_BYTES, "big") for number in range(count))
    os.write(writing_end, b"".join(numbers))
    os.close(writing_end)

    def parcels() -> Iterator[bytearray]:
        parcel = bytearray()
        while ticket := os.read(tickets, _TICKET_BYTES):
            # Encoded at once, to keep the child small.
            result = _encode(work(int.from_bytes(ticket, "big")))
            parcel += len(result).to_bytes(_LENGTH_BYTES, "big") + result
            if len(parcel) > _PARCEL_BYTES:
                yield parcel
                parcel = bytearray()
        yield parcel

    children = [start_worker(parcels) for _ in range(workers)]
    os.close(tickets)
    return _receive(children, decode)


def map_forked(
    sizes: Mapping[str, int],
    work: Callable[[str], T],
    decode: Callable[[bytes | bytearray], T],
    name_of: Callable[[T], str],
    fork_above: int = FORK_ABOVE_BYTES,
) -> Iterator[T]:
    """Yield the result of `work` for each name in `sizes`, in any order.

    More than `fork_above` bytes in all are shared among all processors. `name_of` returns the name
    that a result belongs to.
    """
    # The largest first, so that no process is left alone with one at the end.
    missing = dict.fromkeys(sorted(sizes, key=lambda name: -sizes[name]))
    ordered, workers = list(missing), os.cpu_count() or 1
    if sum(sizes.values()) > fork_above and workers > 1 and may_fork():
        for start in range(0, len(ordered), TICKETS_MAX):
            part = ordered[start : start + TICKETS_MAX]
            work_on = lambda number, part=part: work(part[number])  # noqa: E731
            for result in run_forked(len(part), work_on, decode, workers):
                missing.pop(name_of(result), None)
                yield result
    yield from (work(name) for name in missing)


def run_in_child(work: Callable[..., T], *args: object) -> T:
    """Return what `work` returns in a new process, which gives its memory back when it ends.

    For threads, which must not fork. Raises `Unavailable` if the process ends without a result.
    """
    import multiprocessing  # noqa: PLC0415 - only the web server runs such work

    context = multiprocessing.get_context("spawn")
    results, outbox = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(outbox, work, args), daemon=True)
    child.start()
    outbox.close()
    with results:
        try:
            result: T = results.recv()
        except EOFError as error:
            hint = "flightlog session show"  # it reads in its own process
            raise Unavailable("reading ended without a result", hint=hint) from error
        finally:
            child.join()
    return result


def _send_result(outbox: "Connection", work: Callable[..., object], args: Sequence[object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this child
    outbox.send(work(*args))


def start_worker(parcels: Callable[[], Iterable[bytearray]]) -> tuple[int, int]:
    """Fork a child that delivers `parcels`; return its process id and the pipe to read them from."""
    results, outbox = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # room for several parcels, where the system allows it
            fcntl.fcntl(outbox, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    child = os.fork()
    if child == 0:
        _deliver_and_exit(parcels, results, outbox)
    os.close(outbox)
    return child, results


def _deliver_and_exit(
    parcels: Callable[[], Iterable[bytearray]], results: int, outbox: int
) -> NoReturn:
    """Write every parcel to `outbox`, then end this child; it never returns to its parent's code."""
    status = 1
    try:
        gc.disable()  # the work makes no cycles, and looking for them takes a fifth of the time
        os.close(results)
        with os.fdopen(outbox, "wb", buffering=0) as file:
            for parcel in parcels():
                rest = memoryview(parcel)
                while rest:
                    rest = rest[file.write(rest) or 0 :]
        status = 0
    finally:
        os._exit(status)


def _receive(
    children: Sequence[tuple[int, int]], decode: Callable[[bytes | bytearray], T]
) -> Iterator[T]:
    """Yield results as they arrive; an incomplete one of a dead child is dropped."""
    buffers = {results: bytearray() for _, results in children}
    poll = select.poll()
    for results in buffers:
        poll.register(results, select.POLLIN)
    try:
        while buffers:
            for results, _ in poll.poll():
                if data := os.read(results, _PARCEL_BYTES):
                    buffers[results] += data
                    yield from _complete_messages(buffers[results], decode)
                else:
                    poll.unregister(results)
                    os.close(results)
                    del buffers[results]
    finally:  # a caller that stops early ends the children: their pipes break
        for results in buffers:
            os.close(results)
        for child, _ in children:
            os.waitpid(child, 0)


def _complete_messages(buffer: bytearray, decode: Callable[[bytes | bytearray], T]) -> Iterator[T]:
    """Yield the complete messages in `buffer` and remove them from it."""
    at = 0
    while len(buffer) - at >= _LENGTH_BYTES:
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(buffer[at:start], "big")
        if len(buffer) < end:
            break
        with suppress(msgspec.DecodeError):
            yield decode(buffer[start:end])
        at = end
    del buffer[:at]


def scan_files(
    pending: Sequence[PendingRead], scan: ScanFile, scan_mapped: ScanFile, workers: int = 2
) -> Iterator[tuple[int, UsageScan]]:
    """Scan every file and yield its position in `pending` and its scan, in any order.

    Scans made by another process arrive packed; there `scan_mapped` may map the file, because a
    file that shrinks ends only that process.
    """
    sizes = [max(read.file.size - read.start, 0) for read in pending]
    collecting = gc.isenabled()
    gc.disable()  # as in a child
    try:
        missing = dict(enumerate(pending))
        if sum(sizes) >= FORK_ABOVE_BYTES and workers > 1 and may_fork():
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
        for position, result in scans:
            if missing.pop(position, None):
                yield position, result
    return missing


def _batch_files(pending: Sequence[PendingRead], sizes: Sequence[int]) -> list[list[int]]:
    """Group files, large sessions first; a batch is neither tiny nor a worker's whole share.

    A session is never split, so that one worker packs all of its rows.
    """
    batch_bytes = max(sum(sizes) // TICKETS_MAX, _BATCH_BYTES_MIN)
    sessions: dict[str, list[int]] = defaultdict(list)
    for position, read in enumerate(pending):
        sessions[read.file.session].append(position)
    batches: list[list[int]] = []
    room = 0
    items = sessions.items()
    total_bytes = {session: sum(sizes[at] for at in positions) for session, positions in items}
    for session in sorted(sessions, key=total_bytes.__getitem__, reverse=True):
        if room <= 0:
            batches.append([])
            room = batch_bytes
        batches[-1] += sessions[session]
        room -= total_bytes[session]
    return batches


def _scan_packed(read: PendingRead, scan: ScanFile) -> UsageScan:
    """Return a scan as the index will store it, so that its rows are packed once, in the worker."""
    result = scan(read.file, read.start)
    result.packed, result.keys = pack_rows(result.rows, result.totals), response_keys(result.rows)
    result.rows, result.totals = [], []
    return result


def read_all(pending: Sequence[PendingRead], read_records: ReadRecords) -> Iterator[RecordBatch]:
    """Yield the records of each file, in order; for large files a child process reads ahead."""
    done = 0
    size = sum(max(read.file.size - read.start, 0) for read in pending)
    if size >= FORK_ABOVE_BYTES and may_fork():
        for start in range(0, len(pending), TICKETS_MAX):
            part = pending[start : start + TICKETS_MAX]

            def read_part(
                number: int, part: Sequence[PendingRead] = part
            ) -> tuple[int, RecordBatch]:
                return number, read_records(part[number].file, part[number].start)

            for number, batch in run_forked(len(part), read_part, _decode_batch, workers=1):
                if start + number == done:  # after a lost batch, the rest is read below
                    yield from _read_to_end(part[number], batch, read_records)
                    done += 1
    for read in pending[done:]:
        yield from _read_to_end(read, read_records(read.file, read.start), read_records)


def _read_to_end(
    read: PendingRead, batch: RecordBatch, read_records: ReadRecords
) -> Iterator[RecordBatch]:
    yield batch
    while not batch.is_last:
        batch = read_records(read.file, batch.end)
        yield batch
