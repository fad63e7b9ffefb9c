"""The tokens in Qwen Code's lines: one `qwen-code.api_response` event for each response.

The events of subagents and of the client's own calls, such as the memory extractor, are in the
session's own file too, with a `prompt_id` of `<session>#<subagent>#<number>`. The `usageMetadata` of
an assistant record repeats the event before it, and counts only in a file without any event. The
uuid of its record names a response, as some servers give a `response_id` more than once.
"""

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from flightlog.agents.dialects.gemini import decode_usage
from flightlog.agents.qwen.files import main_path
from flightlog.model.errors import UNREADABLE, Unreadable
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, Usage, UsageLine, UsageQuality, response_to_row
from flightlog.sources.foreign_json import parse_timestamp_ms
from flightlog.sources.line_filter import iter_lines_with
from flightlog.store.recordings.reader import open_reader, read_blocks

API_RESPONSE = "qwen-code.api_response"
_BLOCK_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")  # as the client replaces them in file names


class ApiEvent(Struct, frozen=True, gc=False):
    """What the client reports of one response."""

    name: str = field(default="", name="event.name")
    response_id: str = ""
    model: str = ""
    input_token_count: int = 0
    output_token_count: int = 0
    cached_content_token_count: int = 0
    thoughts_token_count: int = 0
    total_token_count: int = 0
    response_text: str = ""
    prompt_id: str = ""
    subagent_name: str = ""
    subagent_task_name: str = ""

    @property
    def usage(self) -> Usage:
        """The tokens of the response."""
        counts = {
            "promptTokenCount": self.input_token_count,
            "candidatesTokenCount": self.output_token_count,
            "cachedContentTokenCount": self.cached_content_token_count,
            "thoughtsTokenCount": self.thoughts_token_count,
            "totalTokenCount": self.total_token_count,
        }
        return decode_usage(counts)

    @property
    def subagent(self) -> str:
        """The subagent that called, by the name of its file; "" is the main thread."""
        parts = self.prompt_id.split("#")
        is_named = len(parts) == 3 and bool(parts[1])
        return _UNSAFE.sub("_", parts[1] if is_named else self.subagent_name)


class _EventPayload(Struct, frozen=True, gc=False):
    uiEvent: ApiEvent = ApiEvent()  # noqa: N815 - the client's own name


class CountedRecord(Struct, frozen=True, gc=False):
    """A record without its message."""

    type: str = ""
    uuid: str = ""
    timestamp: str = ""
    cwd: str = ""
    model: str | None = None
    usage: dict[str, Any] | None = field(default=None, name="usageMetadata")
    payload: _EventPayload = field(default=_EventPayload(), name="systemPayload")

    @property
    def event(self) -> ApiEvent:
        """The event that a record of telemetry holds."""
        return self.payload.uiEvent


decode_counted = msgspec.json.Decoder(CountedRecord).decode


class QwenCounter:
    """Counts the responses of one file; those of subagents are in the session's own file."""

    def __init__(self, file: SessionFile) -> None:
        """Count the file of one thread."""
        self._file = file
        self._has_events = bool(file.subagent)

    def count(self, line: bytes) -> Iterator[UsageLine]:
        """Yield the response that a line reports."""
        record = decode_counted(line)
        event, is_event = record.event, record.event.name == API_RESPONSE
        self._has_events |= is_event
        if is_event or (record.type == "assistant" and not self._has_events):
            response = ModelResponse(
                record.uuid,
                self._file.session,
                event.model or record.model or "",
                event.usage if is_event else decode_usage(record.usage),
                parse_timestamp_ms(record.timestamp) or 0,
                record.cwd,
                event.response_id,
                event.subagent,
                quality=UsageQuality.EXACT if is_event or record.usage else UsageQuality.MISSING,
            )
            yield response_to_row(response)


def read_subagent_events(file: SessionFile) -> Iterator[CountedRecord]:
    """Yield the responses of a subagent, which are in the session's own file."""
    with suppress(OSError, Unreadable), closing(open_reader(main_path(file))) as reader:
        for block in read_blocks(reader, 0, bytearray(_BLOCK_BYTES)):
            for line in iter_lines_with(API_RESPONSE.encode(), block.view, block.end):
                with suppress(*UNREADABLE):
                    record = decode_counted(bytes(line))
                    if record.event.subagent == file.subagent:
                        yield record
