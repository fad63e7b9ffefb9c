"""Decode the lines of a Gemini CLI session into entries of the common model.

    {"sessionId": …, "projectHash": …, "kind": "main"}              header; again on resume
    {"id": …, "type": "user"|"gemini"|"info"|"error"|…, …}          a message
    {"$set": {"messages": […], "summary": …, "lastUpdated": …}}     an update of the header
    {"$rewindTo": id}                                               that message and all after are gone

A message is written again when its tools finish: each version gives only what is new in it. The
history that a resumed session writes (`$set.messages`) gives only messages that are not known; it
has no tokens, so it counts nothing. Tokens are those of one call, cached inside the input, thoughts
beside the output.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.agents.dialects.gemini import (
    FunctionResult,
    decode_call,
    decode_parts,
    decode_results,
    decode_usage,
    make_result,
)
from flightlog.agents.gemini import files
from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.model import entries
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, UsageLine, UsageQuality, response_to_row
from flightlog.sources.foreign_json import (
    object_field,
    objects_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.sources.protocol import Fidelity

TOKEN_NAMES = ("input", "output", "cached", "thoughts", "total", "tool")
_PROMPTS = {"/": entries.PromptKind.COMMAND, "<hook_context>": entries.PromptKind.HOOK}


class GeminiDecoder:
    """Decodes the lines of one file in order."""

    def __init__(self, file: SessionFile) -> None:
        self._context = entries.RecordContext(cwd=files.read_project_root(file))
        self._versions: dict[str, int] = {}  # of each message, so far
        self._calls: set[str] = set()
        self._results: set[str] = set()
        self._chain: list[str] = []  # the messages that are not rewound
        self._subagents: dict[str, entries.SubagentInfo] = {}
        self._context_tokens = 0
        self._is_subagent = False

    def decode(self, line: bytes) -> Sequence[entries.Entry] | None:
        """Return the entries of a line, or None if it is no JSON object."""
        record = parse_object(line)
        if record is None:
            return None
        if text_field(record, "id"):
            return list(self._decode_message(record, is_copy=False))
        updates = object_field(record, "$set")
        if rewound := text_field(record, "$rewindTo"):
            del self._chain[self._chain.index(rewound) if rewound in self._chain else 0 :]
        event: entries.Event = entries.Ignored("header")
        self._is_subagent |= text_field(record, "kind") == "subagent"
        title = text_field(record, "summary") or text_field(updates, "summary")
        if title and not self._is_subagent:
            event = entries.SessionTitled(title)
        elif not (updates or rewound or text_field(record, "sessionId")):
            event = entries.UnknownRecord("record", tuple(sorted(record)))
        key = hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
        stamp = text_field(record, "lastUpdated") or text_field(updates, "lastUpdated")
        at_ms = parse_timestamp_ms(stamp)
        decoded = [entries.Entry(event, "", at_ms=at_ms, key=key, context=self._context)]
        for message in (*objects_field(record, "messages"), *objects_field(updates, "messages")):
            decoded += self._decode_message(message, is_copy=bool(updates))
        return decoded

    def subagents(self) -> Iterable[entries.SubagentInfo]:
        """Return the subagents that tool calls name."""
        return tuple(self._subagents.values())

    def _decode_message(self, record: dict[str, Any], *, is_copy: bool) -> Iterator[entries.Entry]:
        name = text_field(record, "id")
        version = self._versions.get(name, 0)
        if version and is_copy:
            return
        # Rows are read again by the uuid of a record, so each version has one of its own.
        uuid = f"{name}.{version}" if version else name
        parent = name if version else self._chain[-1] if self._chain else ""
        self._versions[name] = version + 1
        self._chain += [] if version else [name]
        events = self._decode_events(record, version, is_copy=is_copy)
        for number, (event, stamp) in enumerate(events):
            at_ms = parse_timestamp_ms(stamp or text_field(record, "timestamp"))
            key = f"{uuid}:{number}"
            yield entries.Entry(event, "", uuid, parent, at_ms, context=self._context, key=key)

    def _decode_events(
        self, record: dict[str, Any], version: int, *, is_copy: bool
    ) -> Iterator[tuple[entries.Event, str]]:
        """Yield the events of a message, each with its own time if it has one."""
        kind = text_field(record, "type")
        text = entries.text_of(decode_parts(record.get("content")))
        match kind:
            case "gemini":
                yield self._decode_reply(record, version, is_copy=is_copy), ""
                yield from self._decode_calls(record)
            case "user":
                yield from ((event, "") for event in self._decode_user(record))
            case "info" | "warning":
                yield entries.ClientNote(kind, text), ""
            case "error":
                yield entries.ApiError(text), ""
            case _:
                yield entries.UnknownRecord(f"message/{kind}", tuple(sorted(record))), ""

    def _decode_reply(
        self, record: dict[str, Any], version: int, *, is_copy: bool
    ) -> entries.AssistantReply:
        tokens = object_field(record, "tokens")
        usage, model = decode_usage(tokens, TOKEN_NAMES), text_field(record, "model")
        self._context_tokens = usage.total_tokens or self._context_tokens
        words = () if version else (*_decode_thoughts(record), *decode_parts(record.get("content")))
        blocks = (*words, *map(decode_call, objects_field(record, "toolCalls")))
        known = self._calls
        new = [one for one in blocks if not isinstance(one, entries.ToolUse) or one.id not in known]
        self._calls.update(block.id for block in new if isinstance(block, entries.ToolUse))
        return entries.AssistantReply(
            message_id=text_field(record, "id"),
            model=model,
            content=tuple(new),
            **asdict(usage),
            # The client writes messages of its own into a history that it shortened.
            is_synthetic=is_copy and not (model or tokens),
            quality=UsageQuality.EXACT if usage else UsageQuality.MISSING,
        )

    def _decode_calls(self, record: dict[str, Any]) -> Iterator[tuple[entries.ToolResult, str]]:
        for call in objects_field(record, "toolCalls"):
            name, subagent = text_field(call, "id"), text_field(call, "agentId")
            if call.get("result") is None or name in self._results:
                continue
            self._results.add(name)
            if subagent:
                agent_type = text_field(object_field(call, "args"), "agent_name")
                self._subagents[subagent] = entries.SubagentInfo(
                    subagent, agent_type, tool_call_id=name
                )
            text = entries.text_of(decode_parts(call["result"]))
            found = next(decode_results(call["result"]), FunctionResult(name, text))
            result = make_result(found._replace(call_id=name), text_field(call, "status"))
            yield replace(result, subagent=subagent), text_field(call, "timestamp")

    def _decode_user(self, record: dict[str, Any]) -> Iterator[entries.Event]:
        blocks = decode_parts(record.get("displayContent") or record.get("content"))
        text = entries.text_of(blocks).lstrip()
        if text.startswith("<session_context>"):
            yield entries.ContextInjected("session_context", text)
        elif "<state_snapshot>" in text:
            yield entries.ContextCompacted("", self._context_tokens, 0)
            yield entries.UserPrompt(entries.PromptKind.SUMMARY, blocks)
        elif blocks:
            kinds = (kind for start, kind in _PROMPTS.items() if text.startswith(start))
            yield entries.UserPrompt(next(kinds, entries.PromptKind.HUMAN), blocks)
        else:
            yield entries.Ignored("message/user")
        for result in decode_results(record.get("content")):
            if result.call_id not in self._results:
                self._results.add(result.call_id)
                yield make_result(result)


def _decode_thoughts(record: dict[str, Any]) -> list[entries.Thinking]:
    thoughts = [
        (text_field(thought, "subject"), text_field(thought, "description"))
        for thought in objects_field(record, "thoughts")
    ]
    lines = [f"**{subject}** {text}" if subject else text for subject, text in thoughts]
    return [entries.Thinking("\n".join(lines))] if any(lines) else []


class _CountedMessage(Struct, gc=False):
    """A message without its content; a whole session on one line has `messages`."""

    id: str = ""
    type: str = ""
    timestamp: str = ""
    model: str | None = None
    tokens: dict[str, Any] | None = None
    messages: list["_CountedMessage"] = []


_decode = msgspec.json.Decoder(_CountedMessage).decode


class GeminiCounter:
    """Counts the responses of one file."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._project = files.read_project_root(file)
        self._counted: set[str] = set()

    def count(self, line: bytes) -> Iterator[UsageLine]:
        """Yield each response; one without counts never replaces the same one with counts."""
        record = _decode(line)
        for message in (record, *record.messages):
            usage = decode_usage(message.tokens, TOKEN_NAMES)
            has_counts = bool(usage)  # zeros are those of a server that counts nothing
            if message.type != "gemini" or not (has_counts or message.id not in self._counted):
                continue
            self._counted.update([message.id] * has_counts)
            response = ModelResponse(
                message.id,
                self._file.session,
                message.model or "",
                usage,
                parse_timestamp_ms(message.timestamp) or 0,
                self._project,
                subagent=self._file.subagent,
                quality=UsageQuality.EXACT if has_counts else UsageQuality.MISSING,
            )
            yield response_to_row(response)


class GeminiSource(LineSource):
    """The reader of Gemini CLI's sessions."""

    def files_beside(self, file: SessionFile) -> dict[str, str]:
        """Return the file that names the project's directory."""
        return files.find_project_root(file)


_FIDELITY = Fidelity(client_totals=False, system_prompt=False, permissions=False)
SOURCE = GeminiSource(
    LineFormat(files.AGENT_NAME, _FIDELITY, GeminiDecoder, GeminiCounter, (b'"gemini"',)),
    files.session_files,
)
