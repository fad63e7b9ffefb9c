"""Salvage the records of one damaged line, as a pure function of its bytes.

Lines break in known ways: torn, joined to the next record, filled with NUL bytes, not UTF-8,
half an emoji. A record is a JSON object; everything around it is damage with an offset. The time
is linear in the length, whatever a hostile line holds.
"""

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import DecodeError, Raw, json
from stringzilla import count

from flightlog.model.errors import DEPTH_MAX

BOM = codecs.BOM_UTF8
_CHECK_BYTES = 1 << 20  # decoded at once, to bound the memory a long line needs
# A string, whose brackets do not count.
_QUOTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SPACE = re.compile(rb"[ \t\r]*+")  # JSON's white space except the newline, which ends a line
# One token. `(?!)` ends a repetition at once: Python 3.11.4 and older otherwise continues a
# possessive group where its last alternative failed.
_TOKEN = re.compile(
    rb"""[ \t\r]*+(?:
      (?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(?!))*+")
    | (?P<plain>true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++|(?!))?+(?:[eE][+-]?[0-9]++|(?!))?+)
    | (?P<mark>[][{}:,])
    )""",
    re.VERBOSE,
)
# A token that the end of the line cuts off.
_CUT_TOKEN = re.compile(
    rb"""(?:
      "(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(?!))*+(?:\\(?:u[0-9a-fA-F]{0,3})?)?
    | -?[0-9.eE+-]{0,40}
    | t(?:ru?)? | f(?:a(?:ls?)?)? | n(?:ul?)?
    )\Z""",
    re.VERBOSE,
)
# An escape; group 1 is a surrogate that is not half of a pair, which no decoder accepts.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)

# The grammar: each state names the kinds of token it accepts and the state they lead to.
_STEPS: dict[str, dict[str, str]] = {
    "value": {"string": "more", "plain": "more", "{": "first key", "[": "first item"},
    "first key": {"string": "colon", "}": "close"},
    "key": {"string": "colon"},
    "colon": {":": "value"},
    "first item": {
        "string": "more",
        "plain": "more",
        "{": "first key",
        "[": "first item",
        "]": "close",
    },
    "more": {",": "next", "}": "close", "]": "close"},
}
_OPENER = {"}": ord("{"), "]": ord("[")}


class SalvagedSpan(NamedTuple):
    """A part of the line: a record if `reason` is empty, damage otherwise."""

    start: int
    end: int
    reason: str = ""


def is_sound(line: bytes) -> bool:
    """Return whether `line` is one JSON object that every reader of ours can decode."""
    try:
        json.decode(line, type=Raw)
    except (DecodeError, RecursionError):
        return False
    if len(line) > 2 * DEPTH_MAX and _is_deep(line):
        return False
    return line.lstrip(b" \t\r")[:1] == b"{" and (line.isascii() or not _find_bad_utf8(line))


def _is_deep(line: bytes) -> bool:
    """Return whether JSON is nested too deeply; Python's own limit depends on its version."""
    if count(line, b"{") + count(line, b"[") <= DEPTH_MAX:
        return False
    brackets = _QUOTED.sub(b"", line).translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return bool(brackets)


def iter_spans(line: bytes) -> Iterator[SalvagedSpan]:
    """Split `line` into records and damage, in order; together they cover all but white space."""
    start = 0
    if line.startswith(BOM):
        yield SalvagedSpan(0, len(BOM), "byte order mark")
        start = len(BOM)
    for piece in re.finditer(rb"\0+|[^\0]+", line[start:] if start else line):
        first, last = piece.start() + start, piece.end() + start
        if line[first] == 0:
            yield SalvagedSpan(first, last, "NUL bytes")
        else:
            yield from _resynchronize(line, first, last)


def repair_text(record: bytes) -> tuple[bytes, SalvagedSpan | None]:
    """Return `record` with text that every reader can decode, and the span that was replaced."""
    bad = _find_bad_utf8(record)
    if bad is not None:
        record = record.decode("utf-8", "replace").encode()
    halves = [escape.span() for escape in _ESCAPE.finditer(record) if escape.group(1)]
    if not halves:
        return record, bad
    patched = bytearray(record)
    for first, last in halves:
        patched[first:last] = rb"\ufffd"
    return bytes(patched), bad or SalvagedSpan(halves[0][0], halves[-1][1], "lone surrogate")


def _resynchronize(line: bytes, start: int, end: int) -> Iterator[SalvagedSpan]:
    """Find the records in `line[start:end]`, which holds no NUL byte.

    A record that was torn and then joined stops being JSON at the joint or a few bytes past it,
    so reading continues at the last `{"` before the failure. That may begin an inner object: it
    is a record only if nothing but records follow.
    """
    lost = at = _skip_space(line, start, end)
    is_edge = start in {0, len(BOM)}
    while at < end:
        stop, state = _scan_object(line, at, end)
        if state == "whole" and (is_edge or _is_edge(line, stop, end)):
            if lost < at:
                yield SalvagedSpan(lost, at, "torn, then joined to the next record")
            yield SalvagedSpan(at, stop)
            lost = at = _skip_space(line, stop, end)
            is_edge = True
            continue
        is_edge = False
        joint = line.rfind(b'{"', at + 1, min(stop + 2, end))
        at = joint if joint >= 0 else line.find(b'{"', max(stop, at + 1), end)
        if state == "cut" or at < 0:
            break
    if lost < end:
        yield SalvagedSpan(lost, end, "torn" if line[lost] == ord("{") else "no record")


def _scan_object(line: bytes, start: int, end: int) -> tuple[int, str]:
    """Read one object; return where reading stopped and whether it is whole, cut or broken."""
    if line[start] != ord("{"):
        return start, "broken"
    stack = bytearray()
    state, at = "value", start
    while at < end:
        token = _TOKEN.match(line, at, end)
        if token is None:
            return _classify_stop(line, at, end, state)
        kind = token.lastgroup if token.lastgroup != "mark" else token["mark"].decode()
        state = _STEPS[state].get(str(kind), "")
        if kind in {"{", "["}:
            stack += token["mark"]
        elif state == "close":
            state = "more" if stack.pop() == _OPENER[str(kind)] else ""
            if not stack and state:
                return token.end(), "whole"
        elif state == "next":
            state = "key" if stack[-1] == ord("{") else "value"
        if not state:
            return token.end() - 1, "broken"
        at = token.end()
    return end, "cut"


def _classify_stop(line: bytes, at: int, end: int, state: str) -> tuple[int, str]:
    stop = _skip_space(line, at, end)
    may_be_cut = stop == end or ("string" in _STEPS[state] and _CUT_TOKEN.match(line, stop, end))
    return (end, "cut") if may_be_cut else (stop, "broken")


def _is_edge(line: bytes, at: int, end: int) -> bool:
    """Return whether nothing or the next record follows; after an inner object neither does."""
    at = _skip_space(line, at, end)
    return at == end or line.startswith(b'{"', at)


def _skip_space(line: bytes, start: int, end: int) -> int:
    space = _SPACE.match(line, start, end)
    assert space is not None, "white space may be empty"
    return space.end()


def _find_bad_utf8(data: bytes) -> SalvagedSpan | None:
    """Return the span from the first to the last byte that is not UTF-8."""
    first = last = -1
    start = 0
    while start < len(data):
        part, is_last = data[start : start + _CHECK_BYTES], start + _CHECK_BYTES >= len(data)
        try:
            start += codecs.utf_8_decode(part, "strict", is_last)[1]
        except UnicodeDecodeError as error:
            first = start + error.start if first < 0 else first
            last = start + error.end
            start = last
    return SalvagedSpan(first, last, "not UTF-8") if first >= 0 else None
