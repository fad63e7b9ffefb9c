"""What a thread's model was given besides what the thread itself says."""

from typing import Any

from msgspec import Struct


class Given(Struct, frozen=True):
    """System prompt, tools and history that one thread began with.

    `tools` are the definitions as the API was told them (name, description, input_schema);
    `copied` are the message ids of responses that another session gave first.
    """

    system: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    copied: frozenset[str] = frozenset()
