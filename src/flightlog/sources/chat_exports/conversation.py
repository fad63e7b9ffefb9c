"""Conversation: one conversation of an export, the same for every vendor.

The thread that was current when the export was made is the main one; every message outside it
carries the name of its branch as its subagent.
"""

from collections.abc import Iterator

from msgspec import Struct

from flightlog.model.addresses import Address

PERSON, AGENT, TOOL = "user", "assistant", "tool"


class ChatMessage(Struct, frozen=True):
    """One message; `files` are names of attachments, `canvas` is the title of a document."""

    role: str
    text: str
    at_ms: int | None = None
    subagent: str = ""
    model: str = ""
    files: tuple[str, ...] = ()
    canvas: str = ""
    other: tuple[str, ...] = ()
    is_deleted: bool = False


class Conversation(Struct, frozen=True):
    """One conversation; `deleted` if only its name is left."""

    id: str
    source: str
    title: str
    started_ms: int | None
    ended_ms: int | None
    messages: tuple[ChatMessage, ...]
    branches: int = 0
    is_deleted: bool = False


def iter_addressed_messages(chat: Conversation) -> Iterator[tuple[str, ChatMessage]]:
    """Yield each message with its address: a person's starts a turn, any other is a step."""
    turns: dict[str, int] = {}
    steps: dict[str, int] = {}
    for message in chat.messages:
        subagent = message.subagent
        if message.role == PERSON or subagent not in turns:
            turns[subagent], steps[subagent] = turns.get(subagent, 0) + 1, 0
        if message.role != PERSON:
            steps[subagent] += 1
        yield str(Address(chat.id, turns[subagent], steps[subagent], subagent)), message
