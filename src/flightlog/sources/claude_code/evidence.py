"""What in a session's files explains a difference between the client's count and the record.

Looks only at the lines that can matter, found by byte search, so that it costs milliseconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import stringzilla as sz

from flightlog.sources.claude_code.scan import lines_with
from flightlog.sources.claude_code.values import mapping, parsed, text
from flightlog.store.reading import blocks, open_reader

_BLOCK_BYTES = 1 << 18  # small enough to stay in the processor's cache from one search to the next
_MORE = (b'"compact_boundary"', b'"StreamTruncated"')
_NAMED, _SENT = b'"requestRef":"', b'"api-request"'


class Signs(NamedTuple):
    """What was seen: compactions, streams that were cut, replies whose requests stand elsewhere."""

    compactions: int
    cuts: int
    copied: bool


def signs(paths: Iterable[str], *, more: bool = True) -> Signs:
    """Search the files of one session; what only explains why a client counted `more` is not looked for otherwise."""
    files = tuple(paths)
    found = set(_telling(files, (*_MORE, _NAMED) if more else (_NAMED,)))
    if any(_NAMED in line for line in found):
        found.update(_telling(files, (_SENT,)))
    compactions = cuts = 0
    sent: set[str] = set()
    named: set[str] = set()
    for line in found:
        record = parsed(line) or {}
        kind = text(record, "type")
        subtype = text(record, "subtype") if kind == "system" else ""
        connection = mapping(mapping(record, "error"), "connection")
        compactions += subtype == "compact_boundary"
        cuts += subtype == "api_error" and text(connection, "code") == "StreamTruncated"
        if kind == "api-request":
            sent.add(text(record, "id"))
        elif kind == "assistant" and text(record, "requestRef"):
            named.add(text(record, "requestRef"))
    return Signs(compactions, cuts, bool(named - sent))


def _telling(paths: Iterable[str], needles: Sequence[bytes]) -> Iterator[bytes]:
    buffer = bytearray(_BLOCK_BYTES)
    for path in paths:
        with suppress(OSError), closing(open_reader(path)) as file:
            for block in blocks(file, 0, buffer):
                for needle in needles:
                    if sz.find(block.view, needle, 0, block.end) >= 0:
                        yield from map(bytes, lines_with(needle, block.view, block.end))
