"""Decode usage and content of the Gemini API.

    {"promptTokenCount": 1400, "cachedContentTokenCount": 400, "toolUsePromptTokenCount": 20,
     "candidatesTokenCount": 60, "thoughtsTokenCount": 30, "totalTokenCount": 1510}

Cached tokens are in `promptTokenCount`. The results of tools that the API runs itself, and thoughts,
which are billed as output, are counted beside the prompt and the candidates.

Qwen Code writes the same names for other APIs, whose output includes the thoughts: the total tells.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.model.entries import Block, Image, Text, Thinking, ToolResult, ToolUse, UnknownBlock
from flightlog.model.usage import Usage, split_prompt
from flightlog.sources.foreign_json import int_field, object_field, text_field

_COUNTS = tuple(
    "promptTokenCount candidatesTokenCount cachedContentTokenCount thoughtsTokenCount "
    "totalTokenCount toolUsePromptTokenCount".split()
)
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})$", re.MULTILINE)


def decode_usage(value: Any, names: tuple[str, ...] = _COUNTS) -> Usage:
    """Return the tokens of a decoded `usageMetadata`; a field of the wrong type counts zero.

    `names` are those that a client gives to the counts, in the order of the API's.
    """
    fields = value if isinstance(value, dict) else {}
    prompt, output, cached, thoughts, total, *tools = (int_field(fields, name) for name in names)
    prompt += sum(tools)
    includes_thoughts = total == prompt + output
    return split_prompt(prompt, output + (0 if includes_thoughts else thoughts), cache_read=cached)


class FunctionResult(NamedTuple):
    """What a tool returned, by the id of its call; `exit_code` is None unless the text has one."""

    call_id: str
    text: str
    is_error: bool = False
    exit_code: int | None = None


def decode_parts(content: Any) -> tuple[Block, ...]:
    """Return the blocks of a content: a text, a part or a list of both, without tool results."""
    return tuple(block for block in map(_decode_part, _iter_parts(content)) if block is not None)


def decode_results(content: Any) -> Iterator[FunctionResult]:
    """Yield the tool results among the parts of a content."""
    for part in _iter_parts(content):
        if isinstance(result := part.get("functionResponse"), dict):
            response = object_field(result, "response")
            error = text_field(response, "error")
            text = error or text_field(response, "output") or text_field(response, "result")
            code = _EXIT_CODE.search(text)
            exit_code = int(code[1]) if code else None
            yield FunctionResult(text_field(result, "id"), text, bool(error), exit_code)


def make_result(result: FunctionResult, status: str = "") -> ToolResult:
    """Return a tool result of a call that ended as "success", "error" or "cancelled".

    A command that failed is an error, even if the tool that ran it succeeded.
    """
    is_denied = status == "cancelled"
    return ToolResult(
        result.call_id,
        (Text(result.text),) if result.text else (),
        is_error=status == "error" or result.is_error or bool(result.exit_code),
        denial_reason=(result.text or status) if is_denied else "",
        detail=None if result.exit_code is None else {"exitCode": result.exit_code},
        permission_decision="deny" if is_denied else "",
    )


def decode_call(call: dict[str, Any]) -> ToolUse:
    """Return a tool call."""
    return ToolUse(text_field(call, "id"), text_field(call, "name"), object_field(call, "args"))


def _iter_parts(content: Any) -> Iterator[dict[str, Any]]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield {"text": part}
        elif isinstance(part, dict):
            yield part


def _decode_part(part: dict[str, Any]) -> Block | None:
    if "functionResponse" in part:
        return None
    if text := text_field(part, "text"):
        return Thinking(text) if part.get("thought") is True else Text(text)
    if call := object_field(part, "functionCall"):
        return decode_call(call)
    if data := object_field(part, "inlineData"):
        encoded = text_field(data, "data")
        return Image(text_field(data, "mimeType"), len(encoded) * 3 // 4, encoded)
    kind = next((name for name in part if name not in {"text", "thought", "thoughtSignature"}), "")
    return UnknownBlock(kind) if kind else None
