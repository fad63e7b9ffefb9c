"""Decode Pi's sessions; exports SOURCE.

The first line is a header. Each other line is an entry of a tree (`id`, `parentId`): a branch
that the person left stays in the file, and its turns are those that do not lead to the last entry.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.pi.usage import (
    CONTEXT_NEEDLES,
    USAGE_NEEDLES,
    PiCounter,
    decode_usage,
    entry_name,
    find_counts,
    model_of,
    response_name,
    usage_quality,
)
from flightlog.agents.session_files import describe_current
from flightlog.model.entries import (
    ApiError,
    AssistantReply,
    Block,
    ClientNote,
    ContextCompacted,
    Entry,
    Event,
    Ignored,
    PromptKind,
    RecordContext,
    SessionTitled,
    SubagentInfo,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownBlock,
    UnknownRecord,
    UserPrompt,
    image_from_base64,
    text_of,
)
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.sources.foreign_json import (
    int_field,
    list_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.sources.protocol import Fidelity
from flightlog.store.recordings.reader import raw_lines

_EXIT_CODE = re.compile(r"Command exited with code (\d{1,9})\s*\Z")
_SYSTEM = b'"role":"system"'
# Entries up to version 0.87.1 that the transcript view does not show.
_IGNORED = frozenset(
    {"session", "model_change", "thinking_level_change", "label", "custom", "context_edit"}
)
_PROMPTS = {
    "user": PromptKind.HUMAN,
    "custom": PromptKind.CLIENT,
    "hookMessage": PromptKind.CLIENT,  # the name of `custom` in files of version 2
    "branchSummary": PromptKind.SUMMARY,
    "compactionSummary": PromptKind.SUMMARY,
}


class PiDecoder:
    """Decodes one session's file in order, see `agents.line_source.LineDecoder`."""

    def __init__(self, file: SessionFile) -> None:
        """Start before the first line of `file`."""
        del file
        self._context = RecordContext()
        self._model, self._effort = "", ""
        self._hidden: dict[str, str] = {}  # the parent of each entry that makes no row

    def decode(self, line: bytes) -> list[Entry] | None:
        """Return the entries of a line."""
        record = parse_object(line)
        if record is None or not text_field(record, "type"):
            return None
        self._remember(record)
        events = list(self._decode_events(record, line))
        uuid = text_field(record, "id") if text_field(record, "type") != "session" else ""
        parent = text_field(record, "parentId")
        parent = self._hidden.get(parent, parent)
        if all(isinstance(event, Ignored) for event in events):
            # A branch may begin with such an entry; its first prompt then follows the fork itself.
            self._hidden[uuid] = parent
        return [
            Entry(
                event=event,
                session="",
                uuid=uuid,
                parent_uuid=parent,
                at_ms=parse_timestamp_ms(text_field(record, "timestamp")),
                context=self._context,
                key=f"{entry_name(record, line)}:{index}",
            )
            for index, event in enumerate(events)
        ]

    def subagents(self) -> Iterable[SubagentInfo]:
        """Return nothing: Pi has no subagents of its own."""
        return ()

    def _remember(self, record: dict[str, Any]) -> None:
        match text_field(record, "type"):
            case "session":
                self._context = RecordContext(text_field(record, "cwd"))
            case "model_change":
                self._model = text_field(record, "modelId")
            case "thinking_level_change":
                self._effort = text_field(record, "thinkingLevel")

    def _decode_events(self, record: dict[str, Any], line: bytes) -> Iterator[Event]:
        kind = text_field(record, "type")
        match kind:
            case "message":
                yield from _decode_message(object_field(record, "message"))
            case "compaction":
                yield ContextCompacted("", int_field(record, "tokensBefore"), 0)
                yield UserPrompt(PromptKind.SUMMARY, (Text(text_field(record, "summary")),))
            case "branch_summary":
                yield UserPrompt(PromptKind.SUMMARY, (Text(text_field(record, "summary")),))
            case "usage":
                yield ClientNote(kind, f"side call: {text_field(record, 'kind')}")
            case "session_info":
                yield SessionTitled(text_field(record, "name"), is_user_title=True)
            case "custom_message":
                yield UserPrompt(PromptKind.CLIENT, _decode_blocks(record.get("content")))
            case _ if kind in _IGNORED:
                yield Ignored(kind)
            case _:
                yield UnknownRecord(kind, tuple(sorted(record)))
        if (counts := find_counts(record)) is not None:
            yield self._make_reply(record, counts, response_name(record, line))

    def _make_reply(
        self, record: dict[str, Any], counts: dict[str, Any], message_id: str
    ) -> AssistantReply:
        message = object_field(record, "message")
        is_reply = text_field(message, "role") == "assistant"
        return AssistantReply(
            message_id=message_id,
            model=model_of(record, self._model),
            content=_decode_blocks(message.get("content")) if is_reply else (),
            **asdict(decode_usage(counts)),
            stop_reason=text_field(message, "stopReason"),
            is_aborted=text_field(message, "stopReason") == "aborted",
            effort=text_field(message, "providerThinkingLevel") or self._effort,
            quality=usage_quality(record, counts),
        )


class PiSource(LineSource):
    """Reads sessions of Pi up to 0.87.1, formats 1 to 3."""

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Return the system prompt and the tools after all changes that a session made to them."""
        sections: dict[str, str] = {}
        tools: dict[str, dict[str, Any]] = {}
        for line in (line for file in files for line in raw_lines(file.path, 0) if _SYSTEM in line):
            message = object_field(parse_object(line) or {}, "message")
            if text_field(message, "role") == "system":
                _apply_system(message, sections, tools)
        system = "\n\n".join(filter(None, sections.values()))
        return {"": ThreadContext(tuple(tools.values()), system)} if system or tools else {}


SOURCE = PiSource(
    LineFormat(
        agent="pi",
        fidelity=Fidelity(
            timestamps=True,
            usage=True,
            thinking=True,
            tool_results=True,
            system_prompt=True,
            exit_codes=True,
            file_changes=True,
        ),
        new_decoder=PiDecoder,
        new_counter=PiCounter,
        usage_needles=USAGE_NEEDLES,
        context_needles=CONTEXT_NEEDLES,
    ),
    describe_current,
)


def _decode_message(message: dict[str, Any]) -> Iterator[Event]:
    role = text_field(message, "role")
    match role:
        case "assistant":
            if error := text_field(message, "errorMessage"):
                yield ApiError(error)
            elif find_counts({"message": message}) is None:
                yield Ignored("message/assistant")
        case "toolResult":
            yield _decode_result(message)
        case "bashExecution":
            yield UserPrompt(PromptKind.COMMAND, (Text(f"! {text_field(message, 'command')}"),))
            code = message.get("exitCode")
            ending = f"\nexit code {code}" if isinstance(code, int) and code else ""
            output = (Text(f"{text_field(message, 'output')}{ending}".strip()),)
            yield UserPrompt(PromptKind.COMMAND_OUTPUT, output)
        case "system":
            yield Ignored("message/system")
        case _ if role in _PROMPTS:
            blocks = _decode_blocks(message.get("content", message.get("summary")))
            yield UserPrompt(_PROMPTS[role], blocks)
        case _:
            yield UnknownRecord(f"message/{role}", tuple(sorted(message)))


def _decode_result(message: dict[str, Any]) -> ToolResult:
    content, is_error = _decode_blocks(message.get("content")), message.get("isError") is True
    detail = dict(object_field(message, "details"))
    if is_error and (ended := _EXIT_CODE.search(text_of(content))):
        detail["exitCode"] = int(ended[1])
    return ToolResult(
        tool_call_id=text_field(message, "toolCallId"),
        content=content,
        is_error=is_error,
        detail=detail or None,
    )


def _decode_blocks(content: Any) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts = content if isinstance(content, list) else []
    return tuple(_decode_block(part) for part in parts if isinstance(part, dict))


def _decode_block(part: dict[str, Any]) -> Block:
    match text_field(part, "type"):
        case "text":
            return Text(text_field(part, "text"))
        case "thinking":
            text = text_field(part, "thinking")
            return Thinking(text, is_withheld=not text or part.get("redacted") is True)
        case "toolCall":
            given = object_field(part, "arguments")
            return ToolUse(text_field(part, "id"), text_field(part, "name"), given)
        case "image":
            return image_from_base64(text_field(part, "mimeType"), text_field(part, "data"))
        case kind:
            return UnknownBlock(kind or "?", text_field(part, "text"))


def _apply_system(
    message: dict[str, Any], sections: dict[str, str], tools: dict[str, dict[str, Any]]
) -> None:
    """Change the prompt and the tools as a system message says."""
    if message.get("replace") is True:
        sections.clear()
        tools.clear()
    if said := text_of(_decode_blocks(message.get("content"))):
        sections[f"#{len(sections)}"] = said
    for name, text in object_field(message, "sections").items():
        sections[name] = text if isinstance(text, str) else ""
    for tool in list_field(message, "toolsRemoved"):
        tools.pop(text_field(tool, "name") if isinstance(tool, dict) else "", None)
    for tool in list_field(message, "toolsAdded"):
        if isinstance(tool, dict) and text_field(tool, "name"):
            tools[text_field(tool, "name")] = {
                "name": text_field(tool, "name"),
                "description": text_field(tool, "description"),
                "input_schema": object_field(tool, "parameters"),
            }
