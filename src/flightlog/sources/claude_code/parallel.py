"""Many transcripts at once, on as many processors as pay for themselves.

Forked children take batches of files from a pipe of tickets until none is left, so that a
processor somebody else uses slows down nobody. A child that dies costs time, never rows: what
it did not deliver is scanned here.
"""

import gc
import os
import threading
from collections.abc import Sequence

import msgspec

from flightlog.sources.claude_code.scan import BLOCK_BYTES, Scan, Target, scan
from flightlog.store.index.chunks import keys, pack, unpack

FORK_ABOVE_BYTES = 64 << 20
_BATCHES_MAX = 4096
_TICKET_BYTES = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, Scan]]).decode


def scan_all(targets: Sequence[Target], sizes: Sequence[int], workers: int = 2) -> list[Scan]:
    """Scan every target, in the order given; `sizes` are the bytes each has to read."""
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and looking for them costs a fifth of the time
    try:
        if sum(sizes) < FORK_ABOVE_BYTES or workers < 2 or threading.active_count() > 1:
            buffer = bytearray(BLOCK_BYTES)
            return [scan(target, buffer) for target in targets]
        return _shared(targets, sizes, workers)
    finally:
        if collecting:
            gc.enable()


def _shared(targets: Sequence[Target], sizes: Sequence[int], workers: int) -> list[Scan]:
    tickets, box = os.pipe()
    batches = _batches(sizes)
    os.write(box, b"".join(number.to_bytes(_TICKET_BYTES, "big") for number in range(len(batches))))
    os.close(box)
    children = [_start(targets, batches, tickets) for _ in range(workers - 1)]
    done = dict(_work(targets, batches, tickets))
    os.close(tickets)
    for child, results in children:
        done.update(_delivered(child, results))
    return [done.get(place) or scan(target) for place, target in enumerate(targets)]


def _batches(sizes: Sequence[int]) -> list[list[int]]:
    """Group files, large ones first, so that a batch is neither tiny nor a whole share."""
    least = max(sum(sizes) // _BATCHES_MAX, 1 << 20)
    batches: list[list[int]] = []
    room = 0
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        if room <= 0:
            batches.append([])
            room = least
        batches[-1].append(place)
        room -= sizes[place]
    return batches


def _start(targets: Sequence[Target], batches: list[list[int]], tickets: int) -> tuple[int, int]:
    results, outbox = os.pipe()
    child = os.fork()
    if child:
        os.close(outbox)
        return child, results
    status = 1
    try:
        os.close(results)
        with os.fdopen(outbox, "wb") as file:
            file.write(_encode([(place, _packed(found)) for place, found in _work(targets, batches, tickets)]))
        status = 0
    finally:
        os._exit(status)


def _work(targets: Sequence[Target], batches: list[list[int]], tickets: int) -> list[tuple[int, Scan]]:
    done = []
    buffer = bytearray(BLOCK_BYTES)
    while ticket := os.read(tickets, _TICKET_BYTES):
        done += [(place, scan(targets[place], buffer)) for place in batches[int.from_bytes(ticket, "big")]]
    return done


def _packed(found: Scan) -> Scan:
    """Return a scan as the index will store it, so that it is packed once, and here."""
    found.packed, found.keys = pack(found.rows, found.totals), keys(found.rows)
    found.rows, found.totals = [], []
    return found


def _delivered(child: int, results: int) -> list[tuple[int, Scan]]:
    with os.fdopen(results, "rb") as file:
        sent = file.read()
    _, status = os.waitpid(child, 0)
    try:
        done = _decode(sent) if status == 0 else []
        for _, found in done:
            found.rows, found.totals = unpack(found.packed)
    except msgspec.DecodeError:
        return []
    return done
