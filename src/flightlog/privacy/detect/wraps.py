"""Lines joined again where a terminal, a mail or a pager cut a long value.

What a tool puts before a line (diff marks, line numbers, quote marks, indentation) is taken
out with the line end. Local: joins a bounded stretch from one position on.
"""

from bisect import bisect_right
from collections.abc import Callable

import re2

from flightlog.privacy.detect.hits import LATIN

_LINE_MAX = 2_000
_RAGGED = 8
_NUMBER = re2.compile(rb"[ \t]*[0-9]{1,6}(?:\t|\xe2\x86\x92|[:|] ?| {2,})", LATIN)
_BREAKS = {
    b"": re2.compile(rb"(?:\\[ \t]*|[ \t]*)\r?\n[ \t]*", LATIN),
    b"+": re2.compile(rb"[ \t]*\r?\n[ \t]*(?:[+-] ?)?[ \t]*", LATIN),
    b">": re2.compile(rb"[ \t]*\r?\n[ \t]*(?:[>|] ?)?[ \t]*", LATIN),
    b"1": re2.compile(rb"[ \t]*\r?\n(?:[ \t]*[0-9]{1,6}(?:\t|\xe2\x86\x92|[:|] ?| {2,}))?[ \t]*", LATIN),
}


def joined(view: bytes, start: int, width: int) -> tuple[bytes, Callable[[int], int]]:
    """Return the `width` bytes from `start` with line ends taken out, and the way back to offsets of `view`."""
    stretch = view[start : start + width]
    stop = stretch.find(b"\0")
    stretch = stretch if stop < 0 else stretch[:stop]
    cut = _BREAKS[_mark(view, start)]
    parts, ends, cuts, at, gone = [], [0], [0], 0, 0
    line = 0
    for match in cut.finditer(stretch):
        if at and match.start() - at < line - _RAGGED:
            break  # a line shorter than the first was not cut: what comes after it is something else
        line = line or start + match.start() - view.rfind(b"\n", max(0, start - _LINE_MAX), start) - 1
        parts.append(stretch[at : match.start()])
        gone += match.end() - match.start()
        ends.append(match.start() - gone + (match.end() - match.start()))
        cuts.append(gone)
        at = match.end()
    parts.append(stretch[at:])

    def back(end: int) -> int:
        # An end exactly at a cut belongs to the line before it.
        return start + end + cuts[bisect_right(ends, end - 1) - 1]

    return b"".join(parts), back


def _mark(view: bytes, start: int) -> bytes:
    """Return what stands before the line of `start`, and so perhaps before the lines after it."""
    begin = view.rfind(b"\n", max(0, start - _LINE_MAX), start) + 1
    first = view[begin : begin + 1]
    if _NUMBER.match(view, begin, begin + 12):
        return b"1"
    return {b"+": b"+", b"-": b"+", b">": b">", b"|": b">"}.get(first, b"") if first else b""
