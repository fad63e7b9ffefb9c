"""OpenCodeSource: sessions that are rows of a database, and our copies of them as lines."""

from contextlib import suppress

from msgspec.structs import replace

from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.opencode.decode import OpenCodeDecoder
from flightlog.agents.opencode.files import AGENT_NAME, session_files
from flightlog.agents.opencode.rows import read_messages, read_session
from flightlog.agents.opencode.usage import OpenCodeCounter
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import Fidelity, TranscriptTail
from flightlog.store.recordings.reader import is_virtual

FORMAT = LineFormat(
    agent=AGENT_NAME,
    fidelity=Fidelity(
        timestamps=True,
        usage=True,
        client_totals=True,
        thinking=True,
        tool_results=True,
        subagents=True,
    ),
    new_decoder=OpenCodeDecoder,
    new_counter=OpenCodeCounter,
    usage_needles=(b'"type":"message"', b'"type":"session"', b'"type":"state"'),
    context_needles=(b'"type":"session"',),
    read_usage=read_messages,
)


class OpenCodeSource(LineSource):
    """A `LineSource` whose sessions were listed with the time of their last row."""

    def last_record_ms(self, file: SessionFile) -> int:
        """Return the time of the last record; that of a session's rows was listed."""
        if is_virtual(file.path):
            return file.changed_ns // 1_000_000
        return super().last_record_ms(file)

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize the lines added since byte `start`; the next one starts before the last line."""
        found = super().tail(path, start)
        with suppress(OSError):
            if is_virtual(path):
                return replace(found, end=read_session(path).rfind(b"\n", 0, -1) + 1)
        return found


SOURCE = OpenCodeSource(FORMAT, session_files)
