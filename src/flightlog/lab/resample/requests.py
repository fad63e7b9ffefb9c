"""Read recorded requests, edit them, and build what is sent.

A person edits the request as JSON, or uses `set` and `drop_thinking`. Thinking blocks are signed by
the vendor: a block must stay as it was or be left out; any other edit of one is refused before
anything is sent.

What is sent is the recorded body without the fields that only its client needs (`stream`,
`context_management`, `metadata`), to the same path, with only the headers that change what the
model does. Reads the run and writes nothing.
"""

import copy
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import (
    AssistantMessage,
    decode_response,
    decode_usage,
)
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.resample import layout
from flightlog.lab.resample.samples import RequestEdit
from flightlog.lab.resample.state import SampleTarget
from flightlog.lab.run_session import ApiCall, calls_of
from flightlog.lab.store import RunStore
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.exchange import Exchange
from flightlog.store.exchanges import ExchangeStore, exchanges_of
from flightlog.usage.prices import price

THINKING = ("thinking", "redacted_thinking")
_PART = re.compile(r"-?\d+", re.ASCII)
_MISSING: Any = object()
Path = tuple[str | int, ...]
_DROPPED = ("stream", "context_management", "metadata")
_HEADERS = ("anthropic-version", "anthropic-beta")
_VERSION = "2023-06-01"  # the API requires this header; used if the recording has none


def parse_edited_request(text: str) -> dict[str, Any]:
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"the edited request is not JSON: {error}", hint="correct the line it names"
        ) from error
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise Invalid("the edited request has no messages", hint="start from --dump")
    return request


def find_edits(original: dict[str, Any], edited: dict[str, Any]) -> tuple[RequestEdit, ...]:
    """Return what an edit changed; raise Invalid if it changed nothing, or a thinking block."""
    _check_thinking(original, edited)
    edits = tuple(_iter_edits((), original, edited))
    if not edits:
        hint = "ask again as it was: flightlog lab resample RUN"
        raise Invalid("nothing was changed in the request", hint=hint)
    return edits


def replace_values(original: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Set values at paths such as `temperature` or `messages.-1.content.0.text`; None deletes."""
    edited = copy.deepcopy(dict(original))
    for path, value in values.items():
        _set_value(edited, path, value)
    return edited


def without_thinking(original: Mapping[str, Any]) -> dict[str, Any]:
    edited = copy.deepcopy(dict(original))
    for message in edited.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            message["content"] = [block for block in content if not _is_thinking(block)]
    return edited


def _check_thinking(original: dict[str, Any], edited: dict[str, Any]) -> None:
    """Raise Invalid unless each thinking block is one of the original's, in the same order."""
    signed = iter([block for _, block in _iter_thinking_blocks(original, ())])
    for path, block in _iter_thinking_blocks(edited, ()):
        if not any(block == original_block for original_block in signed):
            place = ".".join(map(str, path))
            hint = (
                "thinking is signed: keep each block as it was, or leave it out (--drop-thinking)"
            )
            raise Invalid(f"a thinking block was edited, added or moved: {place}", hint=hint)


def _iter_thinking_blocks(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if _is_thinking(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _iter_thinking_blocks(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iter_thinking_blocks(item, (*path, index))


def _is_thinking(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and (value.get("type") in THINKING)
        and ("thinking" in value or "data" in value)
    )


def _iter_edits(path: Path, one: Any, other: Any) -> Iterator[RequestEdit]:
    if isinstance(one, dict) and isinstance(other, dict) and not _is_thinking(one):
        for key in dict.fromkeys((*one, *other)):
            yield from _iter_edits((*path, key), one.get(key, _MISSING), other.get(key, _MISSING))
    elif isinstance(one, list) and isinstance(other, list):
        yield from _iter_list_edits(path, one, other)
    elif one is _MISSING or other is _MISSING or _format_value(one) != _format_value(other):
        original = None if one is _MISSING else one
        yield RequestEdit(path, original, None if other is _MISSING else other)


def _iter_list_edits(path: Path, one: Sequence[Any], other: Sequence[Any]) -> Iterator[RequestEdit]:
    """Match elements by content, so that removing one is a single edit."""
    matcher = difflib.SequenceMatcher(
        None, [_format_value(item) for item in one], [_format_value(item) for item in other], False
    )
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            continue
        both = min(j - i, m - k)
        for offset in range(both):
            yield from _iter_edits((*path, i + offset), one[i + offset], other[k + offset])
        yield from (RequestEdit((*path, index), one[index], None) for index in range(i + both, j))
        yield from (RequestEdit((*path, index), None, other[index]) for index in range(k + both, m))


def _format_value(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _set_value(edited: dict[str, Any], path: str, value: Any) -> None:
    parts: list[str | int] = [
        int(part) if _PART.fullmatch(part) else part for part in path.split(".")
    ]
    target: Any = edited
    try:
        for part in parts[:-1]:
            target = target[part]
        if isinstance(target, dict) and value is None:
            target.pop(parts[-1], None)
        else:
            target[int(parts[-1]) if isinstance(target, list) else parts[-1]] = value
    except (KeyError, IndexError, TypeError, ValueError):
        hint = "write it as in `messages.-1.content.0.text`; see the request with --dump"
        raise Invalid(f"the request has no such path: {path[:80]}", hint=hint) from None


class RequestListing(Struct, frozen=True):
    """One request in a list; turn 0 means it is not of the main thread."""

    request_index: int
    turn: int
    agent_context: str
    model: str
    message_count: int
    size_bytes: int
    stop_reason: str
    tools: tuple[str, ...]
    cost_usd: float | None
    samples: int
    variants: int


class SampleRequest(Struct, frozen=True):
    """What is sent for a target, without the key; its expected cost is the recorded answer's."""

    path: str
    headers: dict[str, str]
    body: bytes
    model: str
    expected_cost_usd: float | None
    is_scrubbed: bool = False


def list_session_requests(source: ReplaySource) -> list[RequestListing]:
    turns = {turn.request_index: turn.turn for turn in source.list_turns()}
    counts: Counter[tuple[int, bool]] = Counter()
    for session, request, variant, path in layout.iter_sample_dirs(source.run.path):
        if session == source.planned.session_dir:
            answers = sum(not is_error for _, is_error, _ in layout.iter_sample_files(path))
            counts[request, bool(variant)] += 1 if variant else answers
    exchanges = source.read.exchanges
    return [
        _build_listing(exchanges, call, turns.get(call.index, 0), counts)
        for call in calls_of(exchanges)
    ]


def request_of_turn(source: ReplaySource, turn: int) -> int:
    """Return the number of the request that a turn answered."""
    listed = next((candidate for candidate in source.list_turns() if candidate.turn == turn), None)
    if listed is None or not listed.request_index:
        what = "was not captured" if listed else "is not in this session"
        hint = "list the requests with --list-requests"
        raise NotFound(f"the request of turn {turn} {what}", hint=hint)
    return listed.request_index


def load_recorded_body(run: RunStore, session: str, request: int) -> dict[str, Any]:
    """Return a recorded request as it can be sent again."""
    exchanges, exchange = _find_exchange(run, session, request)
    return sendable_body(exchanges.sent_body(exchange))


def sendable_body(body: bytes) -> dict[str, Any]:
    """Return the part of a recorded body that is sent."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid("the recorded request is not JSON", hint="choose another request") from error
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise Invalid("the recorded request has no messages", hint="choose another request")
    return {name: value for name, value in request.items() if name not in _DROPPED}


def build_sample_request(run: RunStore, target: SampleTarget) -> SampleRequest:
    exchanges, exchange = _find_exchange(run, target.session, target.request)
    if target.variant:
        folder = layout.sample_dir(target.session, target.request, target.variant)
        path = run.path / folder / layout.REQUEST
        if not path.is_file():
            what = f"request {target.request} of {target.session} has no variant {target.variant}"
            raise NotFound(what, hint="make one: flightlog lab resample-edit RUN")
        body = sendable_body(path.read_bytes())
    else:
        body = sendable_body(exchanges.sent_body(exchange))
    body |= {"model": target.model} if target.model else {}
    request = exchange.request
    if not request.path.startswith("/"):
        # Appended to the address, it could name another host, which would receive the key.
        what = f"recorded request has an invalid path: {request.path[:80]!r}"
        raise Invalid(what, hint="choose another request")
    headers = dict.fromkeys(("content-type", "accept"), "application/json")
    headers |= {"anthropic-version": _VERSION}
    headers |= {name: request.headers[name] for name in _HEADERS if name in request.headers}
    model = str(body.get("model", ""))
    usage = _decode_response(exchanges, exchange).usage
    return SampleRequest(
        request.path,
        headers,
        json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode(),
        model,
        price(model, decode_usage(usage)).usd if usage else None,
        "a credential" in request.scrubbed_fields,
    )


def _find_exchange(run: RunStore, session: str, request: int) -> tuple[ExchangeStore, Exchange]:
    exchanges = exchanges_of(run.path / session)
    by_index = {exchange.index: exchange for exchange in exchanges.read_exchanges()}
    match = by_index.get(request)
    if match is None:
        hint = "list them with --list-requests; a run without capture has none"
        raise NotFound(f"{session} of {run.name} has no request {request}", hint=hint)
    return exchanges, match


def _build_listing(
    exchanges: ExchangeStore, call: ApiCall, turn: int, counts: dict[tuple[int, bool], int]
) -> RequestListing:
    request = call.exchange.request
    response = _decode_response(exchanges, call.exchange)
    message = response.message or {}
    content = message.get("content") or []
    cost = price(str(message.get("model", "")), decode_usage(response.usage))
    return RequestListing(
        *(call.index, turn, request.agent_context.value, request.model),
        *(request.message_count, request.sent_body.size_bytes),
        str(message.get("stop_reason") or ""),
        tuple(str(block.get("name")) for block in content if block.get("type") == "tool_use"),
        cost.usd if response.usage else None,
        *(counts.get((call.index, is_variant), 0) for is_variant in (False, True)),
    )


def _decode_response(exchanges: ExchangeStore, exchange: Exchange) -> AssistantMessage:
    try:
        return decode_response(exchanges.response_body(exchange))
    except FlightlogError:
        return AssistantMessage(None, is_whole=False)
