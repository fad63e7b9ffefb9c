"""Decode the lines of a Qwen Code session into entries of the common model.

Records form a tree by `uuid` and `parentUuid`: `user`, `assistant` and `tool_result` with a message
of Gemini parts, `system` with a subtype. A response is named by its `qwen-code.api_response` event,
which comes just before its assistant record. One without such a record, as of a compaction, is a
step of its own; those of a subagent or of the memory extractor are a thread of their own, and have a
`prompt_id` of `<session>#<subagent>#<number>`.

The events count. The `usageMetadata` of an assistant record repeats one, and counts only in a file
without events. The uuid of its record names a response, as some servers give a `response_id` more
than once.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from flightlog.agents.dialects.gemini import decode_parts, decode_results, decode_usage, make_result
from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.agents.qwen import AGENT_NAME, main_path, name_thread, session_files
from flightlog.model import entries
from flightlog.model.errors import Unreadable
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, Usage, UsageLine, UsageQuality, response_to_row
from flightlog.sources.foreign_json import (
    int_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.sources.line_filter import iter_lines_with
from flightlog.sources.protocol import Fidelity
from flightlog.store.recordings.reader import open_reader, read_blocks

API_RESPONSE = "qwen-code.api_response"
_BLOCK_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")  # as the client replaces them in file names
_COUNTS = tuple(
    f"{name}_token_count" for name in ("input", "output", "cached_content", "thoughts", "total")
)
# Bookkeeping: the subtypes of the client's own list that are not part of a conversation.
_UNREAD = tuple(
    "agent_bootstrap agent_launch_prompt agent_retry at_command branch_checkpoint "
    "attribution_snapshot file_history_snapshot goal_state parent_session rewind "
    "session_artifact_event session_artifact_snapshot session_model session_source slash_command "
    "turn_result ui_telemetry user_text_elements".split()
)
_PROMPTS = dict.fromkeys(("notification", "cron"), entries.PromptKind.TASK)
_PROMPTS |= {"goal_runtime": entries.PromptKind.CLIENT}
_DECISIONS = {"accept": "allow", "auto_accept": "allow", "modify": "allow", "reject": "deny"}
_OPEN_MAX = 16  # responses that wait for their assistant record


class QwenDecoder:
    """Decodes the lines of one file in order."""

    def __init__(self, file: SessionFile) -> None:
        self._file = name_thread(file)
        self._open: list[dict[str, Any]] = []  # responses without an assistant record yet
        self._has_events = False
        self._taken: set[str] = set()  # responses that have one
        self._response = ""  # the last response of a subagent
        self._decisions: dict[str, str] = {}  # by tool call
        self._calls: set[str] = set()
        self._subagents: dict[str, entries.SubagentInfo] = {}

    def decode(self, line: bytes) -> Sequence[entries.Entry] | None:
        """Return the entries of a line, or None if it is no JSON object."""
        record = parse_object(line)
        if record is None:
            return None
        uuid = text_field(record, "uuid")
        place = (text_field(record, name) for name in ("cwd", "gitBranch", "version"))
        at_ms = parse_timestamp_ms(text_field(record, "timestamp"))
        key = uuid or hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
        context, parent = entries.RecordContext(*place), text_field(record, "parentUuid")
        base = entries.Entry(
            entries.Ignored("telemetry"), "", uuid, parent, at_ms, context=context, key=key
        )
        decoded = (
            self._decode_telemetry(record, base)
            if find_event(record)
            else (replace(base, event=event) for event in self._decode_events(record))
        )
        return [replace(entry, key=f"{entry.key}:{at}") for at, entry in enumerate(decoded)]

    def subagents(self) -> Iterable[entries.SubagentInfo]:
        """Return the subagents and side calls that events name."""
        return tuple(self._subagents.values())

    def _decode_events(self, record: dict[str, Any]) -> Iterator[entries.Event]:
        kind, parts = text_field(record, "type"), object_field(record, "message").get("parts")
        match kind:
            case "user":
                prompt = _PROMPTS.get(text_field(record, "subtype"), entries.PromptKind.HUMAN)
                yield entries.UserPrompt(prompt, decode_parts(parts))
            case "assistant":
                yield self._decode_reply(record, parts)
            case "tool_result":
                yield from self._decode_results(object_field(record, "toolCallResult"), parts)
            case "system":
                yield _decode_system(record)
                if text_field(record, "subtype") == "chat_compression":
                    # What has no assistant record by now was a call for the summary.
                    yield from (_make_reply(open_record, 1) for open_record in self._open)
                    self._open = []
            case _:
                yield entries.UnknownRecord(kind or "record", tuple(sorted(record)))

    def _decode_reply(self, record: dict[str, Any], parts: object) -> entries.AssistantReply:
        blocks = decode_parts(parts)
        self._calls.update(block.id for block in blocks if isinstance(block, entries.ToolUse))
        counts = object_field(record, "usageMetadata")
        is_part = bool(self._file.subagent) and not counts and bool(self._response)
        if response := self._take_response(decode_usage(counts)):
            self._response = text_field(response, "uuid")
        if response and self._file.subagent:
            # The session's own file has this text, with the same response.
            text = entries.Text(text_field(find_event(response), "response_text"))
            blocks = tuple(block for block in blocks if block != text)
        repeats = is_part or response is not None
        is_counted = bool(decode_usage(counts)) and not (repeats or self._has_events)
        return entries.AssistantReply(
            message_id=self._response if repeats else text_field(record, "uuid"),
            model=text_field(record, "model"),
            content=blocks,
            **asdict(decode_usage(counts) if is_counted else Usage()),
            quality=UsageQuality.EXACT if is_counted else UsageQuality.MISSING,
        )

    def _take_response(self, counts: Usage) -> dict[str, Any] | None:
        """Return the response with these counts that no assistant record took so far."""
        found = next((record for record in self._open if _count(record) == counts), None)
        if found is None and self._file.subagent and counts:
            events = list(read_subagent_events(self._file))
            self._has_events = bool(events)
            self._open = [event for event in events if text_field(event, "uuid") not in self._taken]
            found = next((record for record in self._open if _count(record) == counts), None)
        if found is not None:
            self._open.remove(found)
            self._taken.add(text_field(found, "uuid"))
        return found

    def _decode_telemetry(
        self, record: dict[str, Any], base: entries.Entry
    ) -> Iterator[entries.Entry]:
        fields = find_event(record)
        name, subagent = text_field(fields, "event.name"), find_subagent(fields)
        event: entries.Event = entries.Ignored(name)
        if name == API_RESPONSE and subagent:
            self._note_subagent(subagent, fields)
            reply, key = _make_reply(record, 1), f"{base.uuid}.side"
            yield replace(base, event=reply, subagent=subagent, uuid=key, parent_uuid="", key=key)
        elif name == API_RESPONSE:
            self._has_events = True
            self._open = [*self._open[-_OPEN_MAX:], record]
            event = _make_reply(record, 0)
        elif name == "qwen-code.api_error":
            text = text_field(fields, "error_message") or text_field(fields, "error")
            event = entries.ApiError(text, int_field(fields, "status_code"))
        elif name == "qwen-code.tool_call":
            decision = _DECISIONS.get(text_field(fields, "decision"), "")
            self._decisions[text_field(fields, "call_id")] = decision
        elif not name.startswith("qwen-code."):
            event = entries.UnknownRecord(f"telemetry/{name}", tuple(sorted(fields)))
        yield replace(base, event=event)

    def _note_subagent(self, subagent: str, event: dict[str, Any]) -> None:
        kind, task = text_field(event, "subagent_name"), text_field(event, "subagent_task_name")
        call = subagent.removeprefix(f"{kind}-")
        call, is_side_call = call if call in self._calls else "", kind.startswith("managed-")
        info = entries.SubagentInfo(subagent, kind, task, call, is_side_call=is_side_call)
        self._subagents[subagent] = info

    def _decode_results(self, call: dict[str, Any], parts: object) -> Iterator[entries.Event]:
        display = object_field(call, "resultDisplay")
        is_denied = text_field(call, "errorType") == "execution_denied"
        status = "cancelled" if is_denied else text_field(call, "status")
        for found in decode_results(parts):
            code = display.get("exitCode")
            known = found if not isinstance(code, int) else found._replace(exit_code=code)
            result = make_result(known, status)
            decision = result.permission_decision or self._decisions.pop(found.call_id, "")
            subagent = self._find_finished(display)
            yield replace(result, permission_decision=decision, subagent=subagent)

    def _find_finished(self, display: dict[str, Any]) -> str:
        """Return the subagent whose result this is: the last one of the type that 0.15 names."""
        name = text_field(display, "subagentName")
        infos = reversed(self._subagents.values())
        return next((info.subagent for info in infos if name and info.agent_type == name), "")


class QwenCounter:
    """Counts the responses of one file; those of subagents are in the session's own file."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._has_events = bool(file.subagent)

    def count(self, line: bytes) -> Iterator[UsageLine]:
        """Yield the response that a line reports."""
        if self._has_events and API_RESPONSE.encode() not in line:
            return
        record = parse_object(line) or msgspec.json.decode(line, type=dict[str, Any])
        event, own = find_event(record), object_field(record, "usageMetadata")
        is_event = text_field(event, "event.name") == API_RESPONSE
        self._has_events |= is_event
        if is_event or (record.get("type") == "assistant" and not self._has_events):
            usage = decode_event(event) if is_event else decode_usage(own)
            response = ModelResponse(
                text_field(record, "uuid"),
                self._file.session,
                text_field(event, "model") or text_field(record, "model"),
                usage,
                parse_timestamp_ms(text_field(record, "timestamp")) or 0,
                text_field(record, "cwd"),
                text_field(event, "response_id"),
                find_subagent(event),
                quality=usage_quality(usage),
            )
            yield response_to_row(response)


def read_subagent_events(file: SessionFile) -> Iterator[dict[str, Any]]:
    """Yield the responses of a subagent, which are records of the session's own file."""
    with suppress(OSError, Unreadable), closing(open_reader(main_path(file))) as reader:
        for block in read_blocks(reader, 0, bytearray(_BLOCK_BYTES)):
            for line in iter_lines_with(API_RESPONSE.encode(), block.view, block.end):
                record = parse_object(bytes(line)) or {}
                if find_subagent(find_event(record)) == file.subagent:
                    yield record


def usage_quality(usage: Usage) -> UsageQuality:
    """Return whether a response has counts; zeros are those of a server that counts nothing."""
    return UsageQuality.EXACT if usage else UsageQuality.MISSING


def find_event(record: dict[str, Any]) -> dict[str, Any]:
    """Return the event that a record of telemetry holds; others have none."""
    return object_field(object_field(record, "systemPayload"), "uiEvent")


def decode_event(event: dict[str, Any]) -> Usage:
    """Return the tokens of a response."""
    return decode_usage(event, _COUNTS)


def find_subagent(event: dict[str, Any]) -> str:
    """Return the subagent that called, by the name of its file; "" is the main thread."""
    name = text_field(event, "prompt_id").partition("#")[2].partition("#")[0]
    return _UNSAFE.sub("_", name or text_field(event, "subagent_name"))


def _count(record: dict[str, Any]) -> Usage:
    return decode_event(find_event(record))


def _make_reply(record: dict[str, Any], block_index: int) -> entries.AssistantReply:
    """Return a response; the first line of one has no text, its assistant record has it."""
    event = find_event(record)
    text = text_field(event, "response_text")
    return entries.AssistantReply(
        message_id=text_field(record, "uuid"),
        model=text_field(event, "model"),
        content=(entries.Text(text),) if text and block_index else (),
        **asdict(_count(record)),
        request_id=text_field(event, "response_id"),
        block_index=block_index,
        quality=usage_quality(_count(record)),
    )


def _decode_system(record: dict[str, Any]) -> entries.Event:
    kind, payload = text_field(record, "subtype"), object_field(record, "systemPayload")
    result: entries.Event = entries.UnknownRecord(f"system/{kind}", tuple(sorted(payload)))
    match kind:
        case "chat_compression":
            info = object_field(payload, "info")
            names = ("originalTokenCount", "newTokenCount")
            before, after = (int_field(info, name) for name in names)
            result = entries.ContextCompacted(text_field(info, "triggerReason"), before, after)
        case "custom_title":
            by_person = text_field(payload, "titleSource") != "auto"
            result = entries.SessionTitled(
                text_field(payload, "customTitle"), is_user_title=by_person
            )
        case "slash_command" if text_field(payload, "phase") == "invocation":
            result = entries.UserPrompt(
                entries.PromptKind.COMMAND, (entries.Text(text_field(payload, "rawCommand")),)
            )
        case _ if kind in _UNREAD:
            result = entries.Ignored(f"system/{kind}")
    return result


_FIDELITY = Fidelity(client_totals=False, system_prompt=False)
_USAGE_NEEDLES = (API_RESPONSE.encode(), b'"assistant"')
# With quotes: in a text, such as a prompt about it, they would be escaped.
_CONTEXT_NEEDLES = (f'"{API_RESPONSE}"'.encode(),)
SOURCE = LineSource(
    LineFormat(AGENT_NAME, _FIDELITY, QwenDecoder, QwenCounter, _USAGE_NEEDLES, _CONTEXT_NEEDLES),
    session_files,
)
