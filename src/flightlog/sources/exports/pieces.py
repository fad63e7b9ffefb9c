"""Cutting a long JSON array into its elements without holding more than one of them.

Knows brackets and strings, not what an element says: a piece may turn out not to be JSON, which is
for the decoder to find out. Elements of one export begin alike, so the next beginning is searched for
and what lies before it is taken if it is JSON from end to end: no beginning of an object is an object.
Where that does not help, brackets are counted; each byte is then looked at once, however long a string is.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import Invalid

CHUNK_BYTES = 4 << 20
PIECE_BYTES_MAX = 32 << 20  # a conversation of 10,000 long answers; two copies and what follows are in memory
PIECE_DEPTH_MAX = 100_000  # brackets are counted one by one, a million in half a second; no vendor nests deeper than 20

# Everything up to the next bracket that is not the border of a flat object or array. Python 3.11.4 and older goes on
# from where the last choice of a possessive group gave up, so that one has to give up at once.
_NONE = rb"|(?!)"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+' + _NONE + rb')*+"'
_PLAIN = rb'[^"{}\[\]]++'
_WORDS = rb"(?:" + _PLAIN + rb"|" + _STRING + _NONE + rb")*+"
_FLAT = rb"\{" + _WORDS + rb"\}|\[" + _WORDS + rb"\]"
_DEEP: Any = re.compile(rb"(?:" + _PLAIN + rb"|" + _STRING + rb"|" + _FLAT + _NONE + rb")*+([{}\[\]])", re.DOTALL)
_SHALLOW: Any = re.compile(_WORDS + rb"([{}\[\]])", re.DOTALL)
_OPENING = frozenset(b"{[")
_FIRST_KEY = re.compile(rb'\{\s*"[^"\\]{1,40}"')
_GUESSES = 3
_TRUST = 8

Read = Callable[[int], bytes]


class ArrayElement(NamedTuple):
    """One element: where it begins in the stream, and its bytes."""

    offset: int
    data: bytes


def split_export(read: Read) -> Iterator[ArrayElement]:
    """Yield the objects of the top array, or objects that follow each other when there is no array."""
    buffer = read(CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    first = buffer.lstrip()[:1]
    if first not in {b"[", b"{"}:
        raise Invalid("no JSON array or object at the beginning", hint="name the zip or the conversations.json in it")
    cutter = _ArraySplitter(0 if first == b"{" else 1)
    wanted = CHUNK_BYTES
    while buffer:
        yield from cutter.split(buffer)
        buffer = cutter.remaining_bytes(buffer)
        if len(buffer) > PIECE_BYTES_MAX:
            raise Invalid("an element of the export is longer than 32 MB", hint="ask for the export again")
        # A long string is looked at again from its beginning, so each look takes in twice as much.
        wanted = max(CHUNK_BYTES, len(buffer))
        more = read(wanted)
        if not more:
            cutter.check_complete(buffer)
            return
        buffer += more


class _AnyObject(Struct):
    """Any object: its fields are passed over, but have to be JSON."""


_CHECK = msgspec.json.Decoder(_AnyObject)


class _ArraySplitter:
    """Where in the nesting the stream is, between two chunks."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._depth = 0
        self._began: int | None = None
        self._read = 0
        self._passed = 0
        self._trust = _TRUST

    def split(self, buffer: bytes) -> Iterator[ArrayElement]:
        """Yield the elements that end in `buffer`."""
        at = self._read
        while True:
            inside = self._depth > self._base
            found = (_DEEP if inside else _SHALLOW).match(buffer, at)
            if found is None:
                break
            at = found.end()
            if buffer[at - 1] in _OPENING:
                if self._depth == self._base:
                    if (end := self._guess_end(buffer, at - 1)) is not None:
                        yield ArrayElement(self._passed + at - 1, buffer[at - 1 : end])
                        self._read = at = end
                        continue
                    self._began = at - 1
                self._depth += 1
                if self._depth > PIECE_DEPTH_MAX:
                    raise Invalid("an element of the export is nested too deeply", hint="ask for the export again")
            else:
                self._depth -= 1
                if self._depth == self._base and self._began is not None:
                    yield ArrayElement(self._passed + self._began, buffer[self._began : at])
                    self._began = None
            self._read = at
        self._read = at

    def _guess_end(self, buffer: bytes, start: int) -> int | None:
        """Return the end of the element at `start` if another begins after it as it does, and nothing when in doubt."""
        key = _FIRST_KEY.match(buffer, start) if self._trust > 0 else None
        if key is None:
            return None
        border = re.compile(rb"\}\s*,\s*" + re.escape(key[0]))
        for _, found in zip(range(_GUESSES), border.finditer(buffer, start), strict=False):
            end = found.start() + 1
            try:
                _CHECK.decode(memoryview(buffer)[start:end])
            except UNREADABLE:
                continue
            self._trust = _TRUST
            return end
        self._trust -= 1
        return None

    def remaining_bytes(self, buffer: bytes) -> bytes:
        """Return what is still needed of `buffer`."""
        keep = self._read if self._began is None else self._began
        self._passed += keep
        self._read -= keep
        self._began = None if self._began is None else 0
        return buffer[keep:]

    def check_complete(self, buffer: bytes) -> None:
        """Refuse a stream that ends inside an element or before the array does."""
        if self._depth > 0 or self._began is not None or buffer.strip():
            raise Invalid("the export ends in the middle", hint="it was not downloaded whole: get it again")
