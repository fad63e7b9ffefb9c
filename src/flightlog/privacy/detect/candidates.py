"""A suspected span with weight; bounded work per byte.

Ordinary text uses a small part of it. Where somebody piled up beginnings of secrets, the
credit runs out, and nothing more is weighed in that record: the rest of it is taken out
unseen. A hostile text so loses words, never time, hides nothing, and stays as it then is.
What was weighed once is remembered, so that looking again at the same words costs little.
"""

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
UNJUDGED = "unjudged"
_CREDIT_MAX = 384 << 10
_REMEMBERED_MAX = 10_000
# One judgement may cost more than is left: so much at most.
DEBT_MAX = 1_000
# So much credit grows for each byte: as the text stands, and read in another way.
_PLAIN, _ANOTHER = 0.75, 0.3


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


class Judgement(NamedTuple):
    """What came of a judgement: how much of the text it is about, what is private in it, and what it cost."""

    length: int
    hit: Candidate | None
    cost: int


Memory = dict[tuple[object, int, bytes], Judgement]


class WorkBudget:
    """Credit that grows with the place in the text and is spent by looks at it."""

    def __init__(self, memory: Memory | None = None) -> None:
        """Begin with full credit, and with what was judged before."""
        self._credit: float = _CREDIT_MAX
        self._at = 0
        self._rate = _PLAIN
        self._memory: Memory = {} if memory is None else memory
        self.spent = 0
        self.granted: float = _CREDIT_MAX

    def reset(self, *, another: bool = False) -> None:
        """Go back to the beginning: another search, or `another` reading of the text."""
        self._at = 0
        self._rate = _ANOTHER if another else _PLAIN

    def unjudged_rest(self, view: bytes, start: int) -> Candidate:
        """Return the rest of the record from `start` on, to be taken out as it is."""
        stop = view.find(b"\0", start)
        end = stop if stop >= 0 else len(view)
        return Candidate(start, end, UNJUDGED, view[start:end], LOW)

    def try_spend(self, at: int, cost: int) -> bool:
        """Say whether `cost` more bytes may be examined at `at`, and count them."""
        if at > self._at:
            more = (at - self._at) * self._rate
            self._at = at
            self.granted += more
            self._credit = min(_CREDIT_MAX, self._credit + more)
        if cost > self._credit:
            return False
        self._credit -= cost
        self.spent += cost
        return True

    def spend(self, cost: int) -> None:
        """Count `cost` bytes that were examined, even where it leaves a debt."""
        self._credit -= cost
        self.spent += cost

    def recall_judgment(self, key: tuple[object, int, bytes]) -> Judgement | None:
        """Return what was judged before of the same words."""
        return self._memory.get(key)

    def store_judgment(self, key: tuple[object, int, bytes], judged: Judgement) -> None:
        """Keep what was judged; what is kept has a bound."""
        if len(self._memory) >= _REMEMBERED_MAX:
            self._memory.clear()
        self._memory[key] = judged
