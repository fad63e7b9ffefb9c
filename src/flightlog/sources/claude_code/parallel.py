"""Many transcripts at once, on as many processors as pay for themselves.

Forked children take batches of files. They map files into memory, which a file that shrinks meanwhile
turns into their end: a child that dies costs time, never rows, for what it did not deliver is read here.
"""

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from flightlog.sources.claude_code.scan import BLOCK_BYTES, Scan, Target, scan, scan_mapped
from flightlog.sources.forks import TICKETS_MAX, may_fork, spread
from flightlog.store.index.chunks import keys, pack

FORK_ABOVE_BYTES = 64 << 20

_decode = msgspec.msgpack.Decoder(list[tuple[int, Scan]]).decode


Finish = Callable[[Sequence[tuple[Target, Scan]]], None]


def scan_all(
    targets: Sequence[Target], sizes: Sequence[int], workers: int = 2, finish: Finish | None = None
) -> Iterator[tuple[int, Scan]]:
    """Scan every target and yield its place and what it says, as it comes; `sizes` are the bytes each has to read.

    `finish` is shown all files of a session together, where they were scanned, and may add to
    what was found. Rows that another process found arrive packed.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and looking for them costs a fifth of the time
    try:
        if sum(sizes) < FORK_ABOVE_BYTES or workers < 2 or not may_fork():
            buffer = bytearray(BLOCK_BYTES)
            yield from _batch(targets, range(len(targets)), lambda one: scan(one, buffer), finish)
        else:
            yield from _shared(targets, sizes, workers, finish)
    finally:
        if collecting:
            gc.enable()


def _shared(
    targets: Sequence[Target], sizes: Sequence[int], workers: int, finish: Finish | None
) -> Iterator[tuple[int, Scan]]:
    batches = _batches(targets, sizes)

    def work(number: int) -> list[tuple[int, Scan]]:
        return [(place, _packed(found)) for place, found in _batch(targets, batches[number], scan_mapped, finish)]

    left = dict(enumerate(targets))
    for scans in spread(len(batches), work, _decode, workers):
        for place, found in scans:
            if left.pop(place, None):
                yield place, found
    for place, target in left.items():
        yield place, scan(target)


def _batches(targets: Sequence[Target], sizes: Sequence[int]) -> list[list[int]]:
    """Group files, large sessions first, so that a batch is neither tiny nor a whole share; no session is split."""
    least = max(sum(sizes) // TICKETS_MAX, 1 << 20)
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


def _packed(found: Scan) -> Scan:
    """Return a scan as the index will store it, so that it is packed once, and here."""
    found.packed, found.keys = pack(found.rows, found.totals), keys(found.rows)
    found.rows, found.totals = [], []
    return found
