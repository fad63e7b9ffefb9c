"""Where a transcript is cut to go back to before one model response.

After a tool's result the client is resumed at that record; before a prompt it is resumed at the last
word said before it; where nothing was said, a new session begins. What the client then makes of its
history does not matter to the model (`context` sends the recorded one); it matters to the client
itself, which knows from it what it read and did. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import NotFound


class Cut(Struct, frozen=True):
    """How many lines are kept, the record to resume at, and whether there is nothing to resume."""

    lines: int
    resume_at: str = ""
    fresh: bool = False


def cut_before(lines: Sequence[bytes], uuids: Collection[str]) -> Cut:
    """Cut before the response whose records are `uuids`."""
    records = [_decoded(line) for line in lines]
    first = next((at for at, record in enumerate(records) if record.get("uuid") in uuids), None)
    if first is None:
        raise NotFound("the response is not in the transcript", hint="flightlog lab replay RUN --list-turns")
    for at in range(first - 1, -1, -1):
        record = records[at]
        if record.get("isSidechain") or record.get("type") not in {"user", "assistant"}:
            continue
        if record.get("type") == "assistant" or _is_result(record):
            return Cut(at + 1, str(record.get("uuid", "")))
        if record.get("isCompactSummary"):
            return Cut(at + 1)
    return Cut(0, fresh=True)


def renamed(lines: Sequence[bytes], old: str, new: str) -> bytes:
    """The lines as those of another session."""
    return b"".join(line.replace(old.encode(), new.encode()).rstrip(b"\n") + b"\n" for line in lines)


def _is_result(record: Mapping[str, Any]) -> bool:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except UNREADABLE:
        return {}
    return record if isinstance(record, dict) else {}
