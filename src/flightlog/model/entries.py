"""The records of a transcript as events, the same for every agent.

Decoders in `agents` make these; `views.session` folds them. An event is never changed: a result
that arrives later is a second event, joined in the fold. A record of an unknown type becomes
`UnknownRecord` and is shown, not dropped.
"""

import base64
import binascii
import enum
import json
import re
from typing import Any

from msgspec import Raw, Struct

from flightlog.model.usage import ClientTotals, TokenCounts, UsageQuality

IMAGE_CHARS = 6_000  # about 1,500 tokens, as the largest image costs that is not scaled down
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,9})\b")


class Text(Struct, frozen=True, tag="text"):
    """Text of the model."""

    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """The model's reasoning; empty if it was withheld."""

    text: str
    is_withheld: bool = False


class ToolUse(Struct, frozen=True, tag="tool_use"):
    """A tool call of the model."""

    id: str
    name: str
    input: dict[str, Any]


class Image(Struct, frozen=True, tag="image"):
    """An image, by type and size; the bytes stay in the recording."""

    media_type: str
    size_bytes: int
    data: str = ""


class UnknownBlock(Struct, frozen=True, tag="other"):
    """Content of a kind that this version does not know."""

    kind: str
    text: str = ""


def image_from_base64(media_type: str, data: str) -> Image:
    """Return an image with its size; the size of damaged data is 0."""
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    return Image(media_type, size, data)


Block = Text | Thinking | ToolUse | Image | UnknownBlock


def text_of(content: tuple[Block, ...]) -> str:
    """Return the text blocks of `content`, joined by newlines."""
    return "\n".join(block.text for block in content if isinstance(block, Text))


def count_chars(block: Block) -> int:
    """Return the length of a block's text; an image has that of the text it costs as much as."""
    match block:
        case Image():
            return IMAGE_CHARS
        case ToolUse():
            return len(block.name) + len(json.dumps(block.input))
        case _:
            return len(block.text)


class PromptKind(enum.Enum):
    """Where a prompt came from."""

    HUMAN = "human"
    TASK = "background task"
    COMMAND = "slash command"
    COMMAND_OUTPUT = "command output"
    CLIENT = "client"
    HOOK = "hook"
    SUMMARY = "compaction summary"
    INTERRUPTION = "interruption"


class UserPrompt(Struct, frozen=True):
    """A prompt to the model, by a person or by the client.

    `context` is what the client added to a person's prompt: the open file, reminders, hook output.
    """

    kind: PromptKind
    content: tuple[Block, ...]
    interrupted_message_id: str = ""
    context: tuple[Block, ...] = ()


class PromptQueued(Struct, frozen=True):
    """A prompt that arrived while the agent worked.

    Some versions write it again when it is sent, as a prompt of its own; others do not.
    """

    kind: PromptKind
    content: tuple[Block, ...]


class QueueTakenBack(Struct, frozen=True):
    """The person took all waiting prompts back into the input field."""


class AssistantReply(TokenCounts, frozen=True):
    """A line of a model response; several lines share one `message_id`."""

    message_id: str
    model: str
    content: tuple[Block, ...]
    stop_reason: str = ""
    request_id: str = ""
    request_ref: str = ""
    block_index: int = 0
    is_aborted: bool = False
    is_synthetic: bool = False
    error: str = ""
    effort: str = ""
    quality: UsageQuality = UsageQuality.EXACT


class ToolResult(Struct, frozen=True):
    """The result of a tool call."""

    tool_call_id: str
    content: tuple[Block, ...]
    is_error: bool = False
    denial_reason: str = ""
    subagent: str = ""
    result_file: str = ""
    detail: Any = None
    run: str = ""
    permission_decision: str = ""


def exit_code_of(detail: Any) -> int | None:
    """Return the exit code of a command in the details of its result; None if it is not recorded."""
    if isinstance(detail, str):  # Claude Code writes only that of a command that failed
        failed = _EXIT_CODE.match(detail)
        return int(failed[1]) if failed else None
    code = detail.get("exitCode") if isinstance(detail, dict) else None
    return code if isinstance(code, int) else None


class ToolInputRewritten(Struct, frozen=True):
    """A hook changed a tool's input before it ran."""

    tool_call_id: str
    input: dict[str, Any]


class ContextCompacted(Struct, frozen=True):
    """The client replaced the context by a summary, followed by the last records before it.

    `summary_uuid` names the summary and `last_kept_uuid` the last record that stays in the context;
    both are empty if none does.
    """

    trigger: str
    tokens_before: int
    tokens_after: int
    summary_uuid: str = ""
    last_kept_uuid: str = ""


class ApiError(Struct, frozen=True):
    """A request failed; the client retried it or gave up."""

    message: str
    status: int = 0
    attempt: int = 0
    is_truncated: bool = False


class RequestLogged(Struct, frozen=True):
    """The client logged a request that it sent."""

    request_ref: str


class ContextInjected(Struct, frozen=True, omit_defaults=True):
    """The client added something to the model's context; `memory` are files and their lengths."""

    kind: str
    text: str
    memory: dict[str, int] = {}


class ClientTotalReported(Struct, frozen=True):
    """The client reported its own running total."""

    client_totals: ClientTotals


class SessionTitled(Struct, frozen=True):
    """The session got a name."""

    text: str
    is_user_title: bool = False


class SessionSummarized(Struct, frozen=True):
    """A title for the session that holds the record `leaf`, which may be in another file."""

    leaf_uuid: str
    text: str


class ClientNote(Struct, frozen=True):
    """A remark of the client that the transcript view shows."""

    kind: str
    text: str = ""


class Ignored(Struct, frozen=True):
    """A known record that the transcript view does not show.

    `is_activity`: something happened in the session; opening one writes other records, too.
    """

    kind: str
    is_activity: bool = False


class UnknownRecord(Struct, frozen=True):
    """A record of a type that this version does not know."""

    kind: str
    fields: tuple[str, ...] = ()


Event = (
    UserPrompt
    | PromptQueued
    | QueueTakenBack
    | AssistantReply
    | ToolResult
    | ToolInputRewritten
    | ContextCompacted
    | ApiError
    | RequestLogged
    | ContextInjected
    | ClientTotalReported
    | SessionTitled
    | SessionSummarized
    | ClientNote
    | Ignored
    | UnknownRecord
)


class RecordContext(Struct, frozen=True):
    """The directory, git branch and client version that wrote a record."""

    cwd: str = ""
    branch: str = ""
    version: str = ""
    entrypoint: str = ""


class Entry(Struct, frozen=True):
    """One event with its position in time, in the thread of replies and in a file.

    `subagent` is empty on the main thread and names the subagent elsewhere. `order_ms` is the
    record's own time, or for a record without one the time of the record before it. `key` is the
    `uuid` and which of its record's events it is (`UUID:0`); copies of a record in several files
    have the same.
    """

    event: Event
    session: str
    uuid: str = ""
    parent_uuid: str = ""
    at_ms: int | None = None
    order_ms: int = 0
    subagent: str = ""
    context: RecordContext = RecordContext()
    key: str = ""
    path: str = ""
    offset: int = 0
    length: int = 0
    extra_fields: tuple[str, ...] = ()


class SubagentInfo(Struct, frozen=True):
    """The type and task of a subagent, and the tool call or workflow run that started it."""

    subagent: str
    agent_type: str = ""
    description: str = ""
    tool_call_id: str = ""
    run: str = ""
    is_side_call: bool = False


class HookRecord(Struct, frozen=True):
    """One event that the agent's hook recorded; `payload` is the agent's own JSON, not decoded."""

    at_ms: int = 0
    event: str = ""
    agent: str = ""
    id: str = ""
    payload: Raw = Raw(b"{}")


class ToolHook(Struct, frozen=True):
    """What hooks reported of a tool call; `executed_input` is set if it differs from the call's."""

    tool_call_id: str
    permission_decision: str = ""
    executed_input: dict[str, Any] | None = None
    duration_ms: int | None = None


class PromptSubmitted(Struct, frozen=True):
    """The prompt that an agent works on since `at_ms`; without text, its work ended."""

    at_ms: int
    text: str = ""
