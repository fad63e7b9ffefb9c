"""Reminders of the client, as long as a branch goes the way the recording went.

A client says things of its own in between (how long it has been silent, say), from counters that
begin anew when it resumes. While the model says what it said then (tools may answer otherwise), what
the client said is taken from the recording too; from the first other word on it is the client's own. Pure.
"""

from collections.abc import Sequence
from typing import Any

from flightlog.lab.replaying.differences import canonical_value

_IDS = frozenset({"id", "tool_use_id", "signature"})
_MARK = {"cache_control": {"type": "ephemeral"}}


def insert_reminders(suffix: Sequence[Any], recorded: Sequence[Any]) -> list[Any]:
    """Put the recorded reminders into what a client sends after the branch point; `recorded` is what came then."""
    told: list[Any] = []
    place = 0
    left = list(suffix)
    while left:
        while place < len(recorded) and _is_reminder(recorded[place]):
            told.append(recorded[place])
            place += 1
        while left and _is_reminder(left[0]):
            left.pop(0)
        if not left:
            break
        if place >= len(recorded) or _comparable_message(recorded[place]) != _comparable_message(left[0]):
            return list(suffix)
        told.append(left.pop(0))
        place += 1
    while told and place < len(recorded) and _is_reminder(recorded[place]):
        told.append(recorded[place])
        place += 1
    return _mark_last_block(told)


def _mark_last_block(messages: list[Any]) -> list[Any]:
    """The cache mark on the last block of all, as the client puts it."""
    if not messages or not _is_reminder(messages[-1]):
        return messages
    *before, last = messages
    plain = [_strip_cache_marks(each) for each in before]
    content = last["content"]
    blocks: list[dict[str, Any]]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(each) for each in content]
    if blocks:
        blocks[-1] |= _MARK
    return [*plain, {**last, "content": blocks}]


def _strip_cache_marks(message: Any) -> Any:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [{key: each[key] for key in each if key != "cache_control"} for each in content]}


def _is_reminder(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _comparable_message(message: Any) -> Any:
    """What the model said, whatever ids it got this time; of an answer to it only that it is one."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message.get("role") if isinstance(message, dict) else message
    return _without_ids(canonical_value(message))


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_ids(each) for key, each in value.items() if key not in _IDS}
    return value
