"""What is known of a thread besides what it says itself."""

from typing import Any

from msgspec import Struct


class ContextItem(Struct, frozen=True):
    """Something the client put into the model's context by itself: where it works, the date, a list of skills."""

    kind: str
    text: str
    at_ms: int | None = None


class ThreadContext(Struct, frozen=True):
    """What the model of one thread was given, and what of the thread is a copy.

    `tools` are the definitions as the API was told them (name, description, input_schema);
    `copied` are the message ids of responses that another session gave first, `context` what
    the client added to the conversation, in the order of its times.
    """

    tools: tuple[dict[str, Any], ...] = ()
    system: str = ""
    copied: frozenset[str] = frozenset()
    context: tuple[ContextItem, ...] = ()
