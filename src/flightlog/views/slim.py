"""A record with its long texts cut: what a fold of a whole session can do without.

The shape of the session stays the same; the words stay in the recording.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from flightlog.model.events import (
    Block,
    Entry,
    Image,
    InputRewritten,
    Prompted,
    Replied,
    Text,
    Thinking,
    ToolReturned,
    ToolUse,
)

SHORT_BYTES = 2_000
KEEP_CHARS = 400
_PROMPT_CHARS = 100_000
_MATCHED = "prompt"  # a subagent is matched to its call by these words


def slim(entry: Entry) -> Entry:
    """Shorten the long texts of one record."""
    if entry.length <= SHORT_BYTES:
        return entry
    match entry.event:
        case Replied() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, KEEP_CHARS)))
        case ToolReturned() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, KEEP_CHARS), detail=None))
        case Prompted() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, _PROMPT_CHARS)))
        case InputRewritten() as said:
            return replace(entry, event=replace(said, input=_slim_input(said.input)))
        case _:
            return entry


def _slim(content: Iterable[Block], keep: int) -> tuple[Block, ...]:
    return tuple(_slim_block(block, keep) for block in content)


def _slim_block(block: Block, keep: int) -> Block:
    match block:
        case Text() | Thinking() if len(block.text) > keep:
            return replace(block, text=block.text[:keep] + "…")
        case ToolUse():
            return replace(block, input=_slim_input(block.input))
        case Image():
            return replace(block, data="")
        case _:
            return block


def _slim_input(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value if key == _MATCHED else _slim_value(value) for key, value in given.items()}


def _slim_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= KEEP_CHARS else value[:KEEP_CHARS] + "…"
    return "…" if isinstance(value, list | dict) and len(value) > 20 else value
