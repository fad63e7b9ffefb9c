"""Decode Pi's sessions; exports SOURCE.

The first line is a header. Each other line is an entry of a tree (`id`, `parentId`): a branch
that the person left stays in the file, and its turns are those that do not lead to the last entry.

`input` has no cached tokens in it, and `reasoning` is inside `output`; both were measured against
the responses that version 0.87.1 received. Besides replies, a compaction, the summary of a left
branch, a tool that asks a model, and side calls (`usage`, such as `cache_warm`) count. A fork is a
copy of its parent: a response has the id that its provider gave it and its time, anything else that
of its entry.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.session_files import describe_current
from flightlog.model import entries
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.model.usage import ClientTotals, Usage, UsageLine, UsageQuality
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

# Only words: a session that another program wrote again may have spaces between them.
CONTEXT_NEEDLES = (b'"session"', b'"model_change"')
USAGE_NEEDLES = (*CONTEXT_NEEDLES, b'"usage"', b'"assistant"')
_SIDE_CALLS = frozenset({"usage", "compaction", "branch_summary"})
_EXIT_CODE = re.compile(r"Command exited with code (\d{1,9})\s*\Z")
_SYSTEM = b'"system"'
# Entries up to version 0.87.1 that the transcript view does not show.
_IGNORED = frozenset(
    {"session", "model_change", "thinking_level_change", "label", "custom", "context_edit"}
)
_PROMPTS = {
    "user": entries.PromptKind.HUMAN,
    "custom": entries.PromptKind.CLIENT,
    "hookMessage": entries.PromptKind.CLIENT,  # the name of `custom` in files of version 2
    "branchSummary": entries.PromptKind.SUMMARY,
    "compactionSummary": entries.PromptKind.SUMMARY,
}


def decode_usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens of a call."""
    write = int_field(counts, "cacheWrite")
    return Usage(
        input_tokens=int_field(counts, "input"),
        output_tokens=int_field(counts, "output"),
        cache_read_tokens=int_field(counts, "cacheRead"),
        cache_write_tokens=write,
        cache_write_1h_tokens=min(int_field(counts, "cacheWrite1h"), write),
    )


def entry_name(record: dict[str, Any], line: bytes) -> str:
    """Return an id of an entry that its copies in forks share; its own has 32 bits only."""
    if text_field(record, "id") and text_field(record, "type") != "session":
        return f"{text_field(record, 'id')}-{text_field(record, 'timestamp')}"
    return hashlib.blake2b(line.strip(), digest_size=12).hexdigest()


def response_name(record: dict[str, Any], line: bytes) -> str:
    """Return the id of the response in an entry, see above."""
    message = object_field(record, "message")
    if response := text_field(message, "responseId"):
        # Some servers give all their responses the same id.
        return f"{response}-{int_field(message, 'timestamp')}"
    return entry_name(record, line)


def find_counts(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the counts of the model call in an entry; None if it has none.

    A request that failed has counts of zero and no response.
    """
    message = object_field(record, "message")
    role = text_field(message, "role")
    counts = object_field(message if role else record, "usage")
    if role == "assistant":
        is_failed = text_field(message, "stopReason") == "error" and not decode_usage(counts)
        return None if is_failed else counts
    is_side_call = role == "toolResult" or text_field(record, "type") in _SIDE_CALLS
    return counts if counts and is_side_call else None


def usage_quality(record: dict[str, Any], counts: dict[str, Any]) -> UsageQuality:
    """Return how far counts can be trusted: those of a reply that was cut are its first ones."""
    if not decode_usage(counts):
        return UsageQuality.MISSING
    is_cut = text_field(object_field(record, "message"), "stopReason") in {"aborted", "error"}
    return UsageQuality.LOWER_BOUND if is_cut else UsageQuality.EXACT


def model_of(record: dict[str, Any], selected: str) -> str:
    """Return the model of the call in an entry; a summary is made by the selected one."""
    message = object_field(record, "message")
    named = text_field(message, "responseModel") or text_field(message, "model")
    return named or text_field(record, "model") or selected


class PiCounter:
    """Counts the calls in one session's file, see `agents.line_source.LineCounter`."""

    def __init__(self, file: SessionFile) -> None:
        self._session = file.session
        self._cwd = ""
        self._model = ""

    def count(self, line: bytes) -> Iterator[UsageLine | ClientTotals]:
        """Yield the usage that a line adds."""
        record = parse_object(line) or msgspec.json.decode(line, type=dict[str, Any])
        match text_field(record, "type"):
            case "session":
                self._cwd = text_field(record, "cwd")
            case "model_change":
                self._model = text_field(record, "modelId")
        counts = find_counts(record)
        if counts is None:
            return
        yield UsageLine(
            message_id=response_name(record, line),
            session=self._session,
            model=model_of(record, self._model),
            **asdict(decode_usage(counts)),
            at_ms=parse_timestamp_ms(text_field(record, "timestamp")) or 0,
            project=self._cwd,
            request_id="",
            subagent="",
            is_aborted=text_field(object_field(record, "message"), "stopReason") == "aborted",
            quality=usage_quality(record, counts),
        )


class PiDecoder:
    """Decodes one session's file in order, see `agents.line_source.LineDecoder`."""

    def __init__(self, file: SessionFile) -> None:
        del file
        self._context = entries.RecordContext()
        self._model, self._effort = "", ""
        self._hidden: dict[str, str] = {}  # the parent of each entry that makes no row

    def decode(self, line: bytes) -> list[entries.Entry] | None:
        """Return the entries of a line."""
        record = parse_object(line)
        if record is None or not text_field(record, "type"):
            return None
        self._remember(record)
        events = list(self._decode_events(record, line))
        uuid = text_field(record, "id") if text_field(record, "type") != "session" else ""
        parent = text_field(record, "parentId")
        parent = self._hidden.get(parent, parent)
        if all(isinstance(event, entries.Ignored) for event in events):
            # A branch may begin with such an entry; its first prompt then follows the fork itself.
            self._hidden[uuid] = parent
        at_ms = parse_timestamp_ms(text_field(record, "timestamp"))
        base = entries.Entry(entries.Ignored(""), "", uuid, parent, at_ms, context=self._context)
        name = uuid or entry_name(record, line)
        numbered = enumerate(events)
        return [replace(base, event=event, key=f"{name}:{index}") for index, event in numbered]

    def subagents(self) -> Iterable[entries.SubagentInfo]:
        """Return nothing: Pi has no subagents of its own."""
        return ()

    def _remember(self, record: dict[str, Any]) -> None:
        match text_field(record, "type"):
            case "session":
                self._context = entries.RecordContext(text_field(record, "cwd"))
            case "model_change":
                self._model = text_field(record, "modelId")
            case "thinking_level_change":
                self._effort = text_field(record, "thinkingLevel")

    def _decode_events(self, record: dict[str, Any], line: bytes) -> Iterator[entries.Event]:
        kind = text_field(record, "type")
        match kind:
            case "message":
                yield from _decode_message(object_field(record, "message"))
            case "compaction":
                yield entries.ContextCompacted("", int_field(record, "tokensBefore"), 0)
                yield entries.UserPrompt(
                    entries.PromptKind.SUMMARY, (entries.Text(text_field(record, "summary")),)
                )
            case "branch_summary":
                yield entries.UserPrompt(
                    entries.PromptKind.SUMMARY, (entries.Text(text_field(record, "summary")),)
                )
            case "usage":
                yield entries.ClientNote(kind, f"side call: {text_field(record, 'kind')}")
            case "session_info":
                yield entries.SessionTitled(text_field(record, "name"), is_user_title=True)
            case "custom_message":
                yield entries.UserPrompt(
                    entries.PromptKind.CLIENT, _decode_blocks(record.get("content"))
                )
            case _ if kind in _IGNORED:
                yield entries.Ignored(kind)
            case _:
                yield entries.UnknownRecord(kind, tuple(sorted(record)))
        if (counts := find_counts(record)) is not None:
            yield self._make_reply(record, counts, response_name(record, line))

    def _make_reply(
        self, record: dict[str, Any], counts: dict[str, Any], message_id: str
    ) -> entries.AssistantReply:
        message = object_field(record, "message")
        is_reply = text_field(message, "role") == "assistant"
        return entries.AssistantReply(
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


_FIDELITY = Fidelity(client_totals=False, subagents=False, permissions=False)
SOURCE = PiSource(
    LineFormat("pi", _FIDELITY, PiDecoder, PiCounter, USAGE_NEEDLES, CONTEXT_NEEDLES),
    describe_current,
)


def _decode_message(message: dict[str, Any]) -> Iterator[entries.Event]:
    role = text_field(message, "role")
    match role:
        case "assistant":
            if error := text_field(message, "errorMessage"):
                yield entries.ApiError(error)
            elif find_counts({"message": message}) is None:
                yield entries.Ignored("message/assistant")
        case "toolResult":
            yield _decode_result(message)
        case "bashExecution":
            yield entries.UserPrompt(
                entries.PromptKind.COMMAND, (entries.Text(f"! {text_field(message, 'command')}"),)
            )
            code = message.get("exitCode")
            ending = f"\nexit code {code}" if isinstance(code, int) and code else ""
            output = (entries.Text(f"{text_field(message, 'output')}{ending}".strip()),)
            yield entries.UserPrompt(entries.PromptKind.COMMAND_OUTPUT, output)
        case "system":
            yield entries.Ignored("message/system")
        case _ if role in _PROMPTS:
            blocks = _decode_blocks(message.get("content", message.get("summary")))
            yield entries.UserPrompt(_PROMPTS[role], blocks)
        case _:
            yield entries.UnknownRecord(f"message/{role}", tuple(sorted(message)))


def _decode_result(message: dict[str, Any]) -> entries.ToolResult:
    content, is_error = _decode_blocks(message.get("content")), message.get("isError") is True
    detail = dict(object_field(message, "details"))
    if is_error and (ended := _EXIT_CODE.search(entries.text_of(content))):
        detail["exitCode"] = int(ended[1])
    call = text_field(message, "toolCallId")
    return entries.ToolResult(call, content, is_error=is_error, detail=detail or None)


def _decode_blocks(content: Any) -> tuple[entries.Block, ...]:
    if isinstance(content, str):
        return (entries.Text(content),)
    parts = content if isinstance(content, list) else []
    return tuple(_decode_block(part) for part in parts if isinstance(part, dict))


def _decode_block(part: dict[str, Any]) -> entries.Block:
    match text_field(part, "type"):
        case "text":
            return entries.Text(text_field(part, "text"))
        case "thinking":
            text = text_field(part, "thinking")
            return entries.Thinking(text, is_withheld=not text or part.get("redacted") is True)
        case "toolCall":
            given = object_field(part, "arguments")
            return entries.ToolUse(text_field(part, "id"), text_field(part, "name"), given)
        case "image":
            return entries.image_from_base64(text_field(part, "mimeType"), text_field(part, "data"))
        case kind:
            return entries.UnknownBlock(kind or "?", text_field(part, "text"))


def _apply_system(
    message: dict[str, Any], sections: dict[str, str], tools: dict[str, dict[str, Any]]
) -> None:
    """Change the prompt and the tools as a system message says."""
    if message.get("replace") is True:
        sections.clear()
        tools.clear()
    if body := entries.text_of(_decode_blocks(message.get("content"))):
        sections[f"#{len(sections)}"] = body
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
