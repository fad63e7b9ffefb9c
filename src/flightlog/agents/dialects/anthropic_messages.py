"""Classify requests, assemble event streams, decode usage. This module is a `Dialect`.

A stream that was cut gives the message so far, marked as incomplete.

A request is classified by its headers and body, never by counts or order: a subagent by a header
(with older clients by another prompt and fewer tools), a compaction by its instruction.

The usage scan decodes bytes straight into `UsageFields`; all other readers have a mapping and call
`decode_usage`. Both give the same counts.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from flightlog.model.errors import UNREADABLE
from flightlog.model.exchange import RequestOrigin
from flightlog.model.usage import Usage
from flightlog.sources.foreign_json import int_field, object_field, text_field

AGENT_ID = "x-claude-code-agent-id"
SESSION_ID = "x-claude-code-session-id"
REQUEST_HEADERS = (
    *"accept accept-encoding content-encoding content-length content-type user-agent".split(),
    *"anthropic-beta anthropic-version anthropic-dangerous-direct-browser-access".split(),
    *"x-app x-client-request-id".split(),
    AGENT_ID,
    SESSION_ID,
)
RESPONSE_HEADERS = tuple(
    "content-encoding content-length content-type date request-id retry-after x-should-retry "
    "transfer-encoding".split()
)
_PREFIXES = ("x-stainless-", "anthropic-ratelimit-")
_BILLING = "x-anthropic-billing-header"
_IS_SUBAGENT = "cc_is_subagent=true"
_COMPACTION = (
    "CRITICAL: Respond with TEXT ONLY",
    "Your task is to create a detailed summary of the conversation so far",
)
_BLOCK_END = b"content_block_stop"
_SHORT_TOKENS = 1024  # side calls (titles, topics) allow at most this much output
_DELEGATION_TOOLS = frozenset({"Agent", "Task"})
Count = Annotated[int, Meta(ge=0, lt=2**53)]


class AssistantMessage(Struct, frozen=True):
    """A response: the message, whether it is complete, and the error event if there was one."""

    message: dict[str, Any] | None
    is_whole: bool
    error: dict[str, Any] | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts of the response, empty if it has none."""
        return object_field(self.message or {}, "usage")


def iter_events(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an event stream, without comments and an incomplete last event."""
    lines: list[bytes] = []
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            event = _decode_object(b"\n".join(lines))
            lines = []
            if event is not None:
                yield event


def decode_response(data: bytes) -> AssistantMessage:
    """Decode a response body: an event stream, or one JSON object."""
    if data.lstrip()[:1] == b"{":
        message = _decode_object(data)
        if message is None or message.get("type") == "error":
            return AssistantMessage(None, is_whole=message is not None, error=message)
        return AssistantMessage(message, is_whole=True)
    assembler = _MessageAssembler()
    for event in iter_events(data):
        assembler.add_event(event)
    return assembler.build_message()


class _MessageAssembler:
    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._parts: dict[int, dict[str, list[str]]] = {}
        self._error: dict[str, Any] | None = None
        self._stopped = False

    def add_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message = dict(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = dict(block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                self._add_delta(index, delta)
            case {"type": "message_delta"}:
                self._merge_message_delta(event)
            case {"type": "message_stop"}:
                self._stopped = True
            case {"type": "error"}:
                self._error = event
            case _:
                pass

    def build_message(self) -> AssistantMessage:
        if self._message is None:
            return AssistantMessage(None, is_whole=False, error=self._error)
        parts, blocks = self._parts, sorted(self._blocks.items())
        content = [_join_block(block, parts.get(index, {})) for index, block in blocks]
        message = {**self._message, "content": content}
        return AssistantMessage(message, is_whole=self._stopped, error=self._error)

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        parts = self._parts.setdefault(index, {})
        for name in ("text", "thinking", "signature", "partial_json"):
            if isinstance(text := delta.get(name), str):
                parts.setdefault(name, []).append(text)
        citation = delta.get("citation")
        if isinstance(citation, dict) and index in self._blocks:
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or []), citation]

    def _merge_message_delta(self, event: dict[str, Any]) -> None:
        if self._message is None:
            return
        delta, usage = event.get("delta"), event.get("usage")
        if isinstance(delta, dict):
            self._message |= delta
        if isinstance(usage, dict):
            self._message["usage"] = {**(self._message.get("usage") or {}), **usage}
        if "context_management" in event:
            self._message["context_management"] = event["context_management"]


def _join_block(block: dict[str, Any], parts: dict[str, list[str]]) -> dict[str, Any]:
    joined = dict(block)
    for name, texts in parts.items():
        text = "".join(texts)
        if name != "partial_json":
            joined[name] = str(block.get(name) or "") + text
            continue
        try:
            value = msgspec.json.decode(text) if text else {}
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = None
        # The input of a cut stream stays text.
        joined["input"] = {"partial_json": text} if value is None else value
    return joined


def _decode_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


class FirstBlock:
    """Finds the end of the first block of a response that comes in chunks.

    Until then a client only shows the response: it runs a tool when that tool's block is complete.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Read the response's headers: only the blocks of a plain event stream can be found."""
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._is_open = is_stream and "content-encoding" not in headers
        self._tail = b""

    def count_bytes(self, chunk: bytes) -> int:
        """Return how many bytes of the next chunk come before the end of the block."""
        if not self._is_open:
            return 0
        text = self._tail + chunk  # the event's name may be split over two chunks
        end = text.find(_BLOCK_END)
        self._is_open = end < 0
        count = len(chunk) if end < 0 else max(0, end - len(self._tail))
        self._tail = text[1 - len(_BLOCK_END) :]
        return count


def render_events(response: AssistantMessage) -> bytes:
    """Return the response as an event stream, each block in one event."""
    message = response.message or {}
    start = {"type": "message_start", "message": {**message, "content": []}}
    events: list[dict[str, Any]] = [start]
    for index, block in enumerate(message.get("content") or []):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence") if name in message}
    events.append({"type": "message_delta", "delta": delta, "usage": response.usage})
    events += [response.error] if response.error else []
    events += [{"type": "message_stop"}] if response.is_whole else []
    return b"".join(
        b"event: "
        + str(event.get("type")).encode()
        + b"\ndata: "
        + msgspec.json.encode(event)
        + b"\n\n"
        for event in events
    )


class RequestInfo(Struct, frozen=True):
    """The class of a request, and the agent, session and model that it names."""

    agent_context: RequestOrigin
    agent_id: str = ""
    session_id: str = ""
    model: str = ""
    message_count: int = 0
    is_compaction: bool = False


class _Tool(Struct):
    name: str = ""


class _Format(Struct):
    format: msgspec.Raw | None = None


class _Body(Struct):
    model: str = ""
    messages: list[msgspec.Raw] = []
    system: msgspec.Raw = msgspec.Raw(b"null")
    tools: list[_Tool] = []
    output_config: _Format | None = None
    max_tokens: int = 0


# Made at import, on one thread: msgspec crashes if two threads use a new type at the same time.
_decode_body = msgspec.json.Decoder(_Body).decode


class RequestClassifier:
    """Classifies the requests of one session; its state is the main thread's prompt."""

    def __init__(self) -> None:
        """Start with an unknown main thread."""
        self._main_prompt: str | None = None
        self._delegates = False

    def classify_request(self, headers: Mapping[str, str], data: bytes) -> RequestInfo:
        """Classify one request; `headers` have lower-case names."""
        agent, session = headers.get(AGENT_ID, ""), headers.get(SESSION_ID, "")
        try:
            body = _decode_body(data)
        except UNREADABLE:
            origin = RequestOrigin.SUBAGENT if agent else RequestOrigin.SIDE
            return RequestInfo(origin, agent, session)
        system = _system_text(body.system)
        last = _last_text(body.messages)
        compacts = any(last.startswith(start) for start in _COMPACTION)
        if agent or _IS_SUBAGENT in system[:1000]:
            context = RequestOrigin.SUBAGENT
        else:
            context = self._classify_context(body, system, last)
        if compacts and context is RequestOrigin.SIDE:
            context = RequestOrigin.MAIN
        return RequestInfo(context, agent, session, body.model, len(body.messages), compacts)

    def _classify_context(self, body: _Body, system: str, last: str) -> RequestOrigin:
        if not body.tools:
            is_side = body.output_config is not None and body.output_config.format is not None
            is_side = is_side or 0 < body.max_tokens <= _SHORT_TOKENS or last == "Warmup"
            is_side = is_side or b'"cache_control"' not in bytes(body.system)
            return RequestOrigin.SIDE if is_side else RequestOrigin.MAIN
        # The billing line differs from request to request.
        prompt = system.partition("\n")[2] if system.startswith(_BILLING) else system
        delegates = any(tool.name in _DELEGATION_TOOLS for tool in body.tools)
        if self._main_prompt is None:
            self._main_prompt, self._delegates = prompt, delegates
        # A subagent of an old client: another prompt, and no tool to start further subagents.
        elif prompt != self._main_prompt and self._delegates and not delegates:
            return RequestOrigin.SUBAGENT
        return RequestOrigin.MAIN


def filter_headers(headers: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the headers in `allowed`, and rate limits and client versions, by lower-case name."""
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name in allowed or name.startswith(_PREFIXES)}


def _system_text(raw: msgspec.Raw) -> str:
    system = msgspec.json.decode(raw)
    if isinstance(system, str):
        return system
    return "\n".join(_block_text(block) for block in system) if isinstance(system, list) else ""


def _last_text(messages: list[msgspec.Raw]) -> str:
    """Return the last text of the last message."""
    message = msgspec.json.decode(messages[-1]) if messages else {}
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, str):
        return content
    return _block_text(content[-1]) if isinstance(content, list) and content else ""


def _block_text(block: Any) -> str:
    return text_field(block, "text") if isinstance(block, dict) else ""


class CacheCreationFields(Struct, frozen=True, gc=False):
    """The cache writes that live for an hour."""

    ephemeral_1h_input_tokens: Count | None = 0


class ServerToolFields(Struct, frozen=True, gc=False):
    """Calls of tools that the API runs itself."""

    web_search_requests: Count | None = 0


class UsageFields(Struct, frozen=True, gc=False):
    """The API's `usage` object; a client may write null for any field."""

    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation_input_tokens: Count | None = 0
    cache_creation: CacheCreationFields | None = None
    server_tool_use: ServerToolFields | None = None

    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Return the counts in the order of `Usage`.

        `cache_creation_input_tokens` includes the 1-hour writes; some clients count only those.
        """
        writes = self.cache_creation_input_tokens or 0
        hour = (self.cache_creation.ephemeral_1h_input_tokens or 0) if self.cache_creation else 0
        return (
            self.input_tokens or 0,
            self.output_tokens or 0,
            self.cache_read_input_tokens or 0,
            max(hour, writes),
            hour,
            (self.server_tool_use.web_search_requests or 0) if self.server_tool_use else 0,
        )

    def usage(self) -> Usage:
        """Return the tokens by price class."""
        return Usage(*self.counts())


def decode_usage(value: Any) -> Usage:
    """Return the tokens of a decoded `usage` object; a field of the wrong type counts zero."""
    fields = value if isinstance(value, dict) else {}
    return UsageFields(
        int_field(fields, "input_tokens"),
        int_field(fields, "output_tokens"),
        int_field(fields, "cache_read_input_tokens"),
        int_field(fields, "cache_creation_input_tokens"),
        CacheCreationFields(
            int_field(object_field(fields, "cache_creation"), "ephemeral_1h_input_tokens")
        ),
        ServerToolFields(int_field(object_field(fields, "server_tool_use"), "web_search_requests")),
    ).usage()
