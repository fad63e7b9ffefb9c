"""Conversations of a ChatGPT export: a tree of nodes, told as a main thread and its branches.

Takes what it knows (texts, code, transcribed speech, canvases, attachments) and names what it does
not; hidden system messages are left out.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE
from flightlog.sources.chat_exports.conversation import AGENT, PERSON, TOOL, ChatMessage, Conversation

SOURCE = "chatgpt"
_ROLES = {"user": PERSON, "assistant": AGENT, "tool": TOOL}
_CANVAS = "canmore."


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
    create_time: float | None = None
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
    create_time: float | None = None
    update_time: float | None = None
    mapping: dict[str, _Node] = {}
    current_node: str | None = None
    conversation_id: str | None = None
    id: str | None = None


_DECODER = msgspec.json.Decoder(_ChatGptConversation)


def decode_chat(data: bytes) -> Conversation:
    """Decode one element of `conversations.json`."""
    told = _DECODER.decode(data)
    threads = list(_iter_threads(told))
    said = tuple(
        each for lane, nodes in threads for node in nodes if (each := _decode_message(told.mapping[node], lane))
    )
    name = told.conversation_id or told.id or ""
    times = [each.at_ms for each in said if each.at_ms is not None]
    return Conversation(
        name if is_safe(name) else _name_by_content(data),
        SOURCE,
        told.title or "",
        _seconds_to_ms(told.create_time) or min(times, default=None),
        _seconds_to_ms(told.update_time) or max(times, default=None),
        said,
        branches=len(threads) - 1,
        deleted=not told.mapping,
    )


def _name_by_content(data: bytes) -> str:
    """Name a conversation that has no usable id by what it says; the same in every process."""
    return f"chatgpt-{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def _iter_threads(told: _ChatGptConversation) -> Iterator[tuple[str, list[str]]]:
    """Yield the current thread, then the nodes beside it, branch by branch, each node once."""
    nodes = told.mapping
    current = told.current_node if told.current_node in nodes else next(reversed(nodes), None)
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


def _decode_message(node: _Node, lane: str) -> ChatMessage | None:
    message = node.message
    if message is None or message.content is None:
        return None
    meta = message.metadata or _Metadata()
    role = _ROLES.get(message.author.role)
    if role is None or meta.is_visually_hidden_from_conversation:
        return None
    text, other = _content_text(message.content)
    files = tuple(each.name or each.id or "" for each in meta.attachments or ())
    canvas = _canvas_title(text) if (message.recipient or "").startswith(_CANVAS) else ""
    if not (text or other or files):
        return None
    return ChatMessage(
        role, text, _seconds_to_ms(message.create_time), lane, meta.model_slug or "", files, canvas, other
    )


def _content_text(content: _Content) -> tuple[str, tuple[str, ...]]:
    """Return the words of some content, and the kinds of what is in it besides."""
    words = [text for text in (content.text, content.result) if text]
    other = []
    for part in content.parts or ():
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict):
            said = part.get("text")
            words += [said] if isinstance(said, str) else []
            if not isinstance(said, str):
                other.append(str(part.get("content_type", "unknown")))
    return "\n".join(word for word in words if word), tuple(other)


def _canvas_title(text: str) -> str:
    """Return the title of a document written beside the conversation."""
    try:
        return str(msgspec.json.decode(text.encode(), type=dict[str, Any]).get("name") or "canvas")
    except UNREADABLE:
        return "canvas"


def _seconds_to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
