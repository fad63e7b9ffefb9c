"""Decode conversations of a ChatGPT export: a tree of nodes becomes a main thread and branches.

Text, code, transcribed speech, canvases and attachments are decoded; of other content only the type
is stored. Hidden system messages are left out.
"""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE
from flightlog.sources.chat_exports.conversation import (
    AGENT,
    PERSON,
    TOOL,
    ChatMessage,
    Conversation,
    decode_lenient,
)
from flightlog.sources.foreign_json import LATEST_MS

SOURCE = "chatgpt"
_ROLES = {"user": PERSON, "assistant": AGENT, "tool": TOOL}
_CANVAS = "canmore."
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=LATEST_MS // 1000)]


class _Author(Struct):
    role: str = ""


class _Content(Struct):
    content_type: str = ""
    parts: list[Any] | None = None
    text: str | None = None
    result: str | None = None


class _Attachment(Struct):
    name: str | None = None
    id: str | None = None


class _Metadata(Struct):
    model_slug: str | None = None
    attachments: list[_Attachment] | None = None
    is_visually_hidden_from_conversation: bool | None = None


class _ChatGptMessage(Struct):
    author: _Author = msgspec.field(default_factory=_Author)
    create_time: _Seconds | None = None
    content: _Content | None = None
    metadata: _Metadata | None = None
    recipient: str | None = None
    status: str | None = None


class _Node(Struct):
    message: _ChatGptMessage | None = None
    parent: str | None = None
    children: list[str] = []


class _ChatGptConversation(Struct):
    title: str | None = None
    create_time: _Seconds | None = None
    update_time: _Seconds | None = None
    mapping: dict[str, _Node] = {}
    current_node: str | None = None
    conversation_id: str | None = None
    id: str | None = None


def decode_chat(data: bytes) -> Conversation:
    """Decode one element of `conversations.json`."""
    chat, left_out = decode_lenient(data, _ChatGptConversation, "mapping")
    threads = list(_iter_threads(chat))
    places = ((chat.mapping[node], subagent) for subagent, nodes in threads for node in nodes)
    decoded = (_decode_message(node, subagent) for node, subagent in places)
    messages = tuple(message for message in decoded if message is not None)
    chat_id = chat.conversation_id or chat.id or ""
    times = [message.at_ms for message in messages if message.at_ms is not None]
    return Conversation(
        chat_id
        if is_safe(chat_id)
        else f"chatgpt-{hashlib.blake2b(data, digest_size=8).hexdigest()}",
        SOURCE,
        chat.title or "",
        _seconds_to_ms(chat.create_time) or min(times, default=None),
        _seconds_to_ms(chat.update_time) or max(times, default=None),
        messages,
        branches=len(threads) - 1,
        is_deleted=not chat.mapping,
        left_out=left_out,
    )


def _iter_threads(chat: _ChatGptConversation) -> Iterator[tuple[str, list[str]]]:
    """Yield the current thread, then the other nodes, branch by branch, each node once."""
    nodes = chat.mapping
    current = chat.current_node if chat.current_node in nodes else next(reversed(nodes), None)
    main: list[str] = []
    seen: set[str] = set()
    while current in nodes and current not in seen:
        assert current is not None
        seen.add(current)
        main.append(current)
        current = nodes[current].parent
    yield "", main[::-1]
    count = 0
    for name in nodes:
        if name not in seen:
            count += 1
            yield f"branch-{count}", list(_iter_branch(nodes, name, seen))


def _iter_branch(nodes: dict[str, _Node], top: str, seen: set[str]) -> Iterator[str]:
    waiting = [top]
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            yield name
            waiting += reversed(nodes[name].children)


def _decode_message(node: _Node, subagent: str) -> ChatMessage | None:
    message = node.message
    if message is None or message.content is None:
        return None
    meta = message.metadata or _Metadata()
    role = _ROLES.get(message.author.role)
    if role is None or meta.is_visually_hidden_from_conversation:
        return None
    text, other = _content_text(message.content)
    files = tuple(file.name or file.id or "" for file in meta.attachments or ())
    canvas = _canvas_title(text) if (message.recipient or "").startswith(_CANVAS) else ""
    if not (text or other or files):
        return None
    at_ms = _seconds_to_ms(message.create_time)
    return ChatMessage(role, text, at_ms, subagent, meta.model_slug or "", files, canvas, other)


def _content_text(content: _Content) -> tuple[str, tuple[str, ...]]:
    """Return the text of a message's content, and the types of its other parts."""
    texts = [content.text, content.result]
    other = []
    for part in content.parts or ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(part, dict):
            other.append(str(part.get("content_type", "unknown")))
    return "\n".join(text for text in texts if text), tuple(other)


def _canvas_title(text: str) -> str:
    try:
        return str(msgspec.json.decode(text.encode(), type=dict[str, Any]).get("name") or "canvas")
    except UNREADABLE:
        return "canvas"


def _seconds_to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
