"""A hit: a span of bytes and why it is thought private. Detectors make them, the engine weighs them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import re2
import stringzilla as sz

SECRET = "secret"  # noqa: S105 - a kind, not a password
PERSON = "person"
HIGH, MEDIUM, LOW = 3, 2, 1

# Detectors read bytes: one byte, one offset. The bound on memory bounds the automaton's cache.
LATIN = re2.Options()
LATIN.encoding = re2.Options.Encoding.LATIN1
LATIN.max_mem = 64 << 20


_STRETCH = 8 << 10
_STRETCH_MAX = 128 << 10
_OVERLAP = 512


# Where a needle stands in a text from a place on, or -1: eight times quicker over a megabyte than `find`.
where: Callable[[bytes, bytes, int], int] = sz.find


def contains_needle(data: bytes, needle: bytes) -> bool:
    """Say whether `needle` stands in `data`."""
    return where(data, needle, 0) >= 0


def search_in_stretches(pattern: Any, data: bytes, at: int, vain: int = 0) -> Any:
    """Return the next match from `at` on, looked for in stretches.

    What could be the beginning of a long match is followed to its end before a short one inside
    it is told: over a whole text of such, time would grow with the square of its length. So each
    stretch is short, or at most as long as what was looked through in `vain` just before it.
    """
    width, size = min(max(vain, _STRETCH), _STRETCH_MAX), len(data)
    while True:
        limit = at + width
        found = pattern.search(data, at, limit)
        if limit >= size or (found is not None and found.end() < limit):
            return found
        if found is None:
            at, width = limit - _OVERLAP, min(2 * width, _STRETCH_MAX)
        else:  # it may go on
            at, width = found.start(), 4 * max(_STRETCH, limit - found.start())


class Candidate(NamedTuple):
    """One suspected value in a view, `value` as it reads there."""

    start: int
    end: int
    rule: str
    value: bytes
    weight: int = HIGH
    kind: str = SECRET
