"""Titles that stand in another session's file.

Old versions wrote a session's title into whatever file they opened next; the record names
the title's session only by one of its messages.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import stringzilla as sz
from msgspec.structs import replace

from flightlog.model.events import Entry, Summarised
from flightlog.sources.claude_code.decode import decode
from flightlog.sources.protocol import SessionFile

_NEEDLE = b'"summary"'
_BLOCK_BYTES = 4 << 20


def summaries(transcripts: Iterable[SessionFile]) -> Iterator[Entry]:
    """Yield every title noted in `transcripts`, whoever it is for."""
    for transcript in transcripts:
        try:
            for line in _lines(transcript.path):
                for entry in decode(line) or ():
                    if isinstance(entry.event, Summarised):
                        yield replace(entry, path=transcript.path)
        except OSError:
            continue


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines that may hold a title; a file is read in blocks, however long it is."""
    kept = b""
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            data = kept + block
            whole = data.rfind(b"\n") + 1
            yield from _found(data[:whole])
            kept = data[whole:]
    yield from _found(kept)


def _found(data: bytes) -> Iterator[bytes]:
    at = sz.find(data, _NEEDLE)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = end if end >= 0 else len(data)
        yield data[start:end]
        at = sz.find(data, _NEEDLE, end)
