"""The tokens in Gemini CLI's lines: per call, cached inside the input, thoughts beside the output.

The line of a message comes again when its tools finish. The history that a resumed session writes
(`$set.messages`) repeats messages without their tokens, so it counts nothing.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.dialects.gemini import decode_usage
from flightlog.agents.gemini.files import read_project_root
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, UsageLine, UsageQuality, response_to_row
from flightlog.sources.foreign_json import parse_timestamp_ms

TOKEN_NAMES = ("input", "output", "cached", "thoughts", "total", "tool")


class _CountedMessage(Struct, gc=False):
    """A message without its content; a whole session on one line has `messages`."""

    id: str = ""
    type: str = ""
    timestamp: str = ""
    model: str | None = None
    tokens: dict[str, Any] | None = None
    messages: list["_CountedMessage"] = []


_decode = msgspec.json.Decoder(_CountedMessage).decode


class GeminiCounter:
    """Counts the responses of one file."""

    def __init__(self, file: SessionFile) -> None:
        """Count the file of one thread."""
        self._file = file
        self._project = read_project_root(file)
        self._counted: set[str] = set()

    def count(self, line: bytes) -> Iterator[UsageLine]:
        """Yield each response; one without counts never replaces the same one with counts."""
        record = _decode(line)
        for message in (record, *record.messages):
            has_counts = message.tokens is not None
            if message.type != "gemini" or not (has_counts or message.id not in self._counted):
                continue
            self._counted.update([message.id] * has_counts)
            response = ModelResponse(
                message.id,
                self._file.session,
                message.model or "",
                decode_usage(message.tokens, TOKEN_NAMES),
                parse_timestamp_ms(message.timestamp) or 0,
                self._project,
                subagent=self._file.subagent,
                quality=UsageQuality.EXACT if has_counts else UsageQuality.MISSING,
            )
            yield response_to_row(response)
