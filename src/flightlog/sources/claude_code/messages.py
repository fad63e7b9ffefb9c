"""The user side of a transcript: prompts of every origin, and what tools returned.

A record of type `user` is seldom a person: tool results, command output, hook feedback,
task notifications and the client's own reminders all arrive that way, and peers that count
them as human turns get the story wrong.
"""

import base64
import binascii
import re
from typing import Any

from flightlog.model.events import (
    Block,
    Event,
    Image,
    Other,
    Prompted,
    PromptKind,
    Text,
    Thinking,
    ToolReturned,
    ToolUse,
    words,
)
from flightlog.sources.claude_code.values import mapping, text

_SPILLED = re.compile(r"Full output saved to: (\S.*)")
_MARKS = (
    ("<task-notification>", PromptKind.TASK),
    ("<local-command-stdout>", PromptKind.COMMAND_OUTPUT),
    ("<local-command-stderr>", PromptKind.COMMAND_OUTPUT),
    ("<bash-stdout>", PromptKind.COMMAND_OUTPUT),
    ("<bash-stderr>", PromptKind.COMMAND_OUTPUT),
    ("<command-name>", PromptKind.COMMAND),
    ("<command-message>", PromptKind.COMMAND),
    ("<bash-input>", PromptKind.COMMAND),
    ("<local-command-caveat>", PromptKind.CLIENT),
    ("Stop hook feedback:", PromptKind.HOOK),
)
_OUTPUT_TAG = re.compile(r"</?(?:local-command|bash)-(?:stdout|stderr)>")
_INTERRUPTED = re.compile(r"\[Request interrupted by user[^\]]*\]")


def blocks(content: Any) -> tuple[Block, ...]:
    """Read message content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_block(part) for part in content if isinstance(part, dict)) if isinstance(content, list) else ()


def user_events(record: dict[str, Any]) -> list[Event]:
    """Read a `user` record: the results of tools, and words if there are any beside them."""
    content = mapping(record, "message").get("content")
    parts = content if isinstance(content, list) else []
    results = [part for part in parts if _is_result(part)]
    rest = [part for part in parts if not _is_result(part)] if results else content
    events: list[Event] = [_tool_returned(record, result, alone=len(results) == 1) for result in results]
    return [*events, _prompted(record, blocks(rest))] if rest or not results else events


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _prompted(record: dict[str, Any], content: tuple[Block, ...]) -> Prompted:
    kind = _kind(record, words(content))
    if kind is PromptKind.COMMAND:
        content = (Text(_command(words(content))),)
    elif kind is PromptKind.COMMAND_OUTPUT:
        content = (Text(_OUTPUT_TAG.sub("", words(content))),)
    return Prompted(kind, content, text(record, "interruptedMessageId"))


def _tool_returned(record: dict[str, Any], result: dict[str, Any], *, alone: bool) -> ToolReturned:
    content = blocks(result.get("content"))
    spilled = _SPILLED.search(content[0].text) if content and isinstance(content[0], Text) else None
    # The structured result belongs to the record; beside several results it is anybody's guess whose.
    detail = record.get("toolUseResult") if alone else None
    return ToolReturned(
        call_id=text(result, "tool_use_id"),
        content=content,
        is_error=result.get("is_error") is True,
        denied=_denied(record),
        agent_id=text(detail, "agentId") if isinstance(detail, dict) else "",
        spilled=spilled.group(1) if spilled else "",
        detail=detail,
    )


def _block(part: dict[str, Any]) -> Block:
    match text(part, "type"):
        case "text":
            return Text(text(part, "text"))
        case "thinking":
            return Thinking(text(part, "thinking"))
        case "redacted_thinking":
            return Thinking("", withheld=True)
        case "tool_use":
            return ToolUse(text(part, "id"), text(part, "name"), mapping(part, "input"))
        case "image":
            return _image(mapping(part, "source"))
        case kind:
            return Other(kind or "?", text(part, "text"))


def _image(source: dict[str, Any]) -> Image:
    data = text(source, "data")
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    return Image(text(source, "media_type"), size, data)


def _kind(record: dict[str, Any], said: str) -> PromptKind:
    start = said.lstrip()
    if record.get("isCompactSummary") is True:
        return PromptKind.SUMMARY
    if text(record, "interruptedMessageId") or _INTERRUPTED.fullmatch(start.rstrip()):
        return PromptKind.INTERRUPTION
    if text(record, "turnOrigin") == "task_notification":
        return PromptKind.TASK
    marked = next((kind for mark, kind in _MARKS if start.startswith(mark)), None)
    if marked is not None:
        return marked
    return PromptKind.CLIENT if record.get("isMeta") is True else PromptKind.HUMAN


def _command(said: str) -> str:
    """Write a slash command as it was typed."""
    typed = f"{_tagged(said, 'command-name')} {_tagged(said, 'command-args')}".strip()
    return typed or f"! {_tagged(said, 'bash-input') or said.strip()}"


def _tagged(said: str, tag: str) -> str:
    """The words between a tag and its end; by search, as a pattern can be made to take for ever."""
    inside, closed, _ = said.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return inside.strip() if closed else ""


def _denied(record: dict[str, Any]) -> str:
    decision = mapping(record, "permissionDecision")
    if text(decision, "decision") == "reject":
        return text(record, "toolDenialKind") or text(decision, "source") or "rejected"
    return text(record, "toolDenialKind")
