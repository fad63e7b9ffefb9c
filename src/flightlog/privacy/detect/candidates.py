"""Candidates, judgements, and the budget that bounds the work per byte.

Ordinary text uses a small part of the budget. A hostile text that piles up beginnings of
secrets uses it up; then the rest of that record is replaced without being judged. Such a text
loses words, but it costs bounded time and hides nothing.
Judgements are cached, so that searching the same words again costs little.
"""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import re2
import stringzilla as sz

SECRET = "secret"  # noqa: S105 - a kind, not a password
PERSON = "person"
HIGH, MEDIUM, LOW = 3, 2, 1  # how sure a candidate is; the surest of those that overlap wins
# Detectors read bytes: one byte is one offset. `max_mem` bounds the cache of the automaton.
LATIN = re2.Options()
LATIN.encoding = re2.Options.Encoding.LATIN1
LATIN.max_mem = 64 << 20  # the tables of all rules fit
# The first stretch of a search, and the longest: see `search_in_stretches`.
_STRETCH = 8 << 10
_STRETCH_MAX = 128 << 10  # bounds the time that a match which does not come costs
_OVERLAP = 512  # a match over the end of a stretch begins at most this far before it
# Returns the offset of a needle from an offset on, or -1: eight times faster than `bytes.find`
# over a megabyte.
where: Callable[[bytes, bytes, int], int] = sz.find
UNJUDGED = "unjudged"
# The credit that a text begins with, and the most that it can save up.
_CREDIT_MAX = 384 << 10
_CACHED_MAX = 10_000  # judgements; bounds the memory of a long document
# The last judgement may cost more than is left; no judgement costs more than this.
DEBT_MAX = 1_000
# Credit per byte of text: as written, and of a decoded text (there are several of those).
_RAW_CREDIT, _DECODED_CREDIT = 0.75, 0.3


class TextForm(enum.Enum):
    """How the searched bytes were made from the document."""

    RAW = "raw"
    DECODED = "decoded"  # personal data was already searched in the raw text
    UNESCAPED = "unescaped"  # unescaped marks can complete an address, so search personal data too


def contains_needle(data: bytes, needle: bytes) -> bool:
    """Return whether `needle` occurs in `data`."""
    return where(data, needle, 0) >= 0


def search_in_stretches(pattern: Any, data: bytes, at: int, vain: int = 0) -> Any:
    """Return the next match from `at` on, or None.

    The automaton follows the possible beginning of a long match to its end before it reports a
    short match inside; over a whole text of such beginnings, time would grow with the square of
    the length. So each stretch is short, or at most as long as the `vain` bytes that were
    searched without a match just before.
    """
    width, size = min(max(vain, _STRETCH), _STRETCH_MAX), len(data)
    while True:
        limit = at + width
        match = pattern.search(data, at, limit)
        if limit >= size or (match is not None and match.end() < limit):
            return match
        if match is None:
            at, width = limit - _OVERLAP, min(2 * width, _STRETCH_MAX)
        else:  # it may go on after the stretch
            at, width = match.start(), 4 * max(_STRETCH, limit - match.start())


class Candidate(NamedTuple):
    """A suspected value; `value` is without line ends and escapes that cut it."""

    start: int
    end: int
    rule: str
    value: bytes
    weight: int = HIGH
    kind: str = SECRET


class Judgement(NamedTuple):
    """The result of a judgement: bytes of text it covers, the private value if any, and its cost."""

    length: int
    hit: Candidate | None
    cost: int


Memory = dict[tuple[object, int, bytes], Judgement]


class WorkBudget:
    """Credit that grows with the offset in the text and is spent by examining bytes."""

    def __init__(self, memory: Memory | None = None) -> None:
        """Start with full credit and with the judgements cached in `memory`."""
        self._credit: float = _CREDIT_MAX
        self._at = 0
        self._rate = _RAW_CREDIT
        self._memory: Memory = {} if memory is None else memory
        self.spent = 0
        self.granted: float = _CREDIT_MAX

    def reset(self, form: TextForm = TextForm.RAW) -> None:
        """Go back to offset 0, for another search of a text of this form."""
        self._at = 0
        self._rate = _RAW_CREDIT if form is TextForm.RAW else _DECODED_CREDIT

    def unjudged_rest(self, view: bytes, start: int) -> Candidate:
        """Return the rest of the record from `start` on as one candidate."""
        stop = view.find(b"\0", start)
        end = stop if stop >= 0 else len(view)
        return Candidate(start, end, UNJUDGED, view[start:end], LOW)

    def try_spend(self, at: int, cost: int) -> bool:
        """Spend `cost` for work at offset `at`, or return False if the credit is too low."""
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
        """Spend `cost` even if it leaves a debt."""
        self._credit -= cost
        self.spent += cost

    def recall_judgment(self, key: tuple[object, int, bytes]) -> Judgement | None:
        """Return the cached judgement of the same words."""
        return self._memory.get(key)

    def store_judgment(self, key: tuple[object, int, bytes], judgement: Judgement) -> None:
        """Cache a judgement; a full cache is emptied first."""
        if len(self._memory) >= _CACHED_MAX:
            self._memory.clear()
        self._memory[key] = judgement
