"""Reading a transcript file into entries, damage included.

The file is read in place and never written. Records without a time of their own get the
time of the record before them, so that they keep their place when files are joined.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from msgspec.structs import replace

from flightlog.model.damage import Damage
from flightlog.model.errors import Unavailable
from flightlog.model.events import Entry, SubagentInfo
from flightlog.sources.claude_code.decode import decode_record
from flightlog.sources.claude_code.discover import subagent_info_path
from flightlog.sources.claude_code.values import parse_object, text_field
from flightlog.sources.protocol import SessionFile
from flightlog.store.lines import JsonlLine
from flightlog.store.reading import open_reader, sound_lines


def entries(transcript: SessionFile, start: int = 0) -> Iterator[Entry | Damage]:
    """Yield what the transcript says from byte `start` on."""
    last_ms = 0
    for line in _read_sound_lines(transcript.path, start):
        if isinstance(line, Damage):
            yield line
            continue
        decoded = decode_record(line.data)
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


def entries_at(path: str, places: Iterable[tuple[int, int]]) -> Iterator[Entry]:
    """Yield what the records at known places say; a file that changed meanwhile may say nothing."""
    with suppress(OSError), closing(open_reader(path)) as file:
        for offset, length in places:
            for entry in decode_record(file.read(offset, length)) or ():
                yield replace(entry, order_ms=entry.at_ms or 0, path=path, offset=offset, length=length)


def _read_sound_lines(path: str, start: int) -> Iterator[JsonlLine | Damage]:
    """Read the file; one that cannot be read is damage as well, and hides no other."""
    try:
        yield from sound_lines(path, start)
    except OSError as error:
        yield Damage(path, start, 0, error.strerror or type(error).__name__)
    except Unavailable as error:
        yield Damage(path, start, 0, error.message.removesuffix(f": {path}"))


def read_subagent_info(transcript: SessionFile) -> SubagentInfo:
    """Read what stands beside a subagent's transcript; absent or broken means nothing is known."""
    try:
        told = parse_object(Path(subagent_info_path(transcript)).read_bytes()) or {}
    except OSError:
        told = {}
    return SubagentInfo(
        transcript.lane, text_field(told, "agentType"), text_field(told, "description"), text_field(told, "toolUseId")
    )
