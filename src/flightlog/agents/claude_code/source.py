"""The reader of Claude Code's transcripts."""

import os
from collections.abc import Iterable, Iterator, Sequence

from flightlog.model.damage import Damage
from flightlog.model.events import Entry, LaneFacts
from flightlog.model.known import Known
from flightlog.sources.api.usage import decode_usage
from flightlog.sources.claude_code.discover import Found, Transcript, discover, session_files, spilled_file
from flightlog.sources.claude_code.known import known
from flightlog.sources.claude_code.records import read_records
from flightlog.sources.claude_code.scan import Scan, Target, scan
from flightlog.sources.claude_code.summaries import summaries
from flightlog.sources.claude_code.transcript import entries, entries_at, lane_facts
from flightlog.sources.claude_code.values import mapping, parsed, text
from flightlog.sources.protocol import Fidelity, TranscriptTail
from flightlog.store.index.lines import Records
from flightlog.store.reading import read_new_lines

# Found in the bytes of a line: a tail is read every few seconds, and most of it is not decoded.
_ROLES = (("assistant", b'"type":"assistant"'), ("user", b'"type":"user"'))


class ClaudeCodeSource:
    """Reads transcripts of Claude Code 1.0 to 2.1; `sources.protocol.Source` says what each method does."""

    fidelity = Fidelity(
        timestamps=True,
        usage=True,
        client_totals=True,
        thinking=True,
        tool_results=True,
        subagents=True,
        system_prompt=True,
    )

    def find(self, roots: Sequence[str]) -> Found:
        """List the transcripts below configuration directories."""
        listings = [discover(root) for root in roots]
        files = (file for listing in listings for file in listing.transcripts)
        return Found(tuple(files), tuple(damage for listing in listings for damage in listing.damage))

    def session_files(self, known: Transcript) -> tuple[Transcript, ...]:
        """List the files of a session from its project's folder."""
        folder = os.path.dirname(known.path)  # noqa: PTH120 - plain text, as paths are here
        if known.lane and os.path.basename(folder) == "subagents":  # noqa: PTH119
            folder = os.path.dirname(os.path.dirname(folder))  # noqa: PTH120
        return tuple(session_files(folder, known.session))

    def entries(self, file: Transcript, start: int = 0) -> Iterator[Entry | Damage | LaneFacts]:
        """Yield the records; the client may write its notes on a subagent late, so each read has them."""
        yield from entries(file, start)
        if file.lane:
            yield lane_facts(file)

    def entries_at(self, path: str, spans: Iterable[tuple[int, int]]) -> Iterator[Entry]:
        """Yield single records."""
        return entries_at(path, spans)

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize new lines; only the last one that counts tokens is decoded."""
        lines, end = read_new_lines(path, start)
        messages = [(role, len(line)) for line in lines if (role := _role(line))]
        last_role, last_bytes = messages[-1] if messages else ("", 0)
        model, tokens = next(_context_sizes(lines), ("", 0))
        return TranscriptTail(end, len(messages), last_role, last_bytes, model, tokens)

    def titles(self, files: Iterable[Transcript]) -> Iterator[Entry]:
        """Yield titles, which old versions wrote into the file they opened next."""
        return summaries(files)

    def scan_usage(self, file: Transcript, start: int = 0) -> Scan:
        """Scan for usage by byte search."""
        return scan(Target(file.path, file.session, file.lane, start))

    def index_records(self, file: Transcript, start: int = 0) -> Records:
        """Read records with their words."""
        return read_records(file.path, start)

    def thread_contexts(self, files: Sequence[Transcript]) -> dict[str, Known]:
        """Read what each thread's model was given; only newer versions write it down."""
        return known(files)

    def tool_result_file(self, file: Transcript, name: str) -> str:
        """Return the file below the session's `tool-results/`."""
        return spilled_file(file, name)


def _role(line: bytes) -> str:
    return next((role for role, mark in _ROLES if mark in line), "")


def _context_sizes(lines: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """Yield model and tokens of each response, the last one first."""
    for line in reversed(lines):
        if b'"usage"' not in line or b'"assistant"' not in line:
            continue
        record = parsed(line) or {}
        message = mapping(record, "message")
        if text(record, "type") == "assistant" and mapping(message, "usage"):
            yield text(message, "model"), decode_usage(message["usage"]).total
