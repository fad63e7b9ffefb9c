"""Many transcripts at once, on as many processors as pay for themselves.

Forked children take batches of files from a pipe of tickets until none is left, so that a
processor somebody else uses slows down nobody, and deliver while they go on. They map files into
memory, which a file that shrinks meanwhile turns into their end: a child that dies costs time,
never rows, for what it did not deliver is read here.
"""

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from flightlog.sources.claude_code.scan import BLOCK_BYTES, Scan, Target, scan, scan_mapped
from flightlog.store.index.chunks import keys, pack

if TYPE_CHECKING:
    from io import RawIOBase

FORK_ABOVE_BYTES = 64 << 20
_BATCHES_MAX = 4096
_TICKET_BYTES = 4
_LENGTH_BYTES = 4
_PARCEL_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, Scan]]).decode


Finish = Callable[[Sequence[tuple[Target, Scan]]], None]


def scan_all(
    targets: Sequence[Target], sizes: Sequence[int], workers: int = 2, finish: Finish | None = None
) -> list[Scan]:
    """Scan every target, in the order given; `sizes` are the bytes each has to read.

    `finish` is shown all files of a session together, where they were scanned, and may add to
    what was found. Rows that another process found arrive packed.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and looking for them costs a fifth of the time
    try:
        if sum(sizes) < FORK_ABOVE_BYTES or workers < 2 or _has_threads():
            buffer = bytearray(BLOCK_BYTES)
            return [found for _, found in _batch(targets, range(len(targets)), lambda one: scan(one, buffer), finish)]
        return _shared(targets, sizes, workers, finish)
    finally:
        if collecting:
            gc.enable()


def _has_threads() -> bool:
    """Whether other threads run, whose locks a forked child would never get; without the module there are none."""
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


def _shared(targets: Sequence[Target], sizes: Sequence[int], workers: int, finish: Finish | None) -> list[Scan]:
    tickets, box = os.pipe()
    batches = _batches(targets, sizes)
    os.write(box, b"".join(number.to_bytes(_TICKET_BYTES, "big") for number in range(len(batches))))
    os.close(box)

    def work() -> Iterator[list[tuple[int, Scan]]]:
        done: list[tuple[int, Scan]] = []
        while ticket := os.read(tickets, _TICKET_BYTES):
            batch = _batch(targets, batches[int.from_bytes(ticket, "big")], scan_mapped, finish)
            done += [(place, _packed(found)) for place, found in batch]  # at once: a small process is a quick one
            if sum(len(found.packed) for _, found in done) > _PARCEL_BYTES:
                yield done
                done = []
        yield done

    children = [_start(work) for _ in range(workers)]
    os.close(tickets)
    done = dict(_delivered(children))
    return [done.get(place) or scan(target) for place, target in enumerate(targets)]


def _batches(targets: Sequence[Target], sizes: Sequence[int]) -> list[list[int]]:
    """Group files, large sessions first, so that a batch is neither tiny nor a whole share; no session is split."""
    least = max(sum(sizes) // _BATCHES_MAX, 1 << 20)
    sessions: dict[str, list[int]] = defaultdict(list)
    for place, target in enumerate(targets):
        sessions[target.session].append(place)
    batches: list[list[int]] = []
    room = 0
    for places in sorted(sessions.values(), key=lambda each: sum(sizes[place] for place in each), reverse=True):
        if room <= 0:
            batches.append([])
            room = least
        batches[-1] += places
        room -= sum(sizes[place] for place in places)
    return batches


def _batch(
    targets: Sequence[Target], places: Iterable[int], look: Callable[[Target], Scan], finish: Finish | None
) -> list[tuple[int, Scan]]:
    done = [(place, look(targets[place])) for place in places]
    if finish is not None:
        finish([(targets[place], found) for place, found in done])
    return done


def _start(work: Callable[[], Iterable[list[tuple[int, Scan]]]]) -> tuple[int, int]:
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
            for parcel in map(_encode, work()):
                _write(file, len(parcel).to_bytes(_LENGTH_BYTES, "big") + parcel)
        status = 0
    finally:
        os._exit(status)


def _write(file: "RawIOBase", parcel: bytes) -> None:
    rest = memoryview(parcel)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _packed(found: Scan) -> Scan:
    """Return a scan as the index will store it, so that it is packed once, and here."""
    found.packed, found.keys = pack(found.rows, found.totals), keys(found.rows)
    found.rows, found.totals = [], []
    return found


def _delivered(children: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Scan]]:
    """Take parcels as they come, from whoever has one; what is not whole did not come."""
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
                yield from _whole(parts[results])
            else:
                news.unregister(results)
                os.close(results)
                del parts[results]
    for child, _ in children:
        os.waitpid(child, 0)


def _whole(part: bytearray) -> Iterator[tuple[int, Scan]]:
    """Take the whole parcels out of what came."""
    while len(part) >= _LENGTH_BYTES:
        end = _LENGTH_BYTES + int.from_bytes(part[:_LENGTH_BYTES], "big")
        if len(part) < end:
            return
        with suppress(msgspec.DecodeError):
            yield from _decode(part[_LENGTH_BYTES:end])
        del part[:end]
