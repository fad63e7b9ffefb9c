"""Putting records into the one order that does not depend on where or in what order they were read.

A record comes after the one it replies to; between free choices the earlier time comes
first, then the smaller key. A missing parent makes a record a root; a circle, which only a
damaged file can hold, is laid out by time at the end.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable

from flightlog.model.events import Entry


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return `entries`, each after its parent."""
    pool = sorted(entries, key=_rank)
    by_uuid: dict[str, int] = {}
    for place, entry in enumerate(pool):
        if entry.uuid:
            by_uuid.setdefault(entry.uuid, place)
    waiting = defaultdict(list)
    ready = []
    for place, entry in enumerate(pool):
        parent = by_uuid.get(entry.parent) if entry.parent else None
        if parent is None or parent == place or pool[parent].uuid == entry.uuid:
            ready.append(place)
        else:
            waiting[parent].append(place)
    return _released(pool, ready, waiting)


def _released(pool: list[Entry], ready: list[int], waiting: dict[int, list[int]]) -> list[Entry]:
    ordered: list[Entry] = []
    placed = [False] * len(pool)
    heapq.heapify(ready)
    while ready:
        place = heapq.heappop(ready)
        placed[place] = True
        ordered.append(pool[place])
        for child in waiting.pop(place, ()):
            heapq.heappush(ready, child)
    ordered.extend(entry for place, entry in enumerate(pool) if not placed[place])
    return ordered


def _rank(entry: Entry) -> tuple[int, str]:
    return (entry.order_ms, entry.key)
