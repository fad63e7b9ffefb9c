"""A conversation of an export as a value, the same for every vendor.

Says nothing of what it means: `retro` reduces it. Branches are lanes: the thread that was current
when the export was made is the main one, every message elsewhere carries the name of its branch.
"""

from collections.abc import Iterator

from msgspec import Struct

from flightlog.model.addresses import Address

PERSON, AGENT, TOOL = "user", "assistant", "tool"


class ChatMessage(Struct, frozen=True):
    """One message; `files` are names of attachments, `canvas` the title of a document it wrote."""

    role: str
    text: str
    at_ms: int | None = None
    lane: str = ""
    model: str = ""
    files: tuple[str, ...] = ()
    canvas: str = ""
    other: tuple[str, ...] = ()
    deleted: bool = False


class Conversation(Struct, frozen=True):
    """One conversation; `deleted` when only its name is left."""

    id: str
    source: str
    title: str
    started_ms: int | None
    ended_ms: int | None
    said: tuple[ChatMessage, ...]
    branches: int = 0
    deleted: bool = False


def iter_addressed_messages(chat: Conversation) -> Iterator[tuple[str, ChatMessage]]:
    """Yield each message with its address: a person's words begin a turn, each answer is a step of it."""
    turns: dict[str, int] = {}
    steps: dict[str, int] = {}
    for said in chat.said:
        lane = said.lane
        if said.role == PERSON or lane not in turns:
            turns[lane], steps[lane] = turns.get(lane, 0) + 1, 0
        if said.role != PERSON:
            steps[lane] += 1
        yield str(Address(chat.id, turns[lane], steps[lane], lane)), said
