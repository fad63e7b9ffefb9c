"""Decode message content, and `user` records: prompts of every origin and tool results.

Most records of type `user` are not a person's prompt: tool results, command output, hook feedback,
task notifications and the client's own reminders have that type too.
"""

import base64
import binascii
import re
from typing import Any

from flightlog.model.entries import (
    Block,
    Event,
    Image,
    PromptKind,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownBlock,
    UserPrompt,
    text_of,
)
from flightlog.sources.foreign_json import object_field, text_field

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


def decode_blocks(content: Any) -> tuple[Block, ...]:
    """Return the blocks of message content, which is a string or a list."""
    if isinstance(content, str):
        return (Text(content),)
    return (
        tuple(_decode_block(part) for part in content if isinstance(part, dict))
        if isinstance(content, list)
        else ()
    )


def user_events(record: dict[str, Any]) -> list[Event]:
    """Return the events of a `user` record: its tool results, then a prompt if there is one."""
    content = object_field(record, "message").get("content")
    parts = content if isinstance(content, list) else []
    results = [part for part in parts if _is_result(part)]
    rest = [part for part in parts if not _is_result(part)] if results else content
    events: list[Event] = [
        _decode_tool_result(record, result, alone=len(results) == 1) for result in results
    ]
    return [*events, _decode_prompt(record, decode_blocks(rest))] if rest or not results else events


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _decode_prompt(record: dict[str, Any], content: tuple[Block, ...]) -> UserPrompt:
    kind = _prompt_kind(record, text_of(content))
    if kind is PromptKind.COMMAND:
        content = (Text(_command_text(text_of(content))),)
    elif kind is PromptKind.COMMAND_OUTPUT:
        content = (Text(_OUTPUT_TAG.sub("", text_of(content))),)
    return UserPrompt(kind, content, text_field(record, "interruptedMessageId"))


def _decode_tool_result(
    record: dict[str, Any], result: dict[str, Any], *, alone: bool
) -> ToolResult:
    content = decode_blocks(result.get("content"))
    spilled = _SPILLED.search(content[0].text) if content and isinstance(content[0], Text) else None
    # The structured result belongs to the record; with several results its owner is unknown.
    detail = record.get("toolUseResult") if alone else None
    fields = detail if isinstance(detail, dict) else {}
    return ToolResult(
        tool_call_id=text_field(result, "tool_use_id"),
        content=content,
        is_error=result.get("is_error") is True,
        denial_reason=_denial_reason(record),
        subagent=text_field(fields, "agentId") or text_field(fields, "agent_id"),
        result_file=spilled.group(1) if spilled else "",
        detail=detail,
        run=text_field(fields, "runId"),
    )


def _decode_block(part: dict[str, Any]) -> Block:
    match text_field(part, "type"):
        case "text":
            return Text(text_field(part, "text"))
        case "thinking":
            return Thinking(text_field(part, "thinking"))
        case "redacted_thinking":
            return Thinking("", is_withheld=True)
        case "tool_use":
            return ToolUse(
                text_field(part, "id"), text_field(part, "name"), object_field(part, "input")
            )
        case "image":
            return _decode_image(object_field(part, "source"))
        case kind:
            return UnknownBlock(kind or "?", text_field(part, "text"))


def _decode_image(source: dict[str, Any]) -> Image:
    data = text_field(source, "data")
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    return Image(text_field(source, "media_type"), size, data)


def _prompt_kind(record: dict[str, Any], text: str) -> PromptKind:
    start = text.lstrip()
    if record.get("isCompactSummary") is True:
        return PromptKind.SUMMARY
    if text_field(record, "interruptedMessageId") or _INTERRUPTED.fullmatch(start.rstrip()):
        return PromptKind.INTERRUPTION
    if text_field(record, "turnOrigin") == "task_notification":
        return PromptKind.TASK
    default = PromptKind.CLIENT if record.get("isMeta") is True else PromptKind.HUMAN
    return next((kind for mark, kind in _MARKS if start.startswith(mark)), default)


def _command_text(text: str) -> str:
    """Return a slash command as the person typed it."""
    typed = f"{_text_in_tag(text, 'command-name')} {_text_in_tag(text, 'command-args')}".strip()
    return typed or f"! {_text_in_tag(text, 'bash-input') or text.strip()}"


def _text_in_tag(text: str, tag: str) -> str:
    # No regular expression: crafted text can make one backtrack without end.
    inside, closed, _ = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return inside.strip() if closed else ""


def _denial_reason(record: dict[str, Any]) -> str:
    decision = object_field(record, "permissionDecision")
    if text_field(decision, "decision") == "reject":
        return text_field(record, "toolDenialKind") or text_field(decision, "source") or "rejected"
    return text_field(record, "toolDenialKind")
