"""Redact or search texts of any length, one piece at a time.

Memory is bounded. A piece is searched with some text before and after it, so that a value over
the border of two pieces is seen whole. Lines of JSON are searched raw, and decoded if they need
it.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

import msgspec

from flightlog.model.errors import UNREADABLE
from flightlog.privacy.detect import engine
from flightlog.privacy.detect.candidates import MEDIUM, SECRET, UNJUDGED
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.detect.personal_data import HOME, strip_owner
from flightlog.privacy.redactor import Redactor

_PIECE_BYTES = 1 << 20  # bounds memory
# Bytes before and after a piece: a name with its value, and a private key.
_BEFORE_BYTES, _AFTER_BYTES = 4 << 10, 32 << 10
# The first batch is small: home directories found in it need no judgement in the next.
_FIRST_BYTES = 64 << 10
# The deltas of a content block stay in one batch, up to this size.
_BATCH_BYTES_MAX = 4 << 20
_CONTINUATION = bytes(range(0x80, 0xC0))
NOT_JSON = object()  # the decoded value of a line that is not JSON


class LocatedFinding(NamedTuple):
    """A detection with its line, counted from 1, and its offsets in characters of the whole text."""

    line: int
    start: int
    end: int
    detection: engine.Detection


class _TextWindow(NamedTuple):
    window: bytes
    begin: int  # the offset in the window of the text that was not yet returned
    end: int
    detections: list[engine.Detection]


def redact_stream(redactor: Redactor, source: BinaryIO) -> Iterator[bytes]:
    """Yield the redacted text of `source`; a value is replaced from the piece that reveals it on."""
    for piece in _iter_pieces(source, redactor.known):
        text = piece.window[: piece.end]
        clean = redactor.replace_detections(text, piece.detections)[piece.begin :]
        yield redactor.redact_bytes(clean) if piece.detections else clean


def find_in_stream(source: BinaryIO, known: KnownSecrets) -> Iterator[LocatedFinding]:
    """Yield the private values in a text."""
    line, chars = 1, 0
    for piece in _iter_pieces(source, known):
        at = piece.begin
        for detection in piece.detections:
            line += piece.window.count(b"\n", at, detection.start)
            chars += _count_characters(piece.window[at : detection.start])
            at = detection.start
            end = chars + _count_characters(piece.window[at : detection.end])
            yield LocatedFinding(line, chars, end, detection)
        line += piece.window.count(b"\n", at, piece.end)
        chars += _count_characters(piece.window[at : piece.end])


def find_in_lines(lines: Iterable[bytes], known: KnownSecrets) -> Iterator[LocatedFinding]:
    """Yield the private values in lines of JSON (with line ends); each home directory only once."""
    number = chars = 0
    homes: set[bytes] = set()
    for batch in iter_batches(lines):
        yield from _find_in_batch(batch, (number, chars), known, homes)
        number, chars = number + len(batch), chars + sum(map(_count_characters, batch))


def read_twice(
    search: Callable[[], Iterator[tuple[str, LocatedFinding]]], known: KnownSecrets
) -> Iterator[tuple[str, LocatedFinding]]:
    """Yield the private values in a document, which `search` reads twice to find learned values everywhere."""
    known.forget_learned()
    for _ in learn_while_reading(search(), known):
        pass
    yield from search()


def learn_while_reading(
    findings: Iterable[tuple[str, LocatedFinding]], known: KnownSecrets
) -> Iterator[tuple[str, LocatedFinding]]:
    """Yield `findings` by file, and add each value to `known` for the rest of the document."""
    for name, finding in findings:
        if finding.detection.rule not in (HOME, UNJUDGED):
            detection = finding.detection
            known.learn_value(detection.value, detection.kind, detection.rule)
        yield name, finding


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
    """Return how many secrets each rule found in lines of JSON."""
    detections = (finding.detection for finding in find_in_lines(lines, KnownSecrets()))
    sure = (one for one in detections if one.kind == SECRET and one.weight >= MEDIUM)
    return dict(Counter(one.rule for one in sure))


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
        found = engine.find_private_values(window, known)
        detections = [detection for detection in found if begin <= detection.start < end]
        end = max([end, *(detection.end for detection in detections)])
        yield _TextWindow(window, begin, end, detections)
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
        for detection in _find_in_line(line, known):
            if detection.rule == HOME and detection.value in homes:
                continue
            if detection.rule == HOME and detection.value[:1] in b"/-":
                homes.add(detection.value)
            low = chars + _count_characters(line[: detection.start])
            high = low + _count_characters(line[detection.start : detection.end])
            yield LocatedFinding(number + index + 1, low, high, detection)


def _count_characters(data: bytes) -> int:
    return len(data.translate(None, _CONTINUATION))


def _find_in_line(line: bytes, known: KnownSecrets) -> list[engine.Detection]:
    detections = engine.find_private_values(line, known)
    if not engine.is_deep(line):
        return detections
    try:
        strings = list(_iter_strings(json.loads(line)))
    except (ValueError, RecursionError):
        return detections
    raw_values = {detection.value for detection in detections}
    whole_line = ((0, len(line)),)  # a value of a decoded string has no offsets in the line
    for text in strings:
        decoded = engine.find_private_values(text.encode("utf-8", "surrogatepass"), known)
        unknown = (one for one in decoded if one.value not in raw_values)
        detections += [one._replace(spans=whole_line) for one in unknown]
    return detections


def _iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _iter_strings(member)


def is_json(line: bytes) -> bool:
    """Return whether `line` is one JSON value."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True


def decode_line(line: bytes) -> Any:
    """Return the JSON value of a line, or `NOT_JSON`."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return json.loads(line)  # half a surrogate pair is not UTF-8, yet agents write it
    except (ValueError, RecursionError):
        return NOT_JSON


def encode_value(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError):
        return json.dumps(value).encode()
