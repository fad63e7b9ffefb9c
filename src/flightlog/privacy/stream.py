"""Texts of any length, a piece at a time: redacted, or told what is in them.

Memory stays flat. A piece is searched with some text before it and more after it, so that a
value over the border between two pieces is seen whole. Lines of JSON are searched as
`suspects` names them, and strings that need another reading are searched decoded.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

from flightlog.privacy.detect import engine, suspects
from flightlog.privacy.detect.hits import MEDIUM, SECRET
from flightlog.privacy.detect.known import Known
from flightlog.privacy.detect.meter import UNJUDGED
from flightlog.privacy.detect.people import HOME, without_owner
from flightlog.privacy.redact import Redactor

_PIECE_BYTES = 1 << 20
_BEFORE_BYTES = 4 << 10
_AFTER_BYTES = 32 << 10
# The first batch is small: what it says of home directories spares the next a look at each.
_FIRST_BYTES = 64 << 10
# The deltas of a content block are read together, up to so many bytes.
_BATCH_BYTES_MAX = 4 << 20
_CONTINUATION = bytes(range(0x80, 0xC0))


class Located(NamedTuple):
    """Something private, and where: the line from 1, offsets in characters from the beginning."""

    line: int
    start: int
    end: int
    found: engine.Found


class _Piece(NamedTuple):
    window: bytes
    begin: int  # where in the window what was not told yet begins
    end: int
    found: list[engine.Found]


def redacted(redactor: Redactor, source: BinaryIO) -> Iterator[bytes]:
    """Yield the text of `source` without what is private; a value counts from the piece in which it is recognized."""
    for piece in _pieces(source, redactor.known):
        clean = redactor.replaced(piece.window[: piece.end], piece.found)[piece.begin :]
        yield redactor.data(clean) if piece.found else clean


def in_text(source: BinaryIO, known: Known) -> Iterator[Located]:
    """Yield what is private in a text."""
    line, chars = 1, 0
    for piece in _pieces(source, known):
        at = piece.begin
        for found in piece.found:
            line += piece.window.count(b"\n", at, found.start)
            chars, at = chars + _chars(piece.window[at : found.start]), found.start
            yield Located(line, chars, chars + _chars(piece.window[at : found.end]), found)
        line += piece.window.count(b"\n", at, piece.end)
        chars += _chars(piece.window[at : piece.end])


def in_lines(lines: Iterable[bytes], known: Known) -> Iterator[Located]:
    """Yield what is private in lines of JSON, each with its end; a home directory once, where it is first met."""
    number = chars = 0
    homes: set[bytes] = set()
    for batch in batches(lines):
        yield from _in_batch(batch, (number, chars), known, homes)
        number, chars = number + len(batch), chars + sum(map(_chars, batch))


def twice(look: Callable[[], Iterator[tuple[str, Located]]], known: Known) -> Iterator[tuple[str, Located]]:
    """Yield what is private in one document that is read twice: a value found once is found everywhere."""
    known.forget()
    for _ in learning(look(), known):
        pass
    yield from look()


def learning(places: Iterable[tuple[str, Located]], known: Known) -> Iterator[tuple[str, Located]]:
    """Yield files and places in them, remembering each value for the rest of the document."""
    for name, place in places:
        if place.found.rule not in (HOME, UNJUDGED):
            known.learn(place.found.value, place.found.kind, place.found.rule)
        yield name, place


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield lines by the megabyte; the deltas of a content block stay together."""
    batch: list[bytes] = []
    size, enough = 0, _FIRST_BYTES
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= enough and (b'"delta"' not in line or size >= _BATCH_BYTES_MAX):
            yield batch
            batch, size, enough = [], 0, _PIECE_BYTES
    if batch:
        yield batch


def secret_counts(lines: Iterable[bytes]) -> dict[str, int]:
    """Return how often each rule found a secret in lines of JSON; no value is kept."""
    sure = (one.found for one in in_lines(lines, Known()))
    return dict(Counter(found.rule for found in sure if found.kind == SECRET and found.weight >= MEDIUM))


def _pieces(source: BinaryIO, known: Known) -> Iterator[_Piece]:
    before = rest = b""
    while True:
        more = source.read(_PIECE_BYTES)
        rest += more
        if not rest:
            return
        window, begin = before + rest, len(before)
        end = len(window) - (_AFTER_BYTES if more else 0)
        if end <= begin:
            continue
        found = [one for one in engine.find(window, known) if begin <= one.start < end]
        end = max([end, *(one.end for one in found)])
        yield _Piece(window, begin, end, found)
        before, rest = window[max(0, end - _BEFORE_BYTES) : end], window[end:]


def _in_batch(lines: list[bytes], start: tuple[int, int], known: Known, homes: set[bytes]) -> Iterator[Located]:
    data = b"".join(lines)
    for path in homes:
        data = without_owner(data, path, b"~" * len(path)) if path in data else data
    offsets = list(accumulate(map(len, lines), initial=0))
    (number, chars), at = start, 0
    for begin, _ in suspects.lines_in(data, known):
        index = bisect_right(offsets, begin) - 1
        chars, at = chars + _chars(data[at:begin]), begin
        line = data[begin : offsets[index + 1]]
        for found in _in_line(line, known):
            if found.rule == HOME and found.value in homes:
                continue
            if found.rule == HOME and found.value[:1] in b"/-":
                homes.add(found.value)
            low = chars + _chars(line[: found.start])
            yield Located(number + index + 1, low, low + _chars(line[found.start : found.end]), found)


def _chars(data: bytes) -> int:
    return len(data.translate(None, _CONTINUATION))


def _in_line(line: bytes, known: Known) -> list[engine.Found]:
    found = engine.find(line, known)
    if suspects.is_deep(line):
        met = {one.value for one in found}
        whole = ((0, len(line)),)
        # Found only where it is decoded: somewhere in this line.
        found += [one._replace(spans=whole) for one in _in_strings(line, known) if one.value not in met]
    return found


def _in_strings(line: bytes, known: Known) -> list[engine.Found]:
    try:
        strings = list(_strings(json.loads(line)))
    except (ValueError, RecursionError):
        return []
    return [one for text in strings for one in engine.find(text.encode("utf-8", "surrogatepass"), known)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _strings(member)
