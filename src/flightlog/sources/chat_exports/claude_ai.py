"""Conversations of a Claude.ai export: a list of messages, with parents where the export tells them.

A conversation that was deleted stays as an empty one with its id; it is told as deleted.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.addresses import is_safe
from flightlog.sources.chat_exports.conversation import AGENT, PERSON, ChatMessage, Conversation

SOURCE = "claude"
_ROOT = "00000000-0000-4000-8000-000000000000"


class _File(Struct):
    file_name: str | None = None


class _ClaudeAiMessage(Struct):
    uuid: str = ""
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    sender: str = ""
    created_at: str | None = None
    attachments: list[_File] | None = None
    files: list[_File] | None = None
    parent_message_uuid: str | None = None


class _ClaudeAiConversation(Struct):
    uuid: str = ""
    name: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    chat_messages: list[_ClaudeAiMessage] = []


_DECODER = msgspec.json.Decoder(_ClaudeAiConversation)


def decode_chat(data: bytes) -> Conversation:
    """Decode one element of `conversations.json`."""
    told = _DECODER.decode(data)
    lanes = _branch_names(told.chat_messages)
    ordered = sorted(zip(told.chat_messages, lanes, strict=True), key=lambda pair: pair[1])
    said = tuple(each for message, lane in ordered if (each := _decode_message(message, lane)))
    return Conversation(
        told.uuid if is_safe(told.uuid) else f"claude-{hashlib.blake2b(data, digest_size=8).hexdigest()}",
        SOURCE,
        told.name or "",
        _timestamp_to_ms(told.created_at),
        _timestamp_to_ms(told.updated_at),
        said,
        branches=len(set(lanes) - {""}),
        deleted=not told.chat_messages,
    )


def _branch_names(messages: Sequence[_ClaudeAiMessage]) -> list[str]:
    """Name each message's branch: the thread of the last message is the main one."""
    if not any(message.parent_message_uuid for message in messages):
        return [""] * len(messages)
    parents = {message.uuid: message.parent_message_uuid or _ROOT for message in messages}
    main = set(_iter_ancestors(messages[-1].uuid, parents)) if messages else set()
    names: dict[str, str] = {}
    count = 0
    for message in messages:
        if message.uuid in main:
            names[message.uuid] = ""
            continue
        above = names.get(parents[message.uuid], "")
        if not above:
            count += 1
        names[message.uuid] = above or f"branch-{count}"
    return [names[message.uuid] for message in messages]


def _iter_ancestors(name: str, parents: dict[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    while name in parents and name not in seen:
        seen.add(name)
        yield name
        name = parents[name]


def _decode_message(message: _ClaudeAiMessage, lane: str) -> ChatMessage | None:
    text, other, canvas = _message_text(message)
    files = tuple(each.file_name or "unnamed" for each in [*(message.attachments or ()), *(message.files or ())])
    role = PERSON if message.sender == "human" else AGENT
    deleted = not (text or other or files)
    return ChatMessage(role, text, _timestamp_to_ms(message.created_at), lane, "", files, canvas, other, deleted)


def _message_text(message: _ClaudeAiMessage) -> tuple[str, tuple[str, ...], str]:
    words, other, canvas = [], [], ""
    for block in message.content or ():
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            words.append(block["text"])
        else:
            other.append(str(kind))
            given = block.get("input")
            if isinstance(given, dict) and block.get("name") == "artifacts":
                canvas = str(given.get("title") or given.get("id") or "artifact")
    text = "\n".join(words) or message.text or ""
    return text, tuple(other), canvas


def _timestamp_to_ms(written: str | None) -> int | None:
    if not written:
        return None
    try:
        return int(datetime.fromisoformat(written).timestamp() * 1000)
    except ValueError:
        return None
