"""Decode a text: unescaped, without colors, from base64, joined from stream events.

A secret in a transcript is seldom plain: it is inside JSON inside JSON, colored, percent
encoded, in base64 or split over stream events. A `DecodedText` is bytes to be searched, with
the spans of the original that they come from.
"""

import base64
import binascii
import functools
import html
import itertools
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from flightlog.privacy.detect import rules
from flightlog.privacy.detect.candidates import TextForm, contains_needle

# Colors and other terminal sequences, the escape character also as JSON, C and shells write it.
_ANSI = rules.linear_pattern(
    rb"(?:(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;:?]*[A-Za-z]|\x1b[@-Z\\-_]"
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))+"
)
_PERCENT = rules.linear_pattern(rb"%[0-9A-Fa-f]{2}")  # RFC 3986
# Percent codes of marks (`:`, `=`, `"`, `@`, brackets): encoded text has them, a format string does not.
TELLING_PERCENT = rb"%(?:3[aAdD]|2[0-9a-fA-F]|40|5[bB]|7[bB])"
_TELLING_PERCENT = rules.linear_pattern(TELLING_PERCENT)  # the same, compiled
# Escapes of ASCII characters in JSON and HTML.
_ASCII_ESCAPE = rules.quick_pattern(
    rb"\\{1,3}u00[2-7][0-9a-fA-F]"
    rb"|&(?:quot|apos|lt|gt|amp|#(?:[xX][2-7][0-9a-fA-F]|3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6]));"
)
# A run of escapes beyond ASCII, or an escaped backslash, after which a `u` is a letter.
_UNICODE_RUN = rules.quick_pattern(rb"\\\\|(?:\\u(?!00[0-7])[0-9a-fA-F]{4})+")
_NAMED = {b"&quot;": b'"', b"&apos;": b"'", b"&lt;": b"<", b"&gt;": b">", b"&amp;": b"&"}
# One of these is in every text with `_ASCII_ESCAPE` that matters: a secret has a quote or a mark near.
ESCAPE_MARKS = (b"\\u00", b"&quot;", b"&gt;", b"&#")
# One character beyond ASCII as JSON escapes it; one beyond the first plane is a surrogate pair.
_WIDE = rules.quick_pattern(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?!00[0-7])[0-9a-fA-F]{4})"
)
# In base64 of plain ASCII the first three characters of each group have one bit clear. Five groups
# are 15 characters: the shortest text that is worth decoding.
BASE64_TEXT = (
    rb"(?:[CI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){5,}"
    rb"[A-Za-z0-9+/_-]*"
)
_BASE64_TEXT = rules.linear_pattern(BASE64_TEXT)  # the same, compiled
_DECODED_MIN = 12  # shorter decoded texts hold no secret with its name
_PRINTABLE_CHARS = 60  # binary data has an unprintable character among so many
# The fields of streamed text in the formats of Anthropic and OpenAI.
_DELTAS = frozenset(
    "text partial_json thinking content arguments delta reasoning_content input_json".split()
)
_EVENT_DEPTH_MAX = 5  # objects around a delta: no format nests it deeper
_CURLY, _CLOSING = "“".encode(), "”".encode()
# Bytes of text kept on each side of a decoded character: a name and its value fit.
_AROUND = 400
_at = itemgetter(0)  # of a segment


class DecodedSegment(NamedTuple):
    """A stretch of decoded text and its source, of equal length unless it was decoded."""

    at: int
    source: int
    length: int
    source_length: int
    is_base64: bool = False


class DecodedText(NamedTuple):
    """Bytes to search, and where they come from."""

    data: bytes
    segments: tuple[DecodedSegment, ...]
    split: bool = False  # joined from several pieces, so that a span may be several of the source
    form: TextForm = TextForm.DECODED

    def source_spans(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """Return the spans of the original that `start`:`end` of this text was decoded from."""
        first = bisect_right(self.segments, start, key=_at) - 1
        last = bisect_right(self.segments, end - 1, first, key=_at) - 1
        if not self.split:
            low, _ = _source_span(self.segments[first], start)
            _, high = _source_span(self.segments[last], end - 1)
            return ((low, high),)
        spans = []
        for segment in self.segments[first : last + 1]:
            low, high = max(start, segment.at), min(end, segment.at + segment.length)
            if low < high:
                spans.append((_source_span(segment, low)[0], _source_span(segment, high - 1)[1]))
        return tuple(spans)


def _source_span(segment: DecodedSegment, offset: int) -> tuple[int, int]:
    if segment.is_base64:
        group = (offset - segment.at) // 3 * 4
        return segment.source + group, segment.source + min(group + 4, segment.source_length)
    if segment.length == segment.source_length:
        start = segment.source + offset - segment.at
        return start, start + 1
    return segment.source, segment.source + segment.source_length


def blank_json_escapes(data: bytes) -> bytes:
    """Blank out the line ends and tabs of JSON and make curly quotes straight, keeping every offset."""
    if contains_needle(data, _CURLY[:2]):
        # `decode_escapes_in_place` doubles an escaped quote. Single quotes stay: most are apostrophes.
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
    """Decode escaped characters beyond ASCII to UTF-8, each repeated to keep every offset."""
    if not contains_needle(data, b"\\u"):
        return data
    return _WIDE.sub(_fill_escape, data)  # type: ignore[no-any-return]


def _fill_escape(escape: re.Match[bytes]) -> bytes:
    # Two, three or four bytes fill the six or twelve of the escape exactly; half a pair stays.
    character = _decode_unicode_run(escape[0])
    return character * (len(escape[0]) // len(character))


def decode_unicode_escapes(lines: list[bytes]) -> list[bytes]:
    """Return lines of JSON with escaped characters beyond ASCII in UTF-8."""
    return [
        _UNICODE_RUN.sub(lambda run: _decode_unicode_run(run[0]), line) if b"\\u" in line else line
        for line in lines
    ]


@functools.lru_cache(maxsize=4096)
def _decode_unicode_run(run: bytes) -> bytes:
    try:
        return run if run == b"\\\\" else json.loads(b'"' + run + b'"').encode()
    except UnicodeEncodeError:  # half a pair
        return run


def _decode_ascii_escape(escape: bytes) -> bytes:
    if escape.startswith(b"&#"):
        return bytes((int(escape[3:-1], 16) if escape[2:3] in b"xX" else int(escape[2:-1]),))
    return _NAMED.get(escape) or bytes((int(escape[-2:], 16),))


def decode_escape(escape: bytes) -> bytes:
    """Return the character of an escape; nothing for a line end or a color."""
    if escape[:1] == b"%":
        return bytes((int(escape[1:], 16),))
    if escape[:1] == b"&":
        return html.unescape(escape.decode()).encode()[:1]
    text = escape.lstrip(b"\\")
    if text[:1] == b"u" and len(text) == 5:
        return bytes((int(text[1:], 16),))
    return text if len(text) == 1 and text in b"\"'/`" and escape != text else b""


def iter_other_views(data: bytes) -> Iterator[DecodedText]:
    """Yield the decodings that this text needs, except base64: most texts need none."""
    if b"\x1b" in data or b"1b[" in data:
        yield replace_with_meaning(data, _ANSI, lambda _: b"")
    if b"%" in data and _TELLING_PERCENT.search(data) is not None:
        yield replace_with_meaning(data, _PERCENT, lambda code: bytes((int(code[1:], 16),)))
    if any(mark in data for mark in ESCAPE_MARKS):
        view = replace_with_meaning(data, _ASCII_ESCAPE, _decode_ascii_escape)
        yield view._replace(form=TextForm.UNESCAPED)
    if b"data: {" in data or b"data:{" in data:
        yield from _iter_stream_views(data)


def replace_with_meaning(
    data: bytes, pattern: Any, meaning: Callable[[bytes], bytes]
) -> DecodedText:
    """Replace each match of `pattern` by its meaning, and keep only the text around matches.

    The rest of `data` is the same in any decoding, so it needs no second search.
    """
    parts: list[bytes] = []
    segments: list[DecodedSegment] = []
    at = source = 0
    for match in pattern.finditer(data):
        start, end = match.span()
        if start - source > 2 * _AROUND and segments:
            added = data[source : source + _AROUND] + b"\0"
            at, source = _append_segment(parts, segments, at, source, added)
        if start - source > _AROUND:
            source = start - _AROUND
        if start > source:
            at, source = _append_segment(parts, segments, at, source, data[source:start])
        decoded = meaning(data[start:end])
        if decoded:
            parts.append(decoded)
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
    """Join the text of server-sent events per field: a model's words come in pieces."""
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
            offset = body.rfind(b'"' + inside + b'"')
            if inside and offset >= 0:
                pieces.setdefault(field, []).append((low + offset + 1, inside))
    for parts in pieces.values():
        if len(parts) > 1:
            starts = itertools.accumulate((len(text) for _, text in parts), initial=0)
            placed = zip(starts, parts, strict=False)
            segments = (DecodedSegment(at, low, len(text), len(text)) for at, (low, text) in placed)
            yield DecodedText(b"".join(text for _, text in parts), tuple(segments), split=True)


def _iter_event_json(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the JSON of each event."""
    at = 0
    for line in data.split(b"\n"):
        if line.startswith((b"data: {", b"data:{")):
            low = line.index(b"{")
            body = line[low:].rstrip(b" \t\r")
            if body.endswith(b"}"):
                yield at + low, body
        at += len(line) + 1


def _iter_deltas(event: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > _EVENT_DEPTH_MAX:
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
    """A piece of a content block: the number of its record, the keys to it, and its text."""

    record: int
    path: tuple[str | int, ...]
    text: str


def iter_delta_blocks(records: Iterable[object]) -> Iterator[list[Delta]]:
    """Yield the deltas of each content block that is split over several records.

    Reads records of `stream-json` and raw API events. A block belongs to a session, a subagent
    and an index in its message, and ends where the next begins.
    """
    blocks: dict[tuple[object, ...], list[Delta]] = {}
    messages: Counter[tuple[object, ...]] = Counter()
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            continue
        event, path = (
            (record["event"], ("event",)) if isinstance(record.get("event"), dict) else (record, ())
        )
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
    """Return a copy of `record` with `text` at `path`."""
    if not path:
        return text
    changed: Any = dict(record) if isinstance(record, dict) else list(record)
    changed[path[0]] = replace_text_at(record[path[0]], path[1:], text)
    return changed


def iter_base64_views(data: bytes) -> Iterator[DecodedText]:
    """Yield one text of all runs of base64 that decode to plain ASCII, with NULs between them."""
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
    sample = text[:_PRINTABLE_CHARS].replace(b"\n", b" ").replace(b"\t", b" ").replace(b"\r", b" ")
    is_text = len(text) >= _DECODED_MIN and sample.isascii() and sample.decode().isprintable()
    return text if is_text else b""
