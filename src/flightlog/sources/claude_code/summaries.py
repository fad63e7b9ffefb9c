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
from flightlog.sources.claude_code.discover import Transcript

_NEEDLE = b'"summary"'


def summaries(transcripts: Iterable[Transcript]) -> Iterator[Entry]:
    """Yield every title noted in `transcripts`, whoever it is for."""
    for transcript in transcripts:
        try:
            data = Path(transcript.path).read_bytes()
        except OSError:
            continue
        for line in _lines(data):
            for entry in decode(line) or ():
                if isinstance(entry.event, Summarised):
                    yield replace(entry, path=transcript.path)


def _lines(data: bytes) -> Iterator[bytes]:
    at = sz.find(data, _NEEDLE)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = end if end >= 0 else len(data)
        yield data[start:end]
        at = sz.find(data, _NEEDLE, end)
