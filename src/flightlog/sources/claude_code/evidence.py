"""What in a session's files explains a difference between the client's count and the record.

Looks only at the lines that can matter, found by byte search, so that it costs milliseconds.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import stringzilla as sz

from flightlog.sources.claude_code.scan import lines_with
from flightlog.sources.claude_code.values import mapping, parsed, text
from flightlog.store.reading import blocks, open_reader

_BLOCK_BYTES = 1 << 18  # small enough to stay in the processor's cache from one search to the next
_NEEDLES = (b'"compact_boundary"', b'"StreamTruncated"', b'"requestRef":"', b'"api-request"')


class Signs(NamedTuple):
    """What was seen: compactions, streams that were cut, replies whose requests stand elsewhere."""

    compactions: int
    cuts: int
    copied: bool


def signs(paths: Iterable[str]) -> Signs:
    """Search the files of one session."""
    compactions = cuts = 0
    sent: set[str] = set()
    named: set[str] = set()
    for line in {line for path in paths for line in _telling(path)}:
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


def _telling(path: str) -> Iterator[bytes]:
    try:
        file = open_reader(path)
    except OSError:
        return
    try:
        for block in blocks(file, 0, bytearray(_BLOCK_BYTES)):
            for needle in _NEEDLES:
                if sz.find(block.view, needle, 0, block.end) >= 0:
                    yield from map(bytes, lines_with(needle, block.view, block.end))
    except OSError:
        return
    finally:
        file.close()
