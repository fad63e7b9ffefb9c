"""Conversation: one conversation of an export, the same for every vendor.

The thread that was current when the export was made is the main one; every message outside it
carries the name of its branch as its subagent.
"""

from collections.abc import Iterator
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from flightlog.model.addresses import Address
from flightlog.model.errors import UNREADABLE
from flightlog.sources.foreign_json import parse_object

PERSON, AGENT, TOOL = "user", "assistant", "tool"
T = TypeVar("T", bound=Struct)


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
    left_out: tuple[str, ...] = ()
    """Paths of the fields that were left out because they have another type than expected."""


def decode_lenient(data: bytes, kind: type[T], needed: str) -> tuple[T, tuple[str, ...]]:
    """Decode `data`, without the fields that do not fit; return their paths, too.

    Half an emoji and invalid UTF-8 are replaced. Raise one of `UNREADABLE` if `data` is no such
    object, or the field `needed` does not fit.
    """
    left_out: list[str] = []
    try:
        return msgspec.json.decode(data, type=kind), ()
    except UNREADABLE:
        if (fields := parse_object(data)) is None:
            raise
        chat = _fit(fields, kind, "", left_out)
        if needed in left_out:
            raise
        return chat, tuple(left_out)


def _fit(value: Any, kind: Any, path: str, left_out: list[str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
        arguments = get_args(kind)
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct):
            types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            known = {name: value[name] for name in types if name in value}
            return kind(**_fit_items(known, types, path, left_out))
        if isinstance(value, dict) and get_origin(kind) is dict:
            return _fit_items(value, dict.fromkeys(value, arguments[1]), path, left_out)
        if isinstance(value, list) and get_origin(kind) is list:
            items = dict(enumerate(value))
            fitted = _fit_items(items, dict.fromkeys(items, arguments[0]), path, left_out)
            return list(fitted.values())
        raise


def _fit_items(
    items: dict[Any, Any], types: dict[Any, Any], path: str, left_out: list[str]
) -> dict[Any, Any]:
    fitted = {}
    for name, item in items.items():
        at = f"{path}.{name}" if path else str(name)
        try:
            fitted[name] = _fit(item, types[name], at, left_out)
        except msgspec.ValidationError:
            left_out.append(at)
    return fitted


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
