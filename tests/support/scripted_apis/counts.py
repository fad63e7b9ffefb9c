"""Token counts of the scripted model: by the cache of a conversation, and block by block."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.agents.scripted import messages_api, wire
from flightlog.agents.scripted.scenario import Reply
from flightlog.model.entries import IMAGE_CHARS


class ScriptedUsage(Struct, frozen=True):
    """Token counts in our own terms, which each dialect writes in its own.

    `input` is what was neither read from nor written to the cache. `reasoning` is a part of `output`.
    """

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All tokens that the model read."""
        return self.input + self.cache_read + self.cache_write


def count_usage(
    reply: Reply, fixed: object, turns: Sequence[object], last_reply: int, content: object
) -> ScriptedUsage:
    """Return the counts of the script, and estimates for those it does not give.

    All up to the message at `last_reply` (-1: there is none) and `fixed`, which comes before all
    messages, is read from the cache.
    """
    cached = wire.estimate_tokens([fixed, turns[: last_reply + 1]])
    thinking = [block.thinking for block in reply.content if block.thinking is not None]
    reasoning = reply.usage.get("reasoning", wire.estimate_tokens(thinking) if thinking else 0)
    fresh = wire.estimate_tokens(turns[last_reply + 1 :]) + (cached if last_reply < 0 else 0)
    return ScriptedUsage(
        input=reply.usage.get("input", fresh),
        output=max(reply.usage.get("output", wire.estimate_tokens(content)), reasoning),
        cache_read=reply.usage.get("cache_read", cached if last_reply >= 0 else 0),
        cache_write=reply.usage.get("cache_write", 0),
        reasoning=reasoning,
    )


def last_reply_index(roles: Sequence[object], replying: str) -> int:
    """Return the index of the model's last message, or -1."""
    return len(roles) - 1 - list(reversed(roles)).index(replying) if replying in roles else -1


def count_text(text: str) -> int:
    """Return the tokens of a text by the fixed rule of a model that counts blocks."""
    return math.ceil(len(text) / wire.CHARS_PER_TOKEN)


def count_words(text: str) -> int:
    """Return the words of a text: another rule, which no reader may take for characters."""
    return len(text.split())


TextCounter = Callable[[str], int]


class BlockCount(NamedTuple):
    """The tokens of one block of a request; `name` is a tool's name or the id of a tool call.

    `message` is the index of its message, -1 before all messages.
    """

    message: int
    role: str
    kind: str
    name: str
    tokens: int


def count_blocks(
    body: Mapping[str, Any], count: TextCounter = count_text
) -> tuple[BlockCount, ...]:
    """Count every block of a request by its own text alone; a deferred tool is no part of it."""
    shared = _list_blocks(body.get("system"))
    system = [_count_block(-1, "system", block, count) for block in shared]
    tools = [
        BlockCount(-1, "tools", "tool", str(tool.get("name")), count(_dump(tool)))
        for tool in wire.list_objects(body.get("tools"))
        if not tool.get("defer_loading")
    ]
    messages = enumerate(wire.list_objects(body.get("messages")))
    blocks = [
        _count_block(at, str(message.get("role")), block, count)
        for at, message in messages
        for block in _list_blocks(message.get("content"))
    ]
    return (*tools, *system, *blocks)


def count_reply(
    reply: Reply, blocks: Sequence[BlockCount], count: TextCounter = count_text
) -> Reply:
    """Return the reply with counts by block; all up to the last reply is read from the cache."""
    last = max((block.message for block in blocks if block.role == "assistant"), default=-2)
    before = sum(block.tokens for block in blocks if block.message <= last)
    rest = sum(block.tokens for block in blocks if block.message > last)
    content = [messages_api.build_block(block, "") for block in reply.content]
    output = sum(_count_block(0, "assistant", block, count).tokens for block in content)
    usage = {"input": 0, "cache_read": before, "cache_write": rest, "output": output}
    return msgspec.structs.replace(reply, usage=usage | reply.usage)


def _list_blocks(content: object) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": content}] if isinstance(content, str) else []
    return text or wire.list_objects(content)


def _count_block(
    message: int, role: str, block: Mapping[str, Any], count: TextCounter
) -> BlockCount:
    kind, name = str(block.get("type")), str(block.get("tool_use_id") or block.get("id") or "")
    match kind:
        case "tool_use":
            text = f"{block.get('name')}{_dump(block.get('input'))}"
        case "tool_result":
            inner = _list_blocks(block.get("content"))
            parts = [_count_block(0, "", part, count) for part in inner]
            return BlockCount(message, role, kind, name, sum(part.tokens for part in parts))
        case "image":
            text = " " * IMAGE_CHARS
        case _:
            text = str(block.get(kind) or block.get("data") or "")
    return BlockCount(message, role, kind, name, count(text))


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
