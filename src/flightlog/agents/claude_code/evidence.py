"""What in a session's files explains a difference between the client's count and the record.

Looks only at the lines that can matter, found by byte search, so that it costs milliseconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import stringzilla as sz

from flightlog.agents.claude_code.scan import iter_lines_with
from flightlog.sources.foreign_json import object_field, parse_object, text_field
from flightlog.store.recordings.reader import open_reader, read_blocks

_BLOCK_BYTES = 1 << 18  # small enough to stay in the processor's cache from one search to the next
_MORE = (b'"compact_boundary"', b'"StreamTruncated"')
_NAMED, _SENT = b'"requestRef":"', b'"api-request"'


class UsageEvidence(NamedTuple):
    """What was seen: compactions, streams that were cut, replies whose requests stand elsewhere."""

    compactions: int
    cuts: int
    copied: bool


def find_evidence(paths: Iterable[str], *, more: bool = True) -> UsageEvidence:
    """Search the files of one session; what only explains why a client counted `more` is not looked for otherwise."""
    files = tuple(paths)
    found = set(_iter_evidence_lines(files, (*_MORE, _NAMED) if more else (_NAMED,)))
    if any(_NAMED in line for line in found):
        found.update(_iter_evidence_lines(files, (_SENT,)))
    compactions = cuts = 0
    sent: set[str] = set()
    named: set[str] = set()
    for line in found:
        record = parse_object(line) or {}
        kind = text_field(record, "type")
        subtype = text_field(record, "subtype") if kind == "system" else ""
        connection = object_field(object_field(record, "error"), "connection")
        compactions += subtype == "compact_boundary"
        cuts += subtype == "api_error" and text_field(connection, "code") == "StreamTruncated"
        if kind == "api-request":
            sent.add(text_field(record, "id"))
        elif kind == "assistant" and text_field(record, "requestRef"):
            named.add(text_field(record, "requestRef"))
    return UsageEvidence(compactions, cuts, bool(named - sent))


def _iter_evidence_lines(paths: Iterable[str], needles: Sequence[bytes]) -> Iterator[bytes]:
    buffer = bytearray(_BLOCK_BYTES)
    for path in paths:
        with suppress(OSError), closing(open_reader(path)) as file:
            for block in read_blocks(file, 0, buffer):
                for needle in needles:
                    if sz.find(block.view, needle, 0, block.end) >= 0:
                        yield from map(bytes, iter_lines_with(needle, block.view, block.end))
