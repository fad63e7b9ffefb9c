"""Decode the lines of an OpenCode session, as `rows` makes them, to entries; OpenCodeSource.

A message is one line with its parts; each part that is shown is an entry. What the client has only
begun to write (a text without words, a tool call without input) is not decoded: it is there again
when it is complete.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.opencode.files import AGENT_NAME, session_files
from flightlog.agents.opencode.rows import find_copied_responses, read_messages, read_session
from flightlog.agents.opencode.usage import (
    ABORTED,
    OpenCodeCounter,
    decode_tokens,
    decode_totals,
    is_refused,
    is_uncalled,
)
from flightlog.model import entries
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.model.usage import Usage, UsageQuality
from flightlog.sources.foreign_json import (
    int_field,
    list_field,
    object_field,
    parse_object,
    text_field,
    time_field,
)
from flightlog.sources.protocol import Fidelity, TranscriptTail
from flightlog.store.recordings.reader import is_virtual

_DEFAULT_TITLES = ("New session - ", "Child session - ")
_DENIALS = ("The user rejected permission", "The user has specified a rule which prevents")
_TASK_RESULT = "<task id="  # how the client tells the model that a background task ended
# Parts without anything to show: git snapshots, the steps that a message is made of.
_SILENT = frozenset({"step-start", "step-finish", "snapshot", "patch", "agent"})
_BEGUN = frozenset({"text", "reasoning"})


class OpenCodeDecoder:
    """Decodes the lines of one session."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._context = entries.RecordContext()
        self._prompt_tokens = 0
        self._subagents: dict[str, entries.SubagentInfo] = {}

    def decode(self, line: bytes) -> Sequence[entries.Entry] | None:
        """Return the entries of a line, or None if it is no record of a session."""
        record = parse_object(line) or {}
        kind, message = text_field(record, "type"), _Message(record)
        role = text_field(message.data, "role")
        if kind == "session":
            cwd, version = text_field(record, "directory"), text_field(record, "version")
            self._context = entries.RecordContext(cwd=cwd, version=version)
            at_ms = time_field(record, "time_created")
            return [self._entry(message.id, entries.Ignored("session"), at_ms)]
        if kind == "state":
            return list(self._decode_state(record))
        if kind == "message" and role == "user":
            return list(self._decode_user(message))
        if kind == "message" and role == "assistant":
            return list(self._decode_assistant(message))
        event = entries.UnknownRecord(
            f"{kind}/{role}" if role else kind, tuple(sorted(message.data))
        )
        return [self._entry(message.id, event)] if kind else None

    def subagents(self) -> Iterable[entries.SubagentInfo]:
        """Return the subagents that the tool calls so far started."""
        return tuple(self._subagents.values())

    def _decode_state(self, record: dict[str, Any]) -> Iterator[entries.Entry]:
        if self._file.subagent:
            return
        at_ms, uuid = time_field(record, "time_updated"), text_field(record, "id")
        title = text_field(record, "title")
        if title and not title.startswith(_DEFAULT_TITLES):
            yield self._entry(uuid, entries.SessionTitled(title), at_ms, f"title:{at_ms}")
        if totals := decode_totals(record):
            yield self._entry(uuid, entries.ClientTotalReported(totals), at_ms, f"totals:{at_ms}")

    def _decode_user(self, message: "_Message") -> Iterator[entries.Entry]:
        content: list[entries.Block] = []
        added: list[entries.Block] = []
        for uuid, part in message.parts():
            kind, text = text_field(part, "type"), text_field(part, "text")
            if kind == "text" and text:
                is_added = part.get("synthetic") is True or part.get("ignored") is True
                (added if is_added else content).append(entries.Text(text))
            elif kind == "subtask":
                content.append(entries.Text(text_field(part, "prompt")))
            elif kind == "file":
                content.append(_decode_file(part))
            elif kind == "compaction":
                trigger = "auto" if part.get("auto") is True else "manual"
                event = entries.ContextCompacted(trigger, self._prompt_tokens, 0)
                yield self._entry(uuid, event, message.created_ms)
            elif kind not in _SILENT | _BEGUN:
                yield self._entry(uuid, _unknown_part(part), message.created_ms)
        if content or added:
            yield self._entry(message.id, _make_prompt(content, added), message.created_ms)

    def _decode_assistant(self, message: "_Message") -> Iterator[entries.Entry]:
        usage = decode_tokens(object_field(message.data, "tokens"))
        self._prompt_tokens = usage.prompt_tokens or self._prompt_tokens
        error = object_field(message.data, "error")
        if not is_refused(message.data):
            parent = text_field(message.data, "parentID")
            reply = message.reply(0, (), usage)
            yield self._entry(message.id, reply, message.created_ms, parent=parent)
        if error and text_field(error, "name") != ABORTED:
            yield self._entry(message.id, _decode_error(error), message.created_ms, "error")
        for number, (uuid, part) in enumerate(message.parts(), start=1):
            for name, (event, at_ms) in enumerate(self._decode_part(part, message, number)):
                yield self._entry(uuid, event, at_ms or message.created_ms, str(name), message.id)

    def _decode_part(
        self, part: dict[str, Any], message: "_Message", number: int
    ) -> Iterator[tuple[entries.Event, int]]:
        """Yield what a part of a response shows, and when."""
        kind, text, times = text_field(part, "type"), text_field(part, "text"), _times(part)
        if kind == "text" and text:
            yield message.reply(number, (entries.Text(text),)), times[0]
        elif kind == "reasoning" and (text or times[1]):
            yield message.reply(number, (entries.Thinking(text, not text),)), times[0]
        elif kind == "file":
            yield message.reply(number, (_decode_file(part),)), times[0]
        elif kind == "tool":
            yield from self._decode_tool(part, message, number)
        elif kind == "retry":
            yield _decode_error(object_field(part, "error"), int_field(part, "attempt")), times[0]
        elif kind not in _SILENT | _BEGUN:
            yield _unknown_part(part), times[0]

    def _decode_tool(
        self, part: dict[str, Any], message: "_Message", number: int
    ) -> Iterator[tuple[entries.Event, int]]:
        state = object_field(part, "state")
        status, given = text_field(state, "status"), object_field(state, "input")
        if status == "pending" and not given and not message.is_complete:
            return
        call_id, tool = text_field(part, "callID"), text_field(part, "tool")
        name = (text_field(given, "tool") or tool) if tool == "invalid" else tool
        start_ms, end_ms = _times(state)
        yield message.reply(number, (entries.ToolUse(call_id, name, given),)), start_ms
        child = text_field(object_field(state, "metadata"), "sessionId") if tool == "task" else ""
        if child:
            agent_type, about = text_field(given, "subagent_type"), text_field(given, "description")
            self._subagents[child] = entries.SubagentInfo(child, agent_type, about, call_id)
        if status in {"completed", "error"}:
            yield _make_result(part, state, child), end_ms

    def _entry(
        self, uuid: str, event: entries.Event, at_ms: int = 0, name: str = "0", parent: str = ""
    ) -> entries.Entry:
        place, key = (self._file.session, uuid, parent, at_ms or None), f"{uuid}:{name}"
        return entries.Entry(event, *place, context=self._context, key=key)


class _Message(Struct, frozen=True):
    """One line of a message."""

    record: dict[str, Any]

    @property
    def id(self) -> str:
        return text_field(self.record, "id")

    @property
    def data(self) -> dict[str, Any]:
        return object_field(self.record, "data")

    @property
    def created_ms(self) -> int:
        return time_field(object_field(self.data, "time"), "created")

    @property
    def is_complete(self) -> bool:
        return bool(int_field(object_field(self.data, "time"), "completed"))

    def parts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for part in list_field(self.record, "parts"):
            if isinstance(part, dict):
                yield text_field(part, "id"), object_field(part, "data")

    def reply(
        self, number: int, content: tuple[entries.Block, ...], usage: Usage | None = None
    ) -> entries.AssistantReply:
        """Return one block of the response; the counts are with block 0."""
        return entries.AssistantReply(
            message_id=text_field(self.record, "response"),
            model=text_field(self.data, "modelID"),
            content=content,
            stop_reason=text_field(self.data, "finish"),
            block_index=number,
            is_aborted=text_field(object_field(self.data, "error"), "name") == ABORTED,
            effort=text_field(self.data, "variant"),
            quality=UsageQuality.EXACT if usage or is_uncalled(self.data) else UsageQuality.MISSING,
            **asdict(usage or Usage()),
        )


def _make_prompt(content: list[entries.Block], added: list[entries.Block]) -> entries.UserPrompt:
    if content:
        return entries.UserPrompt(entries.PromptKind.HUMAN, tuple(content), context=tuple(added))
    first = added[0]
    is_task = isinstance(first, entries.Text) and first.text.startswith(_TASK_RESULT)
    return entries.UserPrompt(
        entries.PromptKind.TASK if is_task else entries.PromptKind.CLIENT, tuple(added)
    )


def _make_result(part: dict[str, Any], state: dict[str, Any], child: str) -> entries.ToolResult:
    failed = text_field(state, "status") == "error"
    text = text_field(state, "error" if failed else "output")
    exit_code = object_field(state, "metadata").get("exit")
    detail = {"exitCode": exit_code} if isinstance(exit_code, int) else None
    files = (file for file in list_field(state, "attachments") if isinstance(file, dict))
    return entries.ToolResult(
        text_field(part, "callID"),
        (entries.Text(text), *map(_decode_file, files)),
        # A call of an unknown tool is recorded as one of the tool "invalid", which succeeded.
        is_error=failed or text_field(part, "tool") == "invalid" or bool(detail and exit_code),
        denial_reason=text if failed and text.startswith(_DENIALS) else "",
        subagent=child,
        detail=detail,
    )


def _decode_file(part: dict[str, Any]) -> entries.Block:
    media_type, url = text_field(part, "mime"), text_field(part, "url")
    if media_type.startswith("image/") and url.startswith("data:"):
        data = url.partition(",")[2]
        return entries.Image(media_type, len(data) * 3 // 4, data)
    return entries.UnknownBlock("file", text_field(part, "filename") or url)


def _decode_error(error: dict[str, Any], attempt: int = 0) -> entries.ApiError:
    data = object_field(error, "data")
    message = text_field(data, "message") or text_field(error, "name") or "unknown error"
    return entries.ApiError(message, int_field(data, "statusCode"), attempt)


def _unknown_part(part: dict[str, Any]) -> entries.UnknownRecord:
    return entries.UnknownRecord(f"part/{text_field(part, 'type')}", tuple(sorted(part)))


def _times(value: dict[str, Any]) -> tuple[int, int]:
    time = object_field(value, "time")
    return time_field(time, "start") or time_field(time, "created"), time_field(time, "end")


FORMAT = LineFormat(
    agent=AGENT_NAME,
    fidelity=Fidelity(system_prompt=False),
    new_decoder=OpenCodeDecoder,
    new_counter=OpenCodeCounter,
    usage_needles=(b'"type":"message"', b'"type":"session"', b'"type":"state"'),
    context_needles=(b'"type":"session"',),
    read_usage=read_messages,
)


class OpenCodeSource(LineSource):
    """A `LineSource` whose sessions were listed with the time of their last row."""

    def last_record_ms(self, file: SessionFile) -> int:
        """Return the time of the last record; that of a session's rows was listed."""
        if is_virtual(file.path):
            return file.changed_ns // 1_000_000
        return super().last_record_ms(file)

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize the lines added since byte `start`; the next one starts before the last line."""
        found = super().tail(path, start)
        with suppress(OSError):
            if is_virtual(path):
                return replace(found, end=read_session(path).rfind(b"\n", 0, -1) + 1)
        return found

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Return which responses of a fork are copies; the requests are not recorded."""
        for file in files:
            if not file.subagent and is_virtual(file.path):
                with suppress(OSError):
                    copied = find_copied_responses(file.path)
                    return {"": ThreadContext(copied_message_ids=copied)} if copied else {}
        return {}


SOURCE = OpenCodeSource(FORMAT, session_files)
