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

from flightlog.agents.dialects.gemini import decode_usage
from flightlog.agents.qwen.files import main_path
from flightlog.model.errors import Unreadable
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, Usage, UsageLine, UsageQuality, response_to_row
from flightlog.sources.foreign_json import (
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.sources.line_filter import iter_lines_with
from flightlog.store.recordings.reader import open_reader, read_blocks

API_RESPONSE = "qwen-code.api_response"
_BLOCK_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")  # as the client replaces them in file names
_COUNTS = tuple(
    f"{name}_token_count" for name in ("input", "output", "cached_content", "thoughts", "total")
)


def find_event(record: dict[str, Any]) -> dict[str, Any]:
    """Return the event that a record of telemetry holds; others have none."""
    return object_field(object_field(record, "systemPayload"), "uiEvent")


def decode_event(event: dict[str, Any]) -> Usage:
    """Return the tokens of a response."""
    return decode_usage(event, _COUNTS)


def find_subagent(event: dict[str, Any]) -> str:
    """Return the subagent that called, by the name of its file; "" is the main thread."""
    name = text_field(event, "prompt_id").partition("#")[2].partition("#")[0]
    return _UNSAFE.sub("_", name or text_field(event, "subagent_name"))


class QwenCounter:
    """Counts the responses of one file; those of subagents are in the session's own file."""

    def __init__(self, file: SessionFile) -> None:
        """Count the file of one thread."""
        self._file = file
        self._has_events = bool(file.subagent)

    def count(self, line: bytes) -> Iterator[UsageLine]:
        """Yield the response that a line reports."""
        if self._has_events and API_RESPONSE.encode() not in line:
            return
        record = msgspec.json.decode(line, type=dict[str, Any])
        event, own = find_event(record), object_field(record, "usageMetadata")
        is_event = text_field(event, "event.name") == API_RESPONSE
        self._has_events |= is_event
        if is_event or record.get("type") == "assistant":
            response = ModelResponse(
                text_field(record, "uuid"),
                self._file.session,
                text_field(event, "model") or text_field(record, "model"),
                decode_event(event) if is_event else decode_usage(own),
                parse_timestamp_ms(text_field(record, "timestamp")) or 0,
                text_field(record, "cwd"),
                text_field(event, "response_id"),
                find_subagent(event),
                quality=UsageQuality.EXACT if is_event or own else UsageQuality.MISSING,
            )
            yield response_to_row(response)


def read_subagent_events(file: SessionFile) -> Iterator[dict[str, Any]]:
    """Yield the responses of a subagent, which are records of the session's own file."""
    with suppress(OSError, Unreadable), closing(open_reader(main_path(file))) as reader:
        for block in read_blocks(reader, 0, bytearray(_BLOCK_BYTES)):
            for line in iter_lines_with(API_RESPONSE.encode(), block.view, block.end):
                record = parse_object(bytes(line)) or {}
                if find_subagent(find_event(record)) == file.subagent:
                    yield record
