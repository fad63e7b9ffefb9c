"""Decode conversations of a Claude.ai export: a list of messages, some exports with parents.

A deleted conversation remains in the export as an empty one with its id.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.addresses import is_safe
from flightlog.sources.chat_exports.conversation import (
    AGENT,
    PERSON,
    ChatMessage,
    Conversation,
    decode_lenient,
)
from flightlog.sources.foreign_json import parse_timestamp_ms

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


def decode_chat(data: bytes) -> Conversation:
    """Decode one element of `conversations.json`."""
    chat, left_out = decode_lenient(data, _ClaudeAiConversation, "chat_messages")
    subagents = _branch_names(chat.chat_messages)
    ordered = sorted(zip(chat.chat_messages, subagents, strict=True), key=lambda pair: pair[1])
    return Conversation(
        chat.uuid
        if is_safe(chat.uuid)
        else f"claude-{hashlib.blake2b(data, digest_size=8).hexdigest()}",
        SOURCE,
        chat.name or "",
        parse_timestamp_ms(chat.created_at or ""),
        parse_timestamp_ms(chat.updated_at or ""),
        tuple(_decode_message(message, subagent) for message, subagent in ordered),
        branches=len(set(subagents) - {""}),
        is_deleted=not chat.chat_messages,
        left_out=left_out,
    )


def _branch_names(messages: Sequence[_ClaudeAiMessage]) -> list[str]:
    """Return each message's branch; the thread of the last message is the main one, ""."""
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
        branch = names.get(parents[message.uuid], "")
        if not branch:
            count += 1
        names[message.uuid] = branch or f"branch-{count}"
    return [names[message.uuid] for message in messages]


def _iter_ancestors(name: str, parents: dict[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    while name in parents and name not in seen:
        seen.add(name)
        yield name
        name = parents[name]


def _decode_message(message: _ClaudeAiMessage, subagent: str) -> ChatMessage:
    texts, other, canvas = [], [], ""
    for block in message.content or ():
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            other.append(str(kind))
            arguments = block.get("input")
            if isinstance(arguments, dict) and block.get("name") == "artifacts":
                canvas = str(arguments.get("title") or arguments.get("id") or "artifact")
    text = "\n".join(texts) or message.text or ""
    attached = (*(message.attachments or ()), *(message.files or ()))
    files = tuple(file.file_name or "unnamed" for file in attached)
    role = PERSON if message.sender == "human" else AGENT
    at_ms = parse_timestamp_ms(message.created_at or "")
    is_empty = not (text or other or files)
    return ChatMessage(role, text, at_ms, subagent, "", files, canvas, tuple(other), is_empty)
