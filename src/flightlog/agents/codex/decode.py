"""Decode the lines of a Codex rollout into entries of the common model.

A line is `{timestamp, type, payload}`. What the model said and what tools returned are
`response_item`s; prompts, exit codes and changed files are events, in two forms: events of their
own up to 0.145 (`legacy`), `item_completed` since (`paginated`). `codex migrate-rollouts` rewrites
the first form as the second, so keys come from what both have.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict, replace

from flightlog.agents.codex import usage as counting
from flightlog.agents.codex.files import AGENT_NAME, TITLES, find_home, find_session_files
from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.model import entries
from flightlog.model.errors import UNREADABLE
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
from flightlog.store.recordings.reader import raw_lines

# What clients from 0.140 to 0.166 write and no view shows; everything else is shown as unknown.
_IGNORED = {
    "": "inter_agent_communication_metadata security_risk_score token_usage_record world_state",
    "response_item": "compaction compaction_summary context_compaction ghost_snapshot",
    "event_msg": "agent_message agent_reasoning agent_reasoning_raw_content context_compacted "
    "entered_review_mode exited_review_mode image_generation_end task_complete task_started "
    "thread_goal_updated thread_settings_applied token_count view_image_tool_call web_search_end",
    "item_completed": "AgentMessage ContextCompaction DynamicToolCall EnteredReviewMode "
    "ExitedReviewMode Extension ImageGeneration ImageView Reasoning WebSearch",
}
_ACTIVITY = ("kind", "agent_thread_id")  # of a subagent
# Events about a tool call, which come before its result.
_CALL_EVENTS = tuple(
    "exec_command_end patch_apply_end mcp_tool_call_end sub_agent_activity CommandExecution "
    "FileChange McpToolCall CollabAgentToolCall SubAgentActivity".split()
)
# What they say of it; its output, which may be long, comes again in the result.
_FACTS = {"exit_code", "status", "success", "receiver_thread_ids", "tool", *_ACTIVITY}
_CALLS = ("custom_tool_call", "function_call", "local_shell_call", "tool_search_call")
_HOSTED_CALLS = ("image_generation_call", "web_search_call")  # they have no record of a result
_RESULTS = ("custom_tool_call_output", "function_call_output", "tool_search_output")
_TRACKED = ("event_msg", "session_meta", "token_usage_record", "turn_context")
_SHOWN = (
    entries.AssistantReply,
    entries.ToolResult,
    entries.UserPrompt,
    entries.ApiError,
    entries.ClientNote,
    entries.ContextCompacted,
)
# How the output of a shell tool begins: `Exit code: 1`, since 0.60 after an id and the wall time.
_EXIT_CODE = re.compile(
    r"\A(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?(?:Output:\n)?"
    r"(?:Process exited with code|Exit code:) (-?\d{1,6})\n"
)
# How a person's refusal is reported to the model, for each of the shell tools.
_REJECTED = re.compile(
    r"(?s)(?:exec command|patch) rejected by user"
    r'|exec_command failed.*CreateProcess \{ message: "Rejected\(.*\)" \}'
)
_FAILED = frozenset({"failed", "declined"})


class RolloutDecoder:
    """Decodes the lines of one rollout; `agents.line_source.LineDecoder` describes it."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._tracker = counting.ResponseTracker()
        self._context = entries.RecordContext()
        self._info: entries.SubagentInfo | None = None
        self._effort, self._sizes = "", (0, 0)
        self._last_uuid, self._last_item, self._thread = "", ("", 0), ""
        self._before_prompts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = defaultdict(dict)

    def decode(self, line: bytes) -> Sequence[entries.Entry] | None:
        """Return the entries of a line, or None if it is no record."""
        record = parse_object(line)
        if record is None or not isinstance(record.get("payload"), dict):
            return None
        kind, stamp = text_field(record, "type"), text_field(record, "timestamp")
        counted = self._follow_line(line) if kind in _TRACKED else None
        events = [counted] if counted else self._decode_record(kind, record["payload"])
        base = entries.Entry(
            entries.Ignored(kind), "", at_ms=parse_timestamp_ms(stamp), context=self._context
        )
        return [self._name_entry(replace(base, event=event), stamp, line) for event in events]

    def subagents(self) -> Iterable[entries.SubagentInfo]:
        """Return what the first line says about a subagent."""
        return () if self._info is None else (self._info,)

    def _follow_line(self, line: bytes) -> entries.AssistantReply | None:
        """Return the counts of the response that `line` ends, if it does."""
        counted = None
        with suppress(*UNREADABLE):
            counted = self._tracker.follow_line(counting.decode_line(line))
        if counted is None:
            return None
        message_id, response_id, usage = counted
        self._sizes = (self._sizes[1], usage.total_tokens)
        return entries.AssistantReply(
            message_id, self._tracker.model, (), **asdict(usage), request_id=response_id
        )

    def _name_entry(self, entry: entries.Entry, stamp: str, line: bytes) -> entries.Entry:
        """Give an entry its name and, if it is shown, its place after the one before."""
        match entry.event:
            case entries.AssistantReply(message_id=name, content=content):
                number = self._last_item[1] + 1 if self._last_item[0] == name else 0
                self._last_item = (name, number)
                uuid = f"{name}.{number}" if content else name
            case entries.ToolResult(tool_call_id=call_id):
                uuid = f"{call_id}.result"
            case entries.UserPrompt(kind=kind, content=content):
                text = f"{stamp}{kind.value}{entries.text_of(content)}"
                uuid = _hash_text(text.encode("utf-8", "replace"))
                if kind is entries.PromptKind.HUMAN:
                    self._before_prompts.append(self._last_uuid)
            case _:
                # The first line has the name of the thread: the index of titles refers to it.
                thread, self._thread = self._thread, ""
                uuid = thread or _hash_text(line.strip())
        entry = replace(entry, uuid=uuid, key=f"{uuid}:0")
        if not isinstance(entry.event, _SHOWN):
            return entry
        parent, self._last_uuid = self._last_uuid, uuid
        return replace(entry, parent_uuid=parent)

    def _decode_record(self, kind: str, payload: dict[str, Any]) -> list[entries.Event]:
        event: entries.Event = entries.Ignored(kind)
        match kind:
            case "response_item":
                return self._decode_item(payload)
            case "event_msg":
                event = self._decode_event(payload)
            case "session_meta":
                event = self._decode_meta(payload)
            case "turn_context":
                mode = object_field(object_field(payload, "collaboration_mode"), "settings")
                self._effort = text_field(payload, "effort") or text_field(mode, "reasoning_effort")
                cwd = text_field(payload, "cwd") or self._context.cwd
                self._context = replace(self._context, cwd=cwd)
            case "compacted":
                is_between = self._last_item[0].startswith(f"{self._tracker.turn}.")
                # The last response is the summary; that before it had the whole context.
                event = entries.ContextCompacted("auto" if is_between else "", max(self._sizes), 0)
            case "inter_agent_communication":
                event = entries.UserPrompt(entries.PromptKind.CLIENT, _content_blocks(payload))
            case _:
                event = _make_unshown("", kind, payload)
        return [event]

    def _decode_meta(self, meta: dict[str, Any]) -> entries.Event:
        if self._context.version:
            return entries.Ignored("session_meta")  # of the thread that this one is a copy of
        branch = text_field(object_field(meta, "git"), "branch")
        version, program = text_field(meta, "cli_version"), text_field(meta, "originator")
        self._context = entries.RecordContext(text_field(meta, "cwd"), branch, version, program)
        self._thread = text_field(meta, "id")
        if self._file.subagent:
            source = object_field(meta, "source")
            spawn = object_field(object_field(source, "subagent"), "thread_spawn")
            role = text_field(spawn, "agent_role") or text_field(source, "subagent")
            name = text_field(spawn, "agent_nickname")
            self._info = entries.SubagentInfo(self._file.subagent, role, name)
        parent = text_field(meta, "forked_from_id")
        if not parent:
            return entries.Ignored("session_meta")
        return entries.ClientNote("fork", f"fork of {parent}")

    def _decode_item(self, item: dict[str, Any]) -> list[entries.Event]:
        kind = text_field(item, "type")
        if kind in _RESULTS:
            return [self._decode_result(item)]
        if kind in {"message", "agent_message"} and item.get("role") != "assistant":
            # Prompts are events as well; this is the context that the client adds.
            text = entries.text_of(_content_blocks(item))
            return [entries.ContextInjected(text_field(item, "role") or kind, text)]
        content = _reply_blocks(kind, item)
        if not content:
            return [_make_unshown("response_item", kind, item)]
        reply = entries.AssistantReply(
            self._tracker.message_id,
            self._tracker.model,
            content,
            effort=self._effort,
            quality=UsageQuality.MISSING,  # the counts come in a later line
        )
        if kind not in _HOSTED_CALLS:
            return [reply]
        failed = text_field(item, "status") in _FAILED
        return [reply, entries.ToolResult(_call_id(item), (), is_error=failed)]

    def _decode_result(self, item: dict[str, Any]) -> entries.ToolResult:
        facts, output = self._calls.pop(_call_id(item), {}), item.get("output", item.get("tools"))
        inner: dict[str, Any] = {}
        if isinstance(output, str) and output.startswith("{"):
            inner = parse_object(output.encode("utf-8", "replace")) or {}
        if isinstance(inner.get("output"), str):
            # Up to 0.60: {"output": "…", "metadata": {"exit_code": 1, "duration_seconds": 0.1}}
            facts, output = {**object_field(inner, "metadata"), **facts}, inner["output"]
        content = _content_blocks(output)
        found = _EXIT_CODE.match(entries.text_of(content))
        code = facts.get("exit_code", int(found[1]) if found else None)
        status = text_field(facts, "status")
        denied = status == "declined" or _REJECTED.fullmatch(entries.text_of(content)) is not None
        failed = status in _FAILED or facts.get("success") is False
        return entries.ToolResult(
            _call_id(item),
            content,
            is_error=bool(code) or failed or denied,
            denial_reason="declined" if denied else "",
            subagent=_started_subagent(facts) or text_field(inner, "agent_id"),
            detail=None if code is None else {"exitCode": code},
        )

    def _decode_event(self, event: dict[str, Any]) -> entries.Event:
        kind, group = text_field(event, "type"), "event_msg"
        if kind == "item_completed":
            event, group = object_field(event, "item"), kind
            kind = text_field(event, "type")
        if kind in _CALL_EVENTS:
            facts = {name: event[name] for name in _FACTS & event.keys()}
            self._calls[_call_id(event)].update(facts)
            return entries.Ignored(kind)
        if kind == "thread_rolled_back":
            turns = int_field(event, "num_turns")
            if 0 < turns <= len(self._before_prompts):
                # The next prompt follows the one before those that were taken back.
                self._last_uuid = self._before_prompts[-turns]
                del self._before_prompts[-turns:]
            return entries.Ignored(kind)
        return _plain_event(kind, event) or _make_unshown(group, kind, event)


class CodexSource(LineSource):
    """Reads rollouts of Codex."""

    def titles(self, files: Iterable[SessionFile]) -> Iterator[entries.Entry]:
        """Yield the names that people gave to threads, which an index beside the rollouts holds."""
        for home in {find_home(file) for file in files}:
            for line in raw_lines(f"{home}/{TITLES}", 0) if home else ():
                record = parse_object(line) or {}
                thread, at = text_field(record, "id"), text_field(record, "updated_at")
                event = entries.SessionSummarized(thread, text_field(record, "thread_name"))
                at_ms, uuid = parse_timestamp_ms(at), f"{thread}.{at}"
                yield entries.Entry(event, thread, uuid, "", at_ms, at_ms or 0, key=f"{uuid}:0")

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Return the system prompt of each thread, which its first line holds."""
        contexts = {}
        for file in files:
            record = parse_object(next(raw_lines(file.path, 0), b"")) or {}
            prompt = object_field(object_field(record, "payload"), "base_instructions")
            if text := text_field(prompt, "text"):
                contexts[file.subagent] = ThreadContext(system=text)
        return contexts


_FIDELITY = Fidelity(client_totals=False)
_NEEDLES = (counting.NEEDLES, counting.CONTEXT_NEEDLES)
SOURCE = CodexSource(
    LineFormat(AGENT_NAME, _FIDELITY, RolloutDecoder, counting.RolloutCounter, *_NEEDLES),
    find_session_files,
)


def _hash_text(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _make_unshown(group: str, kind: str, payload: dict[str, Any]) -> entries.Event:
    name = f"{group}/{kind}" if group else kind
    is_known = kind in _IGNORED[group].split()
    return (
        entries.Ignored(name) if is_known else entries.UnknownRecord(name, tuple(sorted(payload)))
    )


def _plain_event(kind: str, event: dict[str, Any]) -> entries.Event | None:
    """Return the event of a kind that needs nothing from other lines."""
    match kind:
        case "user_message" | "UserMessage":
            images = map(_image_block, map(str, list_field(event, "images")))
            return entries.UserPrompt(entries.PromptKind.HUMAN, (*_content_blocks(event), *images))
        case "HookPrompt" | "turn_aborted":
            is_hook, reason = kind == "HookPrompt", entries.Text(text_field(event, "reason"))
            parts = [part for part in list_field(event, "fragments") if isinstance(part, dict)]
            texts = tuple(entries.Text(text_field(part, "text")) for part in parts) or (reason,)
            return entries.UserPrompt(
                entries.PromptKind.HOOK if is_hook else entries.PromptKind.INTERRUPTION, texts
            )
        case "thread_name_updated":
            return entries.SessionTitled(text_field(event, "thread_name"), is_user_title=True)
        case "Plan":
            return entries.ClientNote("plan", text_field(event, "text"))
        case "error" | "stream_error" | "task_complete":
            if text := text_field(object_field(event, "error") or event, "message"):
                return entries.ApiError(text)
    return None


def _started_subagent(facts: dict[str, Any]) -> str:
    """Return the thread that a call started, as the events about the call name it."""
    threads = [thread for thread in list_field(facts, "receiver_thread_ids") if thread]
    if text_field(facts, "tool") == "spawn_agent" and len(threads) == 1:
        return str(threads[0])
    return text_field(facts, "agent_thread_id") if facts.get("kind") == "started" else ""


def _call_id(item: dict[str, Any]) -> str:
    return text_field(item, "call_id") or text_field(item, "id")


def _reply_blocks(kind: str, item: dict[str, Any]) -> tuple[entries.Block, ...]:
    """Return the blocks of an item of a response; none for other items."""
    if kind == "message":
        return _content_blocks(item)
    if kind == "reasoning":
        parts = [*list_field(item, "summary"), *list_field(item, "content")]
        text = "\n\n".join(text_field(part, "text") for part in parts if isinstance(part, dict))
        return (entries.Thinking(text, is_withheld=not text),)
    if kind in (*_CALLS, *_HOSTED_CALLS):
        name = text_field(item, "name") or kind.removesuffix("_call")
        return (entries.ToolUse(_call_id(item), name, _call_input(item)),)
    return ()


def _call_input(item: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a call: an object, a text of JSON, or the text of a freeform tool."""
    given = item.get("arguments", item.get("action"))
    if isinstance(given, str):
        return parse_object(given.encode("utf-8", "replace")) or {"arguments": given}
    return given if isinstance(given, dict) else {"input": text_field(item, "input")}


def _content_blocks(content: Any) -> tuple[entries.Block, ...]:
    """Return the blocks of a message or a result: a text, a list of parts, or an object of either."""
    if isinstance(content, dict):
        content = content.get("content") or content.get("message") or content.get("content_items")
    if isinstance(content, str):
        return (entries.Text(content),)
    parts = content if isinstance(content, list) else []
    return tuple(_content_block(part) for part in parts if isinstance(part, dict))


def _content_block(part: dict[str, Any]) -> entries.Block:
    kind = text_field(part, "type")
    if kind in {"input_text", "output_text", "text", "Text"}:
        return entries.Text(text_field(part, "text"))
    if url := text_field(part, "image_url"):
        return _image_block(url)
    return entries.UnknownBlock(kind, text_field(part, "text") or text_field(part, "name"))


def _image_block(url: str) -> entries.Image:
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return entries.Image(media if data else "", len(data) * 3 // 4, data)
