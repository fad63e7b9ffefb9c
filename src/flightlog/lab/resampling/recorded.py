"""The requests a session made, as something to ask again; and what of each is sent.

Sent is the recorded body without what only its client needs (`stream`, `context_management`,
`metadata`), to the same path, with the headers that change what the model does and no others.
Thinking stays as it was signed. Reads the run and writes nothing.
"""

import json
from typing import Any

from msgspec import Struct

from flightlog.lab.book import RunStore
from flightlog.lab.plan import PlannedSession
from flightlog.lab.replaying.source import ReplaySource
from flightlog.lab.resampling import layout
from flightlog.lab.resampling.events import SampleTarget
from flightlog.lab.told import ApiCall, calls_of, exchanges_of
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.exchange import Exchange
from flightlog.sources.api.sse import AssistantMessage, decode_response
from flightlog.sources.api.usage import decode_usage
from flightlog.store.exchanges import ExchangeStore
from flightlog.usage.prices import price

_DROPPED = ("stream", "context_management", "metadata")
_HEADERS = ("anthropic-version", "anthropic-beta")
_VERSION = "2023-06-01"  # what the API wants to hear from a client that said nothing


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


def find_planned_session(book: RunStore, session: int, replicate: int) -> PlannedSession:
    """Find a session of a run that ran; replicate 0 is the first one."""
    return ReplaySource(book, session, replicate, "").planned


def list_session_requests(source: ReplaySource) -> list[RequestListing]:
    """List the requests of a session."""
    turns = {each.request: each.turn for each in source.list_turns()}
    kept: dict[tuple[int, bool], int] = {}
    for session, request, variant, path in layout.iter_sample_dirs(source.book.path):
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


def load_recorded_body(book: RunStore, session: str, request: int) -> dict[str, Any]:
    """A recorded request, decoded, as it can be sent again."""
    exchanges, exchange = _find_exchange(book, session, request)
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


def build_sample_request(book: RunStore, target: SampleTarget) -> SampleRequest:
    """What is sent for a target."""
    exchanges, exchange = _find_exchange(book, target.session, target.request)
    if target.variant:
        path = book.path / layout.sample_dir(target.session, target.request, target.variant) / layout.REQUEST
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


def _find_exchange(book: RunStore, session: str, request: int) -> tuple[ExchangeStore, Exchange]:
    exchanges = exchanges_of(book.path / session)
    found = next((each for each in exchanges.read_exchanges() if each.index == request), None)
    if found is None:
        hint = "see those there are with --list-requests; a run without capture has none"
        raise NotFound(f"{session} of {book.name} has no request {request}", hint=hint)
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
        tuple(str(each.get("name")) for each in content if each.get("type") == "tool_use"),
        price(str(message.get("model", "")), decode_usage(told.usage)).usd if told.usage else None,
        kept.get((call.index, False), 0),
        kept.get((call.index, True), 0),
    )


def _decode_response(exchanges: ExchangeStore, exchange: Exchange) -> AssistantMessage:
    try:
        return decode_response(exchanges.response_body(exchange))
    except FlightlogError:
        return AssistantMessage(None, is_whole=False)
