"""Decode Copilot CLI's events; exports SOURCE.

A line is `{type, data, id, timestamp, parentId, agentId?}`. Subagents write to the session's own
file: `agentId` names the one that wrote a record. The tokens of a call are in a record of their
own, which gives the step its usage; the message of the call has the same `apiCallId`.
"""

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from flightlog.agents.copilot import WORKSPACE, workspace_path
from flightlog.agents.copilot.usage import (
    COMPACTION,
    CONTEXT_NEEDLES,
    USAGE_NEEDLES,
    USAGE_RECORD,
    CopilotCounter,
    amount_field,
    decode_usage,
    find_call,
    read_client_totals,
    subagent_of,
    usage_quality,
    working_directory,
)
from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.session_files import describe_current
from flightlog.model.entries import (
    ApiError,
    AssistantReply,
    Block,
    ClientNote,
    ClientTotalReported,
    ContextCompacted,
    ContextInjected,
    Entry,
    Event,
    Ignored,
    Image,
    PromptKind,
    RecordContext,
    SessionTitled,
    SubagentInfo,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
    image_from_base64,
)
from flightlog.model.errors import Unreadable
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.model.usage import UsageQuality
from flightlog.sources.foreign_json import (
    int_field,
    list_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.sources.protocol import Fidelity
from flightlog.store.recordings.reader import open_reader, raw_lines

# In `workspace.yaml`. A title of several lines, the first prompt, is a block there.
_TITLE = re.compile(r"^name: ([^|>].*)$", re.MULTILINE)
_NOTES_BYTES = 1 << 16  # they have 500, and the first prompt if that is the title
_SYSTEM = b'"system.message"'
_PROMPTS = {
    "abort": (PromptKind.INTERRUPTION, "reason"),
    "system.notification": (PromptKind.TASK, "content"),
}
# Notes of the client, by the field that has their text.
_NOTES = {
    "session.info": "message",
    "session.warning": "message",
    "session.mode_changed": "newMode",
    "session.permissions_changed": "mode",
    "session.handoff": "summary",
    "session.task_complete": "summary",
    "session.context_cleared": "initialMessage",
    "session.model_change": "newModel",
    "session.truncation": "",
    "subagent.failed": "error",
    "hook.end": "",
}
# Records of versions up to 1.0.102 that the transcript view does not show: bookkeeping, and what
# another record repeats. Any other type is shown as unknown.
_IGNORED = frozenset(
    msgspec.json.decode(pkgutil.get_data(__package__, "record_types.json") or b"")["ignored"]
)


class CopilotDecoder:
    """Decodes the events of one session in order, see `agents.line_source.LineDecoder`."""

    def __init__(self, file: SessionFile) -> None:
        del file
        self._session = ""  # as the first record says
        self._context = RecordContext()
        self._subagents: dict[str, SubagentInfo] = {}
        self._permissions: dict[str, str] = {}  # how a request ended, by the tool call

    def decode(self, line: bytes) -> list[Entry] | None:
        """Return the entries of a record."""
        record = parse_object(line)
        if record is None or not text_field(record, "type"):
            return None
        self._remember(record)
        uuid = text_field(record, "id")
        key = uuid or hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
        base = Entry(
            Ignored(""),
            self._session,
            uuid,
            text_field(record, "parentId"),
            parse_timestamp_ms(text_field(record, "timestamp")),
            subagent=subagent_of(record),
            context=self._context,
        )
        events = enumerate(self._decode_events(record))
        return [replace(base, event=event, key=f"{key}:{index}") for index, event in events]

    def subagents(self) -> Iterable[SubagentInfo]:
        """Return the subagents that were started so far."""
        return self._subagents.values()

    def _remember(self, record: dict[str, Any]) -> None:
        """Take from a record what later ones refer to."""
        data = object_field(record, "data")
        self._session = text_field(data, "sessionId") or self._session
        if (directory := working_directory(record)) is not None:
            self._context = RecordContext(
                text_field(directory, "cwd") or self._context.cwd,
                text_field(directory, "branch"),
                text_field(data, "copilotVersion") or self._context.version,
                text_field(data, "producer") or self._context.entrypoint,
            )
        match text_field(record, "type"):
            case "subagent.started" if name := subagent_of(record):
                self._subagents[name] = SubagentInfo(
                    name,
                    text_field(data, "agentType") or text_field(data, "agentName"),
                    text_field(data, "agentDescription"),
                    text_field(data, "toolCallId"),
                )
            case "permission.completed":
                outcome = text_field(object_field(data, "result"), "kind")
                self._permissions[text_field(data, "toolCallId")] = outcome

    def _decode_events(self, record: dict[str, Any]) -> Iterator[Event]:
        kind, data = text_field(record, "type"), object_field(record, "data")
        call = find_call(record)
        if kind == COMPACTION:
            yield from _decode_compaction(data)
        elif kind != USAGE_RECORD or call is None:
            yield self._decode_event(kind, data, record)
        if call is not None:
            yield _make_call(*call)

    def _decode_event(self, kind: str, data: dict[str, Any], record: dict[str, Any]) -> Event:
        event: Event = UnknownRecord(kind, tuple(sorted(data)))
        match kind:
            case "user.message":
                event = _decode_prompt(data, is_subagent=bool(subagent_of(record)))
            case "assistant.message":
                name = text_field(data, "apiCallId") or text_field(record, "id")
                event = _decode_message(data, name)
            case "tool.execution_complete":
                event = self._decode_result(data)
            case "session.shutdown" | "session.usage_checkpoint":
                event = self._decode_totals(kind, record)
            case "session.error":
                event = ApiError(text_field(data, "message"), int_field(data, "statusCode"))
            case _ if kind in _PROMPTS:
                origin, name = _PROMPTS[kind]
                event = UserPrompt(origin, (Text(text_field(data, name)),))
            case "skill.invoked":
                event = ContextInjected("skill", text_field(data, "content"))
            case _ if kind in _NOTES:
                event = _decode_change(kind, data)
            case _ if kind in _IGNORED or record.get("ephemeral") is True:
                event = Ignored(kind)
        return event

    def _decode_totals(self, kind: str, record: dict[str, Any]) -> Event:
        if totals := read_client_totals(self._session, record):
            return ClientTotalReported(totals)
        # Old versions write the premium requests of each run, and no sum over the runs.
        requests = amount_field(object_field(record, "data"), "totalPremiumRequests")
        return ClientNote(kind, f"premium requests: {requests:g}") if requests else Ignored(kind)

    def _decode_result(self, data: dict[str, Any]) -> ToolResult:
        call, result = text_field(data, "toolCallId"), object_field(data, "result")
        code = object_field(data, "shellExecution").get("exitCode")
        error = object_field(data, "error")
        # A rule that denies a call writes no record of its own.
        outcome = self._permissions.get(call, "")
        outcome = outcome or ("denied" if text_field(error, "code") == "denied" else "")
        decision = "allow" if outcome.startswith("approved") else "deny" if outcome else ""
        text = text_field(result, "content") or text_field(error, "message")
        started = (info.subagent for info in self._subagents.values() if info.tool_call_id == call)
        return ToolResult(
            tool_call_id=call,
            content=(Text(text), *_decode_images(result)),
            is_error=data.get("success") is not True or (isinstance(code, int) and code != 0),
            denial_reason=outcome if decision == "deny" else "",
            subagent=next(started, ""),
            detail={"exitCode": code} if isinstance(code, int) else None,
            permission_decision=decision,
        )


class CopilotSource(LineSource):
    """Reads events of Copilot CLI up to 1.0.102; titles are in a file beside them."""

    def titles(self, files: Iterable[SessionFile]) -> Iterator[Entry]:
        """Yield the titles in the notes beside the sessions' events."""
        for file in files:
            text = _read_notes(workspace_path(file))
            if found := _TITLE.search(text):
                title = found[1].strip().strip("'\"").replace("''", "'")
                event = SessionTitled(title, is_user_title="\nuser_named: true" in text)
                key = f"{file.session}:{WORKSPACE}"
                yield Entry(event, file.session, uuid=key, key=key, path=file.path)

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Return the system prompt of each thread; tool definitions are not recorded."""
        contexts: dict[str, ThreadContext] = {}
        for line in (line for file in files for line in raw_lines(file.path, 0) if _SYSTEM in line):
            record = parse_object(line) or {}
            prompt = text_field(object_field(record, "data"), "content")
            if text_field(record, "type") == "system.message" and prompt:
                contexts.setdefault(subagent_of(record), ThreadContext(system=prompt))
        return contexts

    def files_beside(self, file: SessionFile) -> dict[str, str]:
        """Return the client's notes: directory, git branch, title."""
        path = workspace_path(file)
        return {WORKSPACE: path} if Path(path).is_file() else {}


_NEEDLES = (USAGE_NEEDLES, CONTEXT_NEEDLES)
SOURCE = CopilotSource(
    LineFormat("copilot", Fidelity(), CopilotDecoder, CopilotCounter, *_NEEDLES), describe_current
)


def _read_notes(path: str) -> str:
    """Return the beginning of the notes beside a session, or nothing."""
    with suppress(OSError, Unreadable), closing(open_reader(path)) as reader:
        return reader.read(0, _NOTES_BYTES).decode("utf-8", "replace")
    return ""


def _decode_prompt(data: dict[str, Any], *, is_subagent: bool) -> UserPrompt:
    attached = (part for part in list_field(data, "attachments") if isinstance(part, dict))
    names = (text_field(part, "path") or text_field(part, "displayName") for part in attached)
    source = text_field(data, "source")
    is_client = data.get("isAutopilotContinuation") is True or source not in {"", "user"}
    kind = PromptKind.CLIENT if is_client and not is_subagent else PromptKind.HUMAN
    context = tuple(Text(f"attached: {name}") for name in names if name)
    return UserPrompt(kind, (Text(text_field(data, "content")),), context=context)


def _decode_message(data: dict[str, Any], message_id: str) -> AssistantReply:
    content: list[Block] = []
    thinking = text_field(data, "reasoningText")
    if thinking or data.get("reasoningOpaque") or data.get("encryptedContent"):
        content.append(Thinking(thinking, is_withheld=not thinking))
    if text := text_field(data, "content"):
        content.append(Text(text))
    for call in list_field(data, "toolRequests"):
        if isinstance(call, dict):
            given = call.get("arguments")
            arguments = given if isinstance(given, dict) else {"input": given}
            name = text_field(call, "name")
            content.append(ToolUse(text_field(call, "toolCallId"), name, arguments))
    return AssistantReply(
        message_id=message_id,
        model=text_field(data, "model"),
        content=tuple(content),
        block_index=int_field(data, "chunkIndex"),
        quality=UsageQuality.MISSING,  # until the usage record of the call says more
    )


def _make_call(message_id: str, counts: dict[str, Any]) -> AssistantReply:
    return AssistantReply(
        message_id=message_id,
        model=text_field(counts, "model"),
        content=(),
        **asdict(decode_usage(counts)),
        stop_reason=text_field(counts, "finishReason"),
        request_id=text_field(counts, "providerCallId"),
        effort=text_field(counts, "reasoningEffort"),
        quality=usage_quality(counts),
    )


def _decode_compaction(data: dict[str, Any]) -> Iterator[Event]:
    if data.get("success") is True:
        trigger = text_field(data, "trigger")
        before = int_field(data, "preCompactionTokens")
        yield ContextCompacted(trigger, before, int_field(data, "postCompactionTokens"))
        yield UserPrompt(PromptKind.SUMMARY, (Text(text_field(data, "summaryContent")),))
    else:
        yield ClientNote(COMPACTION, f"compaction failed: {text_field(data, 'error')}")


def _decode_change(kind: str, data: dict[str, Any]) -> Event:
    if kind == "session.truncation":
        before = int_field(data, "preTruncationTokensInMessages")
        after = int_field(data, "postTruncationTokensInMessages")
        return ContextCompacted("truncation", before, after)
    if kind == "hook.end":
        error = text_field(object_field(data, "error"), "message")
        return Ignored(kind) if data.get("success") is True else ClientNote("hook", error)
    if kind == "session.model_change" and not text_field(data, "previousModel"):
        return Ignored(kind)  # the first model of a thread
    name = kind.partition(".")[2].replace("_", " ")
    return ClientNote(kind, f"{name}: {text_field(data, _NOTES[kind])}")


def _decode_images(result: dict[str, Any]) -> Iterator[Image]:
    for part in list_field(result, "binaryResultsForLlm"):
        if isinstance(part, dict) and text_field(part, "mimeType").startswith("image/"):
            yield image_from_base64(text_field(part, "mimeType"), text_field(part, "data"))
