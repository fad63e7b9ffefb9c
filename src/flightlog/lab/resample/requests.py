"""Recorded requests, edits, what is sent.

A person gets the request as JSON, edits it and gives it back; or says `set` and `drop_thinking`.
Thinking is signed by the model's maker: a block is kept as it was or left out, and one that is
neither is refused here, before anything is sent. Pure.

Sent is the recorded body without what only its client needs (`stream`, `context_management`,
`metadata`), to the same path, with the headers that change what the model does and no others.
Thinking stays as it was signed. Reads the run and writes nothing.
"""

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import AssistantMessage, decode_response, decode_usage
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.resample import layout
from flightlog.lab.resample.samples import RequestEdit
from flightlog.lab.resample.state import SampleTarget
from flightlog.lab.run_session import ApiCall, calls_of, exchanges_of
from flightlog.lab.store import PlannedSession, RunStore
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.exchange import Exchange
from flightlog.store.exchanges import ExchangeStore
from flightlog.usage.prices import price

THINKING = ("thinking", "redacted_thinking")
_PART = re.compile(r"-?\d+", re.ASCII)
_MISSING: Any = object()
Path = tuple[str | int, ...]
_DROPPED = ("stream", "context_management", "metadata")
_HEADERS = ("anthropic-version", "anthropic-beta")
_VERSION = "2023-06-01"  # what the API wants to hear from a client that said nothing


def parse_edited_request(text: str) -> dict[str, Any]:
    """Read an edited request."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the edited request is not JSON: {error}", hint="correct the line it names") from error
    if not isinstance(said, dict) or not isinstance(said.get("messages"), list):
        raise Invalid("the edited request is not one to a model: it has no messages", hint="begin with --dump")
    return said


def find_edits(original: dict[str, Any], edited: dict[str, Any]) -> tuple[RequestEdit, ...]:
    """Say what an edit changed; refuse one that changes nothing, or a thinking block."""
    _check_thinking(original, edited)
    found = tuple(_iter_edits((), original, edited))
    if not found:
        raise Invalid("nothing was changed in the request", hint="ask again as it was: flightlog lab resample RUN")
    return found


def replace_values(original: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Put values at places such as `temperature`, `system` or `messages.-1.content.0.text`; None takes one away."""
    edited = copy.deepcopy(dict(original))
    for place, value in values.items():
        _set_value(edited, place, value)
    return edited


def without_thinking(original: Mapping[str, Any]) -> dict[str, Any]:
    """Leave every thinking block out."""
    edited = copy.deepcopy(dict(original))
    for message in edited.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            message["content"] = [block for block in content if not _is_thinking(block)]
    return edited


def _check_thinking(original: dict[str, Any], edited: dict[str, Any]) -> None:
    """Each thinking block must be one of the original's, and they must come in its order."""
    signed = iter([block for _, block in _iter_thinking_blocks(original, ())])
    for place, block in _iter_thinking_blocks(edited, ()):
        if not any(block == each for each in signed):
            raise Invalid(
                f"a thinking block was edited, added or moved: {_format_path(place)}",
                hint="thinking is signed: keep each block as it was, or leave it out (--drop-thinking)",
            )


def _iter_thinking_blocks(value: Any, place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every thinking block, wherever it stands."""
    if _is_thinking(value):
        yield place, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _iter_thinking_blocks(each, (*place, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _iter_thinking_blocks(each, (*place, at))


def _is_thinking(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("type") in THINKING) and ("thinking" in value or "data" in value)


def _iter_edits(place: Path, one: Any, other: Any) -> Iterator[RequestEdit]:
    if isinstance(one, dict) and isinstance(other, dict) and not _is_thinking(one):
        for key in dict.fromkeys((*one, *other)):
            yield from _iter_edits((*place, key), one.get(key, _MISSING), other.get(key, _MISSING))
    elif isinstance(one, list) and isinstance(other, list):
        yield from _iter_list_edits(place, one, other)
    elif one is _MISSING or other is _MISSING or _format_value(one) != _format_value(other):
        yield RequestEdit(place, None if one is _MISSING else one, None if other is _MISSING else other)


def _iter_list_edits(place: Path, one: Sequence[Any], other: Sequence[Any]) -> Iterator[RequestEdit]:
    """Elements are matched by what they hold, so that one that is taken away is one edit, not one for each after it."""
    matcher = difflib.SequenceMatcher(
        None, [_format_value(each) for each in one], [_format_value(each) for each in other], False
    )
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            continue
        both = min(j - i, m - k)
        for at in range(both):
            yield from _iter_edits((*place, i + at), one[i + at], other[k + at])
        for at in range(i + both, j):
            yield RequestEdit((*place, at), one[at], None)
        for at in range(k + both, m):
            yield RequestEdit((*place, at), None, other[at])


def _format_value(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _set_value(edited: dict[str, Any], place: str, value: Any) -> None:
    parts: list[str | int] = [int(each) if _PART.fullmatch(each) else each for each in place.split(".")]
    at: Any = edited
    try:
        for part in parts[:-1]:
            at = at[part]
        if isinstance(at, dict) and value is None:
            at.pop(parts[-1], None)
        else:
            at[int(parts[-1]) if isinstance(at, list) else parts[-1]] = value
    except (KeyError, IndexError, TypeError, ValueError):
        hint = "write it as in `messages.-1.content.0.text`; see the request with --dump"
        raise Invalid(f"the request has no such place: {place[:80]}", hint=hint) from None


def _format_path(place: Path) -> str:
    return ".".join(map(str, place))


class RequestListing(Struct, frozen=True):
    """One request as a list shows it; turn 0 is none of the main thread's."""

    request: int
    turn: int
    context: str
    model: str
    messages: int
    bytes: int
    stop_reason: str
    tools: tuple[str, ...]
    cost_usd: float | None
    samples: int
    variants: int


class SampleRequest(Struct, frozen=True):
    """What is sent for one target, without the key; `expected_usd` is what the recorded answer cost."""

    path: str
    headers: dict[str, str]
    body: bytes
    model: str
    expected_usd: float | None
    scrubbed: bool = False


def find_planned_session(run: RunStore, session: int, replicate: int) -> PlannedSession:
    """Find a session of a run that ran; replicate 0 is the first one."""
    return ReplaySource(run, session, replicate, "").planned


def list_session_requests(source: ReplaySource) -> list[RequestListing]:
    """List the requests of a session."""
    turns = {turn.request: turn.turn for turn in source.list_turns()}
    kept: dict[tuple[int, bool], int] = {}
    for session, request, variant, path in layout.iter_sample_dirs(source.run.path):
        if session == source.planned.name:
            kept[request, bool(variant)] = kept.get((request, bool(variant)), 0) + (
                1 if variant else sum(not is_error for _, is_error, _ in layout.iter_sample_files(path))
            )
    exchanges = source.read.exchanges
    return [_build_listing(exchanges, call, turns.get(call.index, 0), kept) for call in calls_of(exchanges)]


def request_of_turn(source: ReplaySource, turn: int) -> int:
    """The request that was answered with a turn."""
    found = next((each for each in source.list_turns() if each.turn == turn), None)
    if found is None or not found.request:
        what = "was not captured" if found else "is none of this session's"
        raise NotFound(f"the request of turn {turn} {what}", hint="see those there are with --list-requests")
    return found.request


def load_recorded_body(run: RunStore, session: str, request: int) -> dict[str, Any]:
    """A recorded request, decoded, as it can be sent again."""
    exchanges, exchange = _find_exchange(run, session, request)
    return sendable_body(exchanges.sent_body(exchange))


def sendable_body(body: bytes) -> dict[str, Any]:
    """The part of a recorded body that is sent."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid("the recorded request is not JSON", hint="choose another request") from error
    if not isinstance(said, dict) or not isinstance(said.get("messages"), list):
        raise Invalid("the recorded request is not one to a model", hint="choose another request")
    return {name: value for name, value in said.items() if name not in _DROPPED}


def build_sample_request(run: RunStore, target: SampleTarget) -> SampleRequest:
    """What is sent for a target."""
    exchanges, exchange = _find_exchange(run, target.session, target.request)
    if target.variant:
        path = run.path / layout.sample_dir(target.session, target.request, target.variant) / layout.REQUEST
        if not path.is_file():
            raise NotFound(
                f"request {target.request} of {target.session} has no variant {target.variant}",
                hint="make one: flightlog lab resample-edit RUN",
            )
        body = sendable_body(path.read_bytes())
    else:
        body = sendable_body(exchanges.sent_body(exchange))
    body |= {"model": target.model} if target.model else {}
    request = exchange.request
    if not request.path.startswith("/"):
        # Put behind an address, it would name another host, which would then be sent the key.
        raise Invalid(f"the recorded path is none: {request.path[:80]!r}", hint="choose another request")
    headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
    model = str(body.get("model", ""))
    used = _decode_response(exchanges, exchange).usage
    return SampleRequest(
        request.path,
        {"anthropic-version": _VERSION, "content-type": "application/json", "accept": "application/json"} | headers,
        json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode(),
        model,
        price(model, decode_usage(used)).usd if used else None,
        "a credential" in request.scrubbed,
    )


def _find_exchange(run: RunStore, session: str, request: int) -> tuple[ExchangeStore, Exchange]:
    exchanges = exchanges_of(run.path / session)
    found = next((exchange for exchange in exchanges.read_exchanges() if exchange.index == request), None)
    if found is None:
        hint = "see those there are with --list-requests; a run without capture has none"
        raise NotFound(f"{session} of {run.name} has no request {request}", hint=hint)
    return exchanges, found


def _build_listing(
    exchanges: ExchangeStore, call: ApiCall, turn: int, kept: dict[tuple[int, bool], int]
) -> RequestListing:
    request = call.exchange.request
    told = _decode_response(exchanges, call.exchange)
    message = told.message or {}
    content = message.get("content") or []
    return RequestListing(
        call.index,
        turn,
        request.context.value,
        request.model,
        request.messages,
        request.sent.size,
        str(message.get("stop_reason") or ""),
        tuple(str(block.get("name")) for block in content if block.get("type") == "tool_use"),
        price(str(message.get("model", "")), decode_usage(told.usage)).usd if told.usage else None,
        kept.get((call.index, False), 0),
        kept.get((call.index, True), 0),
    )


def _decode_response(exchanges: ExchangeStore, exchange: Exchange) -> AssistantMessage:
    try:
        return decode_response(exchanges.response_body(exchange))
    except FlightlogError:
        return AssistantMessage(None, is_whole=False)
