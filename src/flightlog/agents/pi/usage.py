"""Count the tokens of Pi's sessions.

`input` has no cached tokens in it, and `reasoning` is inside `output`; both were measured against
the responses that version 0.87.1 received. Besides replies, a compaction, the summary of a left
branch, a tool that asks a model, and side calls (`usage`, such as `cache_warm`) count. A fork is a
copy of its parent: a response has the id that its provider gave it, anything else that of its entry.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from flightlog.model.session import SessionFile
from flightlog.model.usage import ClientTotals, Usage, UsageLine, UsageQuality
from flightlog.sources.foreign_json import (
    int_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)

CONTEXT_NEEDLES = (b'"type":"session"', b'"type":"model_change"')
USAGE_NEEDLES = (*CONTEXT_NEEDLES, b'"usage":{', b'"role":"assistant"')
_SIDE_CALLS = frozenset({"usage", "compaction", "branch_summary"})


def decode_usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens of a call."""
    return Usage(
        input_tokens=int_field(counts, "input"),
        output_tokens=int_field(counts, "output"),
        cache_read_tokens=int_field(counts, "cacheRead"),
        cache_write_tokens=int_field(counts, "cacheWrite"),
        cache_write_1h_tokens=int_field(counts, "cacheWrite1h"),
    )


def entry_name(record: dict[str, Any], line: bytes) -> str:
    """Return an id of an entry that its copies in forks share; its own has 32 bits only."""
    if text_field(record, "id") and text_field(record, "type") != "session":
        return f"{text_field(record, 'id')}-{text_field(record, 'timestamp')}"
    return hashlib.blake2b(line.strip(), digest_size=12).hexdigest()


def response_name(record: dict[str, Any], line: bytes) -> str:
    """Return the id of the response in an entry, see above."""
    message = object_field(record, "message")
    return text_field(message, "responseId") or entry_name(record, line)


def find_counts(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the counts of the model call in an entry; None if it has none.

    A request that failed has counts of zero and no response.
    """
    message = object_field(record, "message")
    role = text_field(message, "role")
    counts = object_field(message if role else record, "usage")
    if role == "assistant":
        is_failed = text_field(message, "stopReason") == "error" and not decode_usage(counts)
        return None if is_failed else counts
    is_side_call = role == "toolResult" or text_field(record, "type") in _SIDE_CALLS
    return counts if counts and is_side_call else None


def usage_quality(record: dict[str, Any], counts: dict[str, Any]) -> UsageQuality:
    """Return how far counts can be trusted: those of a reply that was cut are its first ones."""
    if not decode_usage(counts):
        return UsageQuality.MISSING
    is_cut = text_field(object_field(record, "message"), "stopReason") in {"aborted", "error"}
    return UsageQuality.LOWER_BOUND if is_cut else UsageQuality.EXACT


def model_of(record: dict[str, Any], selected: str) -> str:
    """Return the model of the call in an entry; a summary is made by the selected one."""
    message = object_field(record, "message")
    named = text_field(message, "responseModel") or text_field(message, "model")
    return named or text_field(record, "model") or selected


class PiCounter:
    """Counts the calls in one session's file, see `agents.line_source.LineCounter`."""

    def __init__(self, file: SessionFile) -> None:
        """Start before the first line of `file`."""
        self._session = file.session
        self._cwd = ""
        self._model = ""

    def count(self, line: bytes) -> Iterator[UsageLine | ClientTotals]:
        """Yield the usage that a line adds."""
        record = parse_object(line) or msgspec.json.decode(line, type=dict[str, Any])
        match text_field(record, "type"):
            case "session":
                self._cwd = text_field(record, "cwd")
            case "model_change":
                self._model = text_field(record, "modelId")
        counts = find_counts(record)
        if counts is None:
            return
        message = object_field(record, "message")
        yield UsageLine(
            message_id=response_name(record, line),
            session=self._session,
            model=model_of(record, self._model),
            **asdict(decode_usage(counts)),
            at_ms=parse_timestamp_ms(text_field(record, "timestamp")) or 0,
            project=self._cwd,
            request_id="",
            subagent="",
            is_aborted=text_field(message, "stopReason") == "aborted",
            quality=usage_quality(record, counts),
        )
