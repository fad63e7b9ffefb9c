"""ClaudeCodeSource: entries, titles, thread contexts.

Files are read in place and never written. A record without a timestamp gets that of the record
before it, so that it keeps its position when files are merged.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress

from msgspec.structs import replace

from flightlog.agents.claude_code.decode import decode_record
from flightlog.agents.claude_code.files import (
    SUBAGENTS,
    session_files,
    spilled_output_path,
    subagent_file_name,
    subagent_info_path,
    workflow_run,
)
from flightlog.agents.claude_code.request_log import ContextBuilder, read_logged_requests
from flightlog.agents.claude_code.scan import scan_usage
from flightlog.agents.claude_code.search_text import read_last_ms, read_records, read_text_at
from flightlog.agents.dialects.anthropic_messages import decode_usage
from flightlog.model.addresses import is_safe
from flightlog.model.entries import Entry, SessionSummarized, SubagentInfo
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.sources.foreign_json import int_field, object_field, parse_object, text_field
from flightlog.sources.line_filter import iter_lines_with
from flightlog.sources.protocol import Fidelity, TranscriptTail
from flightlog.store.recordings import reader

# Searched for in undecoded lines: a tail is read every few seconds, and most of it is not decoded.
_ROLES = (("assistant", b'"type":"assistant"'), ("user", b'"type":"user"'))
_COMPACTION = b'"compact_boundary"'
_SUMMARY = b'"summary"'
_BLOCK_BYTES = 4 << 20
# Threads of the client's own: 2.1.29 wrote prompt suggestions, 2.1.88 side questions (`/btw`) and
# 2.1.90 and 2.1.96 compactions.
_SIDE_CALLS = (
    ("acompact-", "compaction"),
    ("aprompt_suggestion-", "prompt suggestion"),
    ("aside_question-", "side question"),
)


def entries(transcript: SessionFile, start: int = 0) -> Iterator[Entry | Damage]:
    """Yield the records of a transcript from byte `start` on."""
    last_ms = 0
    for line in reader.iter_lines_and_damage(transcript.path, start):
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
                subagent=transcript.subagent or entry.subagent,
                order_ms=last_ms,
                path=transcript.path,
                offset=line.offset,
                length=line.length,
            )


def read_subagent_info(transcript: SessionFile) -> SubagentInfo:
    """Return the client's notes on a subagent; absent or broken notes give empty fields."""
    notes = parse_object(b"".join(reader.raw_lines(subagent_info_path(transcript), 0))) or {}
    kind = next((kind for mark, kind in _SIDE_CALLS if transcript.subagent.startswith(mark)), "")
    return SubagentInfo(
        transcript.subagent,
        kind or text_field(notes, "agentType"),
        text_field(notes, "description"),
        text_field(notes, "toolUseId"),
        workflow_run(transcript),
        is_side_call=bool(kind),
    )


class ClaudeCodeSource:
    """Read transcripts of Claude Code 1.0 to 2.1; `sources.protocol.Source` describes the methods."""

    fidelity = Fidelity()
    index_records = staticmethod(read_records)
    last_record_ms = staticmethod(read_last_ms)
    logged_requests = staticmethod(read_logged_requests)
    scan_usage = staticmethod(scan_usage)
    text_at = staticmethod(read_text_at)
    tool_result_file = staticmethod(spilled_output_path)

    def session_files(self, file: SessionFile) -> tuple[SessionFile, ...]:
        """List the files of a session from its project's directory."""
        folder = os.path.dirname(file.path)  # noqa: PTH120 - plain text, as paths are here
        inside = file.path.rpartition(f"/{SUBAGENTS}/")[0] if file.subagent else ""
        if os.path.basename(inside) == file.session:  # noqa: PTH119
            folder = os.path.dirname(inside)  # noqa: PTH120
        return tuple(session_files(folder, file.session))

    def entries(self, file: SessionFile, start: int = 0) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield the records, then the notes on a subagent, which the client may write late."""
        yield from entries(file, start)
        if file.subagent:
            yield read_subagent_info(file)

    def entries_at(self, path: str, spans: Iterable[tuple[int, int]]) -> Iterator[Entry]:
        """Yield single records."""
        with suppress(OSError), closing(reader.open_reader(path)) as file:
            for offset, length in spans:
                for entry in decode_record(file.read(offset, length)) or ():
                    place = {"path": path, "offset": offset, "length": length}
                    yield replace(entry, order_ms=entry.at_ms or 0, **place)

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize new lines; only the last one that counts tokens is decoded."""
        lines, end = reader.read_new_lines(path, start)
        roles = (
            (next((role for role, mark in _ROLES if mark in line), ""), len(line)) for line in lines
        )
        messages = [message for message in roles if message[0]]
        last_role, last_bytes = messages[-1] if messages else ("", 0)
        sizes = _context_sizes(lines)
        model, tokens = next(sizes, ("", None))
        model = model or next((name for name, _ in sizes if name), "")
        return TranscriptTail(end, len(messages), last_role, last_bytes, model, tokens)

    def titles(self, files: Iterable[SessionFile]) -> Iterator[Entry]:
        """Yield titles, which old versions wrote into the file they opened next.

        Such a record identifies its session only by the id of one of the session's messages.
        """
        for file in files:
            with suppress(OSError):
                for line in _lines_with(file.path, _SUMMARY):
                    for entry in decode_record(line) or ():
                        if isinstance(entry.event, SessionSummarized):
                            yield replace(entry, path=file.path)

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Read what each thread's model was given.

        Newer clients log every request they send. A response whose request is not logged in the
        session's own files was copied from another session. Older clients log no requests, so none
        of their responses counts as copied.
        """
        builder = ContextBuilder()
        for file in files:
            for line in reader.raw_lines(file.path, 0):
                builder.add_line(line, file.subagent)
        threads = dict.fromkeys([*builder.requests.replies, *builder.context])
        return {subagent: builder.build(subagent) for subagent in threads}

    def files_beside(self, file: SessionFile) -> dict[str, str]:
        """Return the notes on a subagent and the tool results that were too long for a record."""
        beside: dict[str, str] = {}
        info = subagent_info_path(file)
        if file.subagent and os.path.isfile(info):  # noqa: PTH113 - plain text, as paths are here
            named = replace(file, path=subagent_file_name(file))
            beside[f"{SUBAGENTS}/{subagent_info_path(named)}"] = info
        folder = os.path.dirname(spilled_output_path(file, "x"))  # noqa: PTH120
        with suppress(OSError), os.scandir(folder) as found:
            outputs = sorted(found, key=lambda entry: entry.name)
            plain = (entry for entry in outputs if entry.is_file() and is_safe(entry.name))
            beside |= {f"tool-results/{entry.name}": entry.path for entry in plain}
        return beside


SOURCE = ClaudeCodeSource()


def _context_sizes(lines: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """Yield model and tokens of each response, the last one first; of a compaction only tokens."""
    for line in reversed(lines):
        if _COMPACTION in line:
            record = parse_object(line) or {}
            if text_field(record, "subtype") == "compact_boundary":
                yield "", int_field(object_field(record, "compactMetadata"), "postTokens")
        if b'"usage"' not in line or b'"assistant"' not in line:
            continue
        record = parse_object(line) or {}
        message = object_field(record, "message")
        if text_field(record, "type") == "assistant" and object_field(message, "usage"):
            yield text_field(message, "model"), decode_usage(message["usage"]).total_tokens


def _lines_with(path: str, needle: bytes) -> Iterator[bytes]:
    """Yield the lines that contain `needle`; the file is read in blocks."""
    rest = b""
    with open(path, "rb") as file:  # noqa: PTH123 - plain text, as above
        while block := file.read(_BLOCK_BYTES):
            data = rest + block
            end = data.rfind(b"\n") + 1
            yield from map(bytes, iter_lines_with(needle, memoryview(data), end))
            rest = data[end:]
    yield from map(bytes, iter_lines_with(needle, memoryview(rest), len(rest)))
