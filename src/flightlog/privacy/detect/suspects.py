"""Which records of a batch need a closer look, and which of those string by string.

Reads lines as they stand in a file, escapes and all, so that most are never decoded.
"""

from collections.abc import Iterator
from typing import Any

import re2

from flightlog.privacy.detect import engine
from flightlog.privacy.detect.hits import LATIN
from flightlog.privacy.detect.known import Known

# What no raw line hides: text to be read in another way before it is searched.
_DEEP = re2.compile(rb"\\u00[0-7]|\x1b|1b\[|data: ?\{", LATIN)


def lines_in(data: bytes, known: Known) -> list[int]:
    """Return where the lines of `data` begin that hold something private or hide something, in order."""
    records = data.replace(b"\n", b"\0")
    looked = engine.look(records, known)
    begins, end = [], -1
    for place in sorted([*(one.start for one in looked.found), *looked.hiding]):
        if place > end:
            begins.append(records.rfind(b"\0", 0, place) + 1)
            end = records.find(b"\0", place)
            end = end if end >= 0 else len(records)
    return begins


def deep_lines_in(records: bytes) -> Iterator[int]:
    """Yield where the records, a NUL between them, begin that must be read string by string."""
    return _begins(records, _DEEP, b"\0")


def is_deep(record: bytes) -> bool:
    """Say whether one record must be read string by string."""
    return _DEEP.search(record) is not None


def _begins(data: bytes, pattern: Any, end: bytes) -> Iterator[int]:
    at = 0
    while (found := pattern.search(data, at)) is not None:
        yield data.rfind(end, 0, found.start()) + 1
        at = data.find(end, found.start()) + 1
        if not at:
            break
