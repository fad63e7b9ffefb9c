"""Reading a transcript file into entries, damage included.

The file is read in place and never written. Records without a time of their own get the
time of the record before them, so that they keep their place when files are joined.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from flightlog.model.damage import Damage
from flightlog.model.events import Entry, LaneFacts
from flightlog.sources.claude_code.decode import decode
from flightlog.sources.claude_code.discover import Transcript, lane_facts_file
from flightlog.sources.claude_code.values import parsed, text
from flightlog.store.lines import read as read_lines


def entries(transcript: Transcript, start: int = 0) -> Iterator[Entry | Damage]:
    """Yield what the transcript says from byte `start` on."""
    last_ms = 0
    for line in read_lines(Path(transcript.path), start):
        if isinstance(line, Damage):
            yield line
            continue
        decoded = decode(line.data)
        if decoded is None:
            yield Damage(transcript.path, line.offset, line.length, "not a transcript record")
            continue
        for entry in decoded:
            last_ms = entry.at_ms if entry.at_ms is not None else last_ms
            yield replace(
                entry,
                session=transcript.session,
                lane=transcript.lane or entry.lane,
                order_ms=last_ms,
                path=transcript.path,
                offset=line.offset,
                length=line.length,
            )


def entries_at(path: str, offset: int, length: int) -> Iterator[Entry]:
    """Yield what the record at a known place says; a file that changed meanwhile may say nothing."""
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            line = file.read(length)
    except OSError:
        return
    for entry in decode(line) or ():
        yield replace(entry, order_ms=entry.at_ms or 0, path=path, offset=offset, length=length)


def lane_facts(transcript: Transcript) -> LaneFacts:
    """Read what stands beside a subagent's transcript; absent or broken means nothing is known."""
    try:
        told = parsed(Path(lane_facts_file(transcript)).read_bytes()) or {}
    except OSError:
        told = {}
    return LaneFacts(transcript.lane, text(told, "agentType"), text(told, "description"), text(told, "toolUseId"))
