"""Which records of a batch need a closer look, and which of those string by string.

Reads lines as they stand in a file, escapes and all, so that most are never decoded.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from operator import add, itemgetter
from typing import Any, NamedTuple

from flightlog.privacy.detect import engine, lazily
from flightlog.privacy.detect.known import KnownSecrets
from flightlog.privacy.detect.meter import WorkBudget

# What no raw line hides: text to be read in another way before it is searched.
_DEEP = lazily.linear_pattern(rb"\\u[0-9a-fA-F]{4}|\x1b|1b\[|data: ?\{")


class SuspectLine(NamedTuple):
    """Where a line begins that holds something private or hides something, and what was found in it."""

    begin: int
    found: list[engine.Detection]


def find_suspect_lines(data: bytes, known: KnownSecrets, meter: WorkBudget | None = None) -> list[SuspectLine]:
    """Return the lines of `data` that need a closer look, in order; what was found counts from their beginning."""
    return find_suspect_records(data.replace(b"\n", b"\0"), known, meter)


def find_suspect_records(records: bytes, known: KnownSecrets, meter: WorkBudget | None = None) -> list[SuspectLine]:
    """Return the same of records with a NUL between them."""
    looked = engine.search_text(records, known, meter)
    suspects: list[SuspectLine] = []
    end = -1
    marks: list[tuple[int, engine.Detection | None]] = [(one.start, one) for one in looked.found]
    marks += [(place, None) for place in looked.hiding]
    for place, one in sorted(marks, key=itemgetter(0)):
        if place > end:
            suspects.append(SuspectLine(records.rfind(b"\0", 0, place) + 1, []))
            end = records.find(b"\0", place)
            end = end if end >= 0 else len(records)
        if one is not None:
            suspects[-1].found.append(one.shift_by(-suspects[-1].begin))
    return suspects


def lines_with_known_values(lines: list[bytes], known: KnownSecrets) -> list[int]:
    """Return which lines hold a known value, in order."""
    joined = engine.without_tags(b"\0".join(line.replace(b"\0", b"\n") for line in lines))
    starts = line_starts(lines)
    return sorted({bisect_right(starts, hit.start) - 1 for hit in known.find_values(joined)})


def line_starts(lines: list[bytes]) -> list[int]:
    """Return where each line begins when they are joined by one byte."""
    return list(map(add, itertools.accumulate(map(len, lines), initial=0), itertools.count()))


def iter_deep_records(records: bytes) -> Iterator[int]:
    """Yield where the records, a NUL between them, begin that must be read string by string."""
    return _iter_line_starts(records, _DEEP, b"\0")


def is_deep(record: bytes) -> bool:
    """Say whether one record must be read string by string."""
    return _DEEP.search(record) is not None


def _iter_line_starts(data: bytes, pattern: Any, end: bytes) -> Iterator[int]:
    at = 0
    while (found := pattern.search(data, at)) is not None:
        yield data.rfind(end, 0, found.start()) + 1
        at = data.find(end, found.start()) + 1
        if not at:
            break
