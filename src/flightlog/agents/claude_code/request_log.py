"""The requests that the client sent: its log in transcripts since 2.1.300, and captured ones.

A request refers to an earlier one for the messages it repeats (`base`, `keep`, `tail`), to its
system prompt and tools by a hash (`api-request-shape`), and to new messages by hashes. Only
messages that the conversation's records do not hold are written out (`api-request-blob`). A
captured request is whole, and is brought into the same form.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from flightlog.agents.claude_code.decode import decode_record
from flightlog.agents.claude_code.rebuild import (
    hash_json,
    take_cache_marks,
    with_block_content,
    without_billing_header,
)
from flightlog.agents.dialects.anthropic_messages import decode_response
from flightlog.model.entries import ContextInjected
from flightlog.model.errors import UNREADABLE, FlightlogError
from flightlog.model.exchange import (
    Exchange,
    LoggedBlock,
    LoggedMessage,
    LoggedRequest,
    RequestShape,
    ToolShape,
)
from flightlog.model.session import ContextItem, SessionFile, ThreadContext
from flightlog.sources.foreign_json import (
    list_field,
    object_field,
    objects_field,
    parse_timestamp_ms,
    text_field,
)
from flightlog.store.recordings.reader import raw_lines

if TYPE_CHECKING:
    from flightlog.store.exchanges import ExchangeStore

_REQUESTS = (b'"requestRef"', b'"api-request')
_ATTACHMENT = b'"attachment"'
_LOST_MAX = 10_000  # messages of a lost base; a damaged count must not fill the memory
_DEFAULT_TTL = "5m"  # of a cache mark that names none


class _LogMessage(Struct, gc=False):
    id: str = ""


class _LogLine(Struct, gc=False):
    type: str = ""
    id: str = ""
    agentId: str | None = ""  # noqa: N815 - the client's own names
    requestRef: str | None = ""  # noqa: N815
    shapeHash: str | None = ""  # noqa: N815
    timestamp: str | None = ""
    base: str | None = ""
    keep: int | None = 0
    tail: list[str] | None = None
    params: dict[str, Any] | None = None
    cacheControl: list[dict[str, Any]] | None = None  # noqa: N815
    hash: str = ""
    shape: Raw = Raw(b"{}")
    message: Raw = Raw(b"{}")


class _SentBody(Struct, gc=False):
    """The body of a captured request; its parameters are those that the client logs too."""

    model: str = ""
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    system: Any = ()
    tools: Any = ()
    messages: list[Raw] = []


_decode_body = msgspec.json.Decoder(_SentBody).decode
_decode_line = msgspec.json.Decoder(_LogLine).decode
_decode_message = msgspec.json.Decoder(_LogMessage).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def read_logged_requests(files: Sequence[SessionFile]) -> Iterator[LoggedRequest]:
    """Yield the requests that the files of one session log, thread by thread, by time."""
    log = RequestLog()
    for file in files:
        for line in raw_lines(file.path, 0):
            log.add_line(line, file.subagent)
    yield from log.resolve_requests()


def read_captured_requests(
    exchanges: "ExchangeStore", replies: Mapping[str, tuple[str, str]]
) -> Iterator[LoggedRequest]:
    """Yield the captured requests of one session, thread by thread, by time.

    `replies` has the thread and the message of each response in the transcript, by the ids of the
    request and of the message. Other calls (titles, retries) are left out, and damaged bodies.
    """
    log = RequestLog()
    for exchange in exchanges.read_exchanges() if replies else ():
        with suppress(FlightlogError, *UNREADABLE):
            sent = exchange.response.request_id if exchange.response else ""
            if sent not in replies:
                message = decode_response(exchanges.response_body(exchange)).message
                sent = str((message or {}).get("id"))
            if sent in replies:
                log.add_exchange(exchange, exchanges.sent_body(exchange), *replies[sent])
    yield from log.resolve_requests()


class RequestLog:
    """The logged requests of one session, and what they refer to."""

    def __init__(self) -> None:
        self._shapes: dict[str, dict[str, Any]] = {}
        self._messages = {"": LoggedMessage("")}
        self._lines: dict[str, tuple[str, _LogLine]] = {}
        self.replies: dict[str, dict[str, str]] = defaultdict(dict)  # message: request, by thread
        self._answers: dict[str, dict[str, None]] = defaultdict(dict)
        self._captured: dict[bytes, tuple[str, list[Any]]] = {}  # hash and marks of a message
        self._last: dict[str, tuple[str, list[str]]] = {}  # captured request and hashes, by thread

    def add_line(self, data: bytes, subagent: str) -> None:
        """Add a line of a transcript; a damaged one, or one without a request, adds nothing."""
        if any(needle in data for needle in _REQUESTS):
            with suppress(*UNREADABLE):
                self._add(_decode_line(data), subagent)

    def add_exchange(self, exchange: Exchange, data: bytes, thread: str, message: str) -> None:
        """Add a captured request of a thread, and the message that answered it."""
        body = _decode_body(data)
        marks: list[Any] = []
        shape = {"system": without_billing_header(body.system), "tools": body.tools}
        shape = take_cache_marks(shape, marks)
        name, request = hash_json(shape), f"exchange {exchange.index}"
        self._shapes.setdefault(name, shape)
        hashes = [self._add_message(bytes(raw), marks) for raw in body.messages]
        base, before = self._last.get(thread, ("", []))
        keep = _count_equal(before, hashes)
        betas = exchange.request.headers.get("anthropic-beta", "").replace(" ", "").split(",")
        params = {"model": body.model, "thinking": body.thinking or {}}
        params |= {"output_config": body.output_config or {}, "betas": list(filter(None, betas))}
        line = _LogLine("api-request", request, shapeHash=name, timestamp=exchange.timestamp)
        line.base, line.keep, line.tail, line.params = base, keep, hashes[keep:], params
        line.cacheControl = [{"value": mark} for mark in marks]
        self._lines[request] = (thread, line)
        self._answers[request][message] = None
        self._last[thread] = (request, hashes)

    def _add_message(self, raw: bytes, marks: list[Any]) -> str:
        """Return the hash of a captured message; add its cache marks to `marks`."""
        if raw not in self._captured:
            own: list[Any] = []
            message = take_cache_marks(with_block_content(_decode_object(raw)), own)
            name = hash_json(message)
            self._captured[raw] = (name, own)
            self._messages.setdefault(name, _read_message(name, message))
        name, own = self._captured[raw]
        marks += own
        return name

    def resolve_requests(self) -> Iterator[LoggedRequest]:
        """Yield the requests of each thread by time, and first those of copied replies."""
        for thread, replies in self.replies.items():
            for message in self.copied_messages(thread):
                yield LoggedRequest(
                    id=replies[message], thread=thread, message_ids=(message,), is_copied=True
                )
        threads: dict[str, list[_LogLine]] = defaultdict(list)
        for thread, line in self._lines.values():
            threads[thread].append(line)
        shapes = {name: _read_shape(name, shape) for name, shape in self._shapes.items()}
        for thread, lines in threads.items():
            lines.sort(key=lambda line: line.timestamp or "")
            for request in self._resolve_thread(thread, lines):
                yield replace(request, shape=shapes.get(request.shape_id))

    def copied_messages(self, thread: str) -> frozenset[str]:
        """Return the replies in a thread to requests of another session, which no file here logs."""
        # A fork logs no request in its file; its responses are its own.
        if not self._lines or thread not in {"", *(name for name, _ in self._lines.values())}:
            return frozenset()
        replies = self.replies[thread]
        return frozenset(message for message, sent in replies.items() if sent not in self._lines)

    def sent_shapes(self, thread: str) -> list[dict[str, Any]]:
        """Return the system prompts and tools that the requests of a thread had, each once."""
        lines = (self._lines.get(sent) for sent in self.replies[thread].values())
        names = dict.fromkeys(line[1].shapeHash or "" for line in lines if line)
        return [self._shapes[name] for name in names if name in self._shapes]

    def _add(self, line: _LogLine, subagent: str) -> None:
        thread = subagent or line.agentId or ""
        match line.type:
            case "api-request":
                self._lines.setdefault(line.id, (thread, line))
            case "api-request-shape" if line.shapeHash and line.shapeHash not in self._shapes:
                self._shapes[line.shapeHash] = _decode_object(line.shape)
            case "api-request-blob" if line.hash not in self._messages:
                self._messages[line.hash] = _read_message(line.hash, _decode_object(line.message))
            case "assistant" if line.requestRef:
                message = _decode_message(line.message).id
                self.replies[thread][message] = line.requestRef
                self._answers[line.requestRef][message] = None
            case _:
                pass

    def _resolve_thread(self, thread: str, lines: Sequence[_LogLine]) -> Iterator[LoggedRequest]:
        newest, newest_list = "", list[str]()  # the request read last, answered or not
        answered: list[str] = []
        for line in lines:
            known = 0
            if line.base and line.base == newest:
                keep = max(line.keep or 0, 0)
                hashes = newest_list[:keep] + (line.tail or [])
                # The client says how much is the same, so only the rest is compared.
                known = min(keep, len(newest_list)) if newest_list is answered else 0
            else:
                hashes = self._list_messages(line)
            shared = known + _count_equal(answered[known:], hashes[known:])
            new = (self._messages.get(name) or LoggedMessage(name) for name in hashes[shared:])
            yield replace(
                self._describe_request(line, thread),
                kept_messages=shared,
                previous_messages=len(answered),
                new_messages=tuple(new),
            )
            newest, newest_list = line.id, hashes
            answered = hashes if line.id in self._answers else answered

    def _list_messages(self, line: _LogLine) -> list[str]:
        """Return the hashes of all messages of a request; those of a lost base are empty."""
        parts: list[list[str]] = []
        seen: set[str] = set()
        wanted, at = sys.maxsize, line
        while at.id not in seen:
            seen.add(at.id)
            keep = min(max(at.keep or 0, 0), wanted)
            parts.append((at.tail or [])[: wanted - keep])
            wanted = keep
            _, at = self._lines.get(at.base or "", ("", at))
        return [*[""] * min(wanted, _LOST_MAX), *chain.from_iterable(reversed(parts))]

    def _describe_request(self, line: _LogLine, thread: str) -> LoggedRequest:
        params = line.params or {}
        thinking = object_field(params, "thinking")
        marks = [object_field(mark, "value") for mark in line.cacheControl or ()]
        return LoggedRequest(
            id=line.id,
            thread=thread,
            at_ms=parse_timestamp_ms(line.timestamp or ""),
            message_ids=tuple(self._answers.get(line.id, ())),
            has_base=bool(line.base),
            model=text_field(params, "model"),
            effort=text_field(object_field(params, "output_config"), "effort"),
            thinking_mode=text_field(thinking, "type"),
            thinking_display=text_field(thinking, "display"),
            betas=tuple(
                sorted(name for name in list_field(params, "betas") if isinstance(name, str))
            ),
            cache_marks=tuple(
                sorted({msgspec.json.encode(mark, order="sorted").decode() for mark in marks})
            ),
            cache_ttls=tuple(sorted({text_field(mark, "ttl") or _DEFAULT_TTL for mark in marks})),
            shape_id=line.shapeHash or "",
        )


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many items both lists begin with; an unknown item is like any other."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] or not all(pair), pairs))


def _read_shape(name: str, shape: dict[str, Any]) -> RequestShape:
    tools = {}
    for tool in objects_field(shape, "tools"):
        definition = {key: value for key, value in tool.items() if key != "defer_loading"}
        size, is_deferred = len(msgspec.json.encode(definition)), tool.get("defer_loading") is True
        tools[text_field(tool, "name")] = ToolShape(hash_json(definition), size, is_deferred)
    return RequestShape(name, _system_texts(shape), tools)


def _read_message(name: str, message: dict[str, Any]) -> LoggedMessage:
    blocks = objects_field(with_block_content(message), "content")
    return LoggedMessage(name, text_field(message, "role"), tuple(map(_read_block, blocks)))


def _read_block(block: dict[str, Any]) -> LoggedBlock:
    text = text_field(block, "text") or text_field(block, "thinking")
    chars = len(text) or len(msgspec.json.encode(block.get("content", block.get("input", ""))))
    return LoggedBlock(text_field(block, "type"), chars)


def _system_texts(shape: dict[str, Any]) -> tuple[str, ...]:
    text = text_field(shape, "system")
    blocks = (text_field(block, "text") for block in objects_field(shape, "system"))
    return (text,) if text else tuple(filter(None, blocks))


class ContextBuilder:
    """What the models of a session's threads were given: requests and attachments."""

    def __init__(self) -> None:
        self.requests = RequestLog()
        self.context: dict[str, dict[str, ContextItem]] = defaultdict(dict)

    def add_line(self, line: bytes, subagent: str) -> None:
        """Add a line of a transcript."""
        if _ATTACHMENT in line:
            self._add_attachment(line, subagent)
        self.requests.add_line(line, subagent)

    def build(self, subagent: str) -> ThreadContext:
        """Return what the model of one thread was given."""
        shapes = self.requests.sent_shapes(subagent)
        listed = (tool for shape in shapes for tool in objects_field(shape, "tools"))
        tools = {str(tool["name"]): tool for tool in listed if tool.get("name")}
        prompts = ("\n\n".join(_system_texts(shape)) for shape in shapes)
        context = sorted(self.context[subagent].values(), key=lambda item: item.at_ms or 0)
        copied = self.requests.copied_messages(subagent)
        prompt = next(filter(None, prompts), "")
        return ThreadContext(tuple(tools.values()), prompt, copied, tuple(context))

    def _add_attachment(self, line: bytes, subagent: str) -> None:
        for entry in decode_record(line) or ():
            event = entry.event
            if isinstance(event, ContextInjected) and event.text:
                items = self.context[subagent or entry.subagent]
                items[entry.key] = ContextItem(event.kind, event.text, entry.at_ms)
