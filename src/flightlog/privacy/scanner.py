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

from flightlog.privacy.detect import engine
from flightlog.privacy.detect.candidates import MEDIUM, SECRET, UNJUDGED
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.detect.personal_data import HOME, strip_owner
from flightlog.privacy.redactor import Redactor

_PIECE_BYTES = 1 << 20
_BEFORE_BYTES = 4 << 10
_AFTER_BYTES = 32 << 10
# The first batch is small: what it says of home directories spares the next a look at each.
_FIRST_BYTES = 64 << 10
# The deltas of a content block are read together, up to so many bytes.
_BATCH_BYTES_MAX = 4 << 20
_CONTINUATION = bytes(range(0x80, 0xC0))


class LocatedFinding(NamedTuple):
    """Something private, and where: the line from 1, offsets in characters from the beginning."""

    line: int
    start: int
    end: int
    found: engine.Detection


class _TextWindow(NamedTuple):
    window: bytes
    begin: int  # where in the window what was not told yet begins
    end: int
    found: list[engine.Detection]


def redact_stream(redactor: Redactor, source: BinaryIO) -> Iterator[bytes]:
    """Yield the text of `source` without what is private; a value counts from the piece in which it is recognized."""
    for piece in _iter_pieces(source, redactor.known):
        clean = redactor.replace_detections(piece.window[: piece.end], piece.found)[piece.begin :]
        yield redactor.redact_bytes(clean) if piece.found else clean


def find_in_stream(source: BinaryIO, known: KnownSecrets) -> Iterator[LocatedFinding]:
    """Yield what is private in a text."""
    line, chars = 1, 0
    for piece in _iter_pieces(source, known):
        at = piece.begin
        for found in piece.found:
            line += piece.window.count(b"\n", at, found.start)
            chars, at = chars + _count_characters(piece.window[at : found.start]), found.start
            yield LocatedFinding(line, chars, chars + _count_characters(piece.window[at : found.end]), found)
        line += piece.window.count(b"\n", at, piece.end)
        chars += _count_characters(piece.window[at : piece.end])


def find_in_lines(lines: Iterable[bytes], known: KnownSecrets) -> Iterator[LocatedFinding]:
    """Yield what is private in lines of JSON, each with its end; a home directory once, where it is first met."""
    number = chars = 0
    homes: set[bytes] = set()
    for batch in iter_batches(lines):
        yield from _find_in_batch(batch, (number, chars), known, homes)
        number, chars = number + len(batch), chars + sum(map(_count_characters, batch))


def read_twice(
    look: Callable[[], Iterator[tuple[str, LocatedFinding]]], known: KnownSecrets
) -> Iterator[tuple[str, LocatedFinding]]:
    """Yield what is private in one document that is read twice: a value found once is found everywhere."""
    known.forget_learned()
    for _ in learn_while_reading(look(), known):
        pass
    yield from look()


def learn_while_reading(
    places: Iterable[tuple[str, LocatedFinding]], known: KnownSecrets
) -> Iterator[tuple[str, LocatedFinding]]:
    """Yield files and places in them, remembering each value for the rest of the document."""
    for name, place in places:
        if place.found.rule not in (HOME, UNJUDGED):
            known.learn_value(place.found.value, place.found.kind, place.found.rule)
        yield name, place


def iter_batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
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
    sure = (one.found for one in find_in_lines(lines, KnownSecrets()))
    return dict(Counter(found.rule for found in sure if found.kind == SECRET and found.weight >= MEDIUM))


def _iter_pieces(source: BinaryIO, known: KnownSecrets) -> Iterator[_TextWindow]:
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
        found = [one for one in engine.find_private_values(window, known) if begin <= one.start < end]
        end = max([end, *(one.end for one in found)])
        yield _TextWindow(window, begin, end, found)
        before, rest = window[max(0, end - _BEFORE_BYTES) : end], window[end:]


def _find_in_batch(
    lines: list[bytes], start: tuple[int, int], known: KnownSecrets, homes: set[bytes]
) -> Iterator[LocatedFinding]:
    data = b"".join(lines)
    for path in homes:
        data = strip_owner(data, path, b"~" * len(path)) if path in data else data
    offsets = list(accumulate(map(len, lines), initial=0))
    (number, chars), at = start, 0
    for begin, _ in engine.find_suspect_lines(data, known):
        index = bisect_right(offsets, begin) - 1
        chars, at = chars + _count_characters(data[at:begin]), begin
        line = data[begin : offsets[index + 1]]
        for found in _find_in_line(line, known):
            if found.rule == HOME and found.value in homes:
                continue
            if found.rule == HOME and found.value[:1] in b"/-":
                homes.add(found.value)
            low = chars + _count_characters(line[: found.start])
            yield LocatedFinding(number + index + 1, low, low + _count_characters(line[found.start : found.end]), found)


def _count_characters(data: bytes) -> int:
    return len(data.translate(None, _CONTINUATION))


def _find_in_line(line: bytes, known: KnownSecrets) -> list[engine.Detection]:
    found = engine.find_private_values(line, known)
    if engine.is_deep(line):
        met = {one.value for one in found}
        whole = ((0, len(line)),)
        # Found only where it is decoded: somewhere in this line.
        found += [one._replace(spans=whole) for one in _find_in_strings(line, known) if one.value not in met]
    return found


def _find_in_strings(line: bytes, known: KnownSecrets) -> list[engine.Detection]:
    try:
        strings = list(_iter_strings(json.loads(line)))
    except (ValueError, RecursionError):
        return []
    return [one for text in strings for one in engine.find_private_values(text.encode("utf-8", "surrogatepass"), known)]


def _iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _iter_strings(member)
