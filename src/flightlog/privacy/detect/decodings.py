"""The same text read another way: unescaped, without colours, decoded, re-assembled.

A secret in a transcript is seldom plain: it is inside JSON inside JSON, coloured, percent
encoded, in base64 or split over stream events. Each view is bytes to be searched and the
way back from its offsets to spans of the original. `flat` keeps every offset.
"""

import base64
import binascii
import functools
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from flightlog.privacy.detect import rules
from flightlog.privacy.detect.candidates import contains_needle

_ANSI = rules.linear_pattern(
    rb"(?:(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;:?]*[A-Za-z]|\x1b[@-Z\\-_]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))+"
)
_PERCENT = rules.linear_pattern(rb"%[0-9A-Fa-f]{2}")
TELLING_PERCENT = rb"%(?:3[aAdD]|2[0-9a-fA-F]|40|5[bB]|7[bB])"
_TELLING_PERCENT = rules.linear_pattern(TELLING_PERCENT)
# Marks and letters of ASCII as JSON and HTML may write them, and what such text always holds.
_WRITTEN = rules.quick_pattern(
    rb"\\{1,3}u00[2-7][0-9a-fA-F]|&(?:quot|apos|lt|gt|amp|#(?:[xX][2-7][0-9a-fA-F]|3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6]));"
)
# A run of them, or an escaped backslash, after which a `u` is a letter.
_ESCAPES = rules.quick_pattern(rb"\\\\|(?:\\u(?!00[0-7])[0-9a-fA-F]{4})+")
_NAMED = {b"&quot;": b'"', b"&apos;": b"'", b"&lt;": b"<", b"&gt;": b">", b"&amp;": b"&"}
WRITTEN_MARKS = (b"\\u00", b"&quot;", b"&gt;", b"&#")
# Other characters, as JSON in ASCII writes them; a character beyond the first plane is a pair.
_WIDE = rules.quick_pattern(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?!00[0-7])[0-9a-fA-F]{4})"
)
# In base64 of plain ASCII the first three characters of each group have one bit clear.
BASE64_TEXT = rb"(?:[CI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){5,}[A-Za-z0-9+/_-]*"
_BASE64_TEXT = rules.linear_pattern(BASE64_TEXT)
_DELTAS = frozenset(
    ("text", "partial_json", "thinking", "content", "arguments", "delta", "reasoning_content", "input_json")
)


_CURLY, _CLOSING = "“".encode(), "”".encode()
_AROUND = 400
_at = itemgetter(0)


class DecodedSegment(NamedTuple):
    """A stretch of a view and where it comes from; of equal length unless it was decoded."""

    at: int
    source: int
    length: int
    source_length: int
    is_base64: bool = False


class DecodedText(NamedTuple):
    """Bytes to search, and where they come from."""

    data: bytes
    segments: tuple[DecodedSegment, ...]
    split: bool = False
    persons: bool = False  # personal details are looked for, too

    def source_spans(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """Return the spans of the original that `start`:`end` of this view was read from."""
        first = bisect_right(self.segments, start, key=_at) - 1
        last = bisect_right(self.segments, end - 1, first, key=_at) - 1
        if not self.split:
            return ((_source_span(self.segments[first], start)[0], _source_span(self.segments[last], end - 1)[1]),)
        found = []
        for index in range(first, last + 1):
            part = self.segments[index]
            low, high = max(start, part.at), min(end, part.at + part.length)
            if low < high:
                found.append((_source_span(part, low)[0], _source_span(part, high - 1)[1]))
        return tuple(found)


def _source_span(part: DecodedSegment, offset: int) -> tuple[int, int]:
    if part.is_base64:
        group = (offset - part.at) // 3 * 4
        return part.source + group, part.source + min(group + 4, part.source_length)
    if part.length == part.source_length:
        return part.source + offset - part.at, part.source + offset - part.at + 1
    return part.source, part.source + part.source_length


def blank_json_escapes(data: bytes) -> bytes:
    """Return `data` with the line ends and tabs of JSON blanked out and curly quotes straight, each offset kept."""
    if contains_needle(data, _CURLY[:2]):
        # An escaped quote is two here (`widened`). Single ones stay: most of them are apostrophes.
        data = data.replace(2 * _CURLY, b'     "').replace(_CURLY, b'  "')
        data = data.replace(2 * _CLOSING, b'"     ').replace(_CLOSING, b'"  ')
    if b"\\" not in data:
        return data
    if b"\\\\" in data:  # escaped twice
        data = data.replace(b"\\\\n", b"  \n").replace(b"\\\\t", b"  \t")
    if b"\\r" in data:
        data = data.replace(b"\\r\\n", b"   \n")
    return data.replace(b"\\n", b" \n").replace(b"\\t", b" \t")


def decode_escapes_in_place(data: bytes) -> bytes:
    """Return `data` with escaped characters beyond ASCII in UTF-8, each repeated to keep every offset."""
    if not contains_needle(data, b"\\u"):
        return data
    # Two, three or four bytes fill the six or twelve of the escape exactly; half a pair stays as it is.
    return _WIDE.sub(lambda one: (read := _decode_unicode_run(one[0])) * (len(one[0]) // len(read)), data)  # type: ignore[no-any-return]


def decode_unicode_escapes(lines: list[bytes]) -> list[bytes]:
    """Return lines of JSON with escaped characters beyond ASCII in UTF-8."""
    return [_ESCAPES.sub(lambda run: _decode_unicode_run(run[0]), line) if b"\\u" in line else line for line in lines]


@functools.lru_cache(maxsize=4096)
def _decode_unicode_run(run: bytes) -> bytes:
    try:
        return run if run == b"\\\\" else json.loads(b'"' + run + b'"').encode()
    except UnicodeEncodeError:  # half a pair
        return run


def _decode_mark(text: bytes) -> bytes:
    if text.startswith(b"&#"):
        return bytes((int(text[3:-1], 16) if text[2:3] in b"xX" else int(text[2:-1]),))
    return _NAMED.get(text) or bytes((int(text[-2:], 16),))


def iter_other_views(data: bytes) -> Iterator[DecodedText]:
    """Yield the views that this text needs, but for base64: most need none."""
    if b"\x1b" in data or b"1b[" in data:
        yield replace_with_meaning(data, _ANSI, lambda _: b"")
    if b"%" in data and _TELLING_PERCENT.search(data) is not None:
        yield replace_with_meaning(data, _PERCENT, lambda code: bytes((int(code[1:], 16),)))
    if any(mark in data for mark in WRITTEN_MARKS):
        yield replace_with_meaning(data, _WRITTEN, _decode_mark)._replace(persons=True)
    if b"data: {" in data or b"data:{" in data:
        yield from _iter_stream_views(data)


def replace_with_meaning(data: bytes, pattern: Any, meaning: Callable[[bytes], bytes]) -> DecodedText:
    """Replace what `pattern` finds by its meaning, keeping only the text around: the rest is as it was."""
    parts: list[bytes] = []
    segments: list[DecodedSegment] = []
    at = source = 0
    for match in pattern.finditer(data):
        start, end = match.span()
        if start - source > 2 * _AROUND and segments:
            at, source = _append_segment(parts, segments, at, source, data[source : source + _AROUND] + b"\0")
        if start - source > _AROUND:
            source = start - _AROUND
        if start > source:
            at, source = _append_segment(parts, segments, at, source, data[source:start])
        read = meaning(data[start:end])
        if read:
            parts.append(read)
            segments.append(DecodedSegment(at, start, 1, end - start))
            at += 1
        source = end
    _append_segment(parts, segments, at, source, data[source : source + _AROUND])
    return DecodedText(b"".join(parts), tuple(segments))


def _append_segment(
    parts: list[bytes], segments: list[DecodedSegment], at: int, source: int, piece: bytes
) -> tuple[int, int]:
    parts.append(piece)
    segments.append(DecodedSegment(at, source, len(piece), len(piece)))
    return at + len(piece), source + len(piece)


def _iter_stream_views(data: bytes) -> Iterator[DecodedText]:
    """Join the text of server-sent events, per field: a model's words come in pieces."""
    pieces: dict[str, list[tuple[int, bytes]]] = {}
    for low, body in _iter_event_json(data):
        # Half a surrogate pair is not UTF-8, yet a stream may split a pair.
        halves = b"\\ud" in body
        try:
            event = json.loads(body) if halves else msgspec.json.decode(body)
        except (ValueError, RecursionError):
            continue
        for field, text in _iter_deltas(event):
            inside = json.dumps(text).encode()[1:-1] if halves else msgspec.json.encode(text)[1:-1]
            place = body.rfind(b'"' + inside + b'"')
            if inside and place >= 0:
                pieces.setdefault(field, []).append((low + place + 1, inside))
    for parts in pieces.values():
        if len(parts) > 1:
            yield _join_deltas(parts)


def _iter_event_json(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield where the JSON of each event begins, and the JSON."""
    at = 0
    for line in data.split(b"\n"):
        if line.startswith((b"data: {", b"data:{")):
            low = line.index(b"{")
            body = line[low:].rstrip(b" \t\r")
            if body.endswith(b"}"):
                yield at + low, body
        at += len(line) + 1


def _join_deltas(parts: list[tuple[int, bytes]]) -> DecodedText:
    segments, at = [], 0
    for source, text in parts:
        segments.append(DecodedSegment(at, source, len(text), len(text)))
        at += len(text)
    return DecodedText(b"".join(text for _, text in parts), tuple(segments), split=True)


def _iter_deltas(event: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > 5:
        return
    if isinstance(event, dict):
        for key, value in event.items():
            if isinstance(value, str) and key in _DELTAS:
                yield key, value
            else:
                yield from _iter_deltas(value, depth + 1)
    elif isinstance(event, list):
        for value in event:
            yield from _iter_deltas(value, depth + 1)


class Delta(NamedTuple):
    """A piece of a content block: in which record it is, by which keys it is reached, and what it says."""

    record: int
    path: tuple[str | int, ...]
    text: str


def iter_delta_blocks(records: Iterable[object]) -> Iterator[list[Delta]]:
    """Yield the deltas of each content block that came in several records, as `stream-json` and raw events write them.

    A block belongs to a session, a subagent and a place in its message, and ends where the next begins.
    """
    blocks: dict[tuple[object, ...], list[Delta]] = {}
    messages: Counter[tuple[object, ...]] = Counter()
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            continue
        event, path = (record["event"], ("event",)) if isinstance(record.get("event"), dict) else (record, ())
        sender = record.get("session_id"), record.get("parent_tool_use_id"), event.get("id")
        messages[sender] += str(event.get("type", "")).endswith("_start")
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            event, path = choices[0], (*path, "choices", 0)
        delta = event.get("delta")
        for field, text in delta.items() if isinstance(delta, dict) else ():
            if field in _DELTAS and isinstance(text, str):
                block = (*sender, messages[sender], event.get("index"), field)
                blocks.setdefault(block, []).append(Delta(number, (*path, "delta", field), text))
    yield from (block for block in blocks.values() if len(block) > 1)


def replace_text_at(record: Any, path: tuple[str | int, ...], text: str) -> Any:
    """Return a copy of `record` that says `text` at `path`."""
    if not path:
        return text
    changed: Any = dict(record) if isinstance(record, dict) else list(record)
    changed[path[0]] = replace_text_at(record[path[0]], path[1:], text)
    return changed


def iter_base64_views(data: bytes) -> Iterator[DecodedText]:
    """Yield one view of the texts behind all runs of base64 that hold plain ASCII, a NUL between them."""
    parts: list[bytes] = []
    segments: list[DecodedSegment] = []
    at = 0
    for match in _BASE64_TEXT.finditer(data):
        text = _decode_base64(match.group())
        if not text:
            continue
        start, stop = match.span()
        segments.append(DecodedSegment(at, start, len(text), stop - start, is_base64=True))
        parts.append(text)
        at += len(text) + 1
    if parts:
        yield DecodedText(b"\0".join(parts), tuple(segments))


def _decode_base64(run: bytes) -> bytes:
    run = run.replace(b"-", b"+").replace(b"_", b"/")
    run = run[: len(run) // 4 * 4] if len(run) % 4 == 1 else run + b"=" * (-len(run) % 4)
    try:
        text = base64.b64decode(run)
    except binascii.Error:
        return b""
    printable = text[:60].replace(b"\n", b" ").replace(b"\t", b" ").replace(b"\r", b" ")
    fine = len(text) >= 12 and printable.isascii() and printable.decode().isprintable()
    return text if fine else b""
