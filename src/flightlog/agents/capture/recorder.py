"""Keeping what passes: the copy of an exchange, made beside the call and never in its way.

All disk work happens on one thread of its own, in order. Nothing here raises to the caller: what
cannot be kept is counted and named in `losses`. Knows requests and bytes, not sockets.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.capture.sanitize import Scrubber, clean_request, decompress_body
from flightlog.agents.dialects import anthropic_messages
from flightlog.agents.dialects.anthropic_messages import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    RequestClassifier,
    RequestInfo,
    filter_headers,
)
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import ApiRequest, ApiResponse, BodyRef, ResponseOutcome
from flightlog.store.exchanges import ExchangeStore

_NO_BODY = BodyRef("", 0)
T = TypeVar("T")


class IncomingRequest(Struct, frozen=True):
    """A request as it came: `path` without the token, header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class RewrittenRequest(Struct, frozen=True):
    """What went upstream in its place, and what was replaced in it."""

    body: bytes
    replaced: tuple[str, ...] = ()


class ServedResponse(Struct, frozen=True):
    """An answer given in the upstream's place, which is not asked."""

    status: int
    headers: dict[str, str]
    body: bytes


class ResponseStart(Struct, frozen=True):
    """The head of a response."""

    status: int
    headers: dict[str, str]
    request_id: str
    first_byte_ms: float


class ResponseEnd(Struct, frozen=True):
    """The end of a response."""

    ending: ResponseOutcome
    total_ms: float
    notes: tuple[str, ...] = ()
    served: bool = False


class ExchangeRecorder:
    """Keeps the exchanges of one session."""

    def __init__(
        self, exchanges: ExchangeStore, secrets: tuple[str, ...] = (), ended: Callable[[bytes], None] | None = None
    ) -> None:
        """Go on after the exchanges that are on record; `ended` is told the body of each answer of the upstream."""
        self.losses: list[str] = []
        self._exchanges = exchanges
        self._told = ended
        self._scrubber = Scrubber(secrets)
        self._recogniser = RequestClassifier()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._lock = threading.Lock()
        self._held: dict[int, bytes] = {}
        self._next = self._run_or_record_loss(exchanges.last_index) or 0

    def next_index(self) -> int:
        """Give out the number of a new exchange."""
        with self._lock:
            self._next += 1
            return self._next

    def classify_request(self, arrived: IncomingRequest) -> RequestInfo:
        """Say what a request is; once for each, in order."""
        return self._recogniser.classify_request(arrived.headers, arrived.body)

    def record_request(
        self, index: int, arrived: IncomingRequest, said: RequestInfo | None, sent: RewrittenRequest | None
    ) -> "Future[ApiRequest]":
        """Put a request on record and return it; it is returned also when it could not be kept."""
        return self._thread.submit(self._store_request, index, arrived, said, sent)

    def record_response_start(self, index: int, began: ResponseStart) -> None:
        """Put the head of a response on record."""
        self._thread.submit(
            self._run_or_record_loss, lambda: self._exchanges.record_response(self._make_response(index, began))
        )

    def record_chunk(self, index: int, began: ResponseStart, data: bytes) -> None:
        """Keep more of a response."""
        self._thread.submit(self._run_or_record_loss, lambda: self._write_chunk(index, began, data))

    def record_response_end(self, index: int, began: ResponseStart, ended: ResponseEnd) -> "Future[ApiResponse | None]":
        """Put the end of a response on record."""
        return self._thread.submit(self._run_or_record_loss, lambda: self._store_response(index, began, ended))

    def close(self) -> None:
        """Wait until all that was given is on disk."""
        self._thread.shutdown(wait=True)

    def _store_request(
        self, index: int, arrived: IncomingRequest, said: RequestInfo | None, sent: RewrittenRequest | None
    ) -> ApiRequest:
        said = said or self.classify_request(arrived)
        self._scrubber.learn_credentials(arrived.headers)
        given, scrubbed = clean_request(self._scrubber, arrived.body)
        headers = self._scrubber.clean_texts(filter_headers(arrived.headers, REQUEST_HEADERS))
        own = {"path": arrived.path, "agent": said.agent_id, "session": said.session_id, "model": said.model}
        own = self._scrubber.clean_texts(own)
        request = ApiRequest(
            index=index,
            context=said.context,
            method=arrived.method,
            path=own["path"],
            headers=headers,
            sent=_NO_BODY,
            agent_id=own["agent"],
            session_id=own["session"],
            model=own["model"],
            messages=said.messages,
            is_compaction=said.is_compaction,
            scrubbed=scrubbed,
        )
        if sent is None:
            return self._run_or_record_loss(lambda: self._exchanges.record_request(request, given)) or request
        request = replace(request, replaced=sent.replaced)
        body, _ = clean_request(self._scrubber, sent.body)
        return self._run_or_record_loss(lambda: self._exchanges.record_request(request, body, given)) or request

    def _write_chunk(self, index: int, began: ResponseStart, data: bytes) -> None:
        """Write what cannot be the beginning of a secret; the rest waits for what follows."""
        if "content-encoding" in began.headers:
            self._exchanges.append_response_chunk(index, data)
            return
        cleaned = self._scrubber.clean_bytes(self._held.pop(index, b"") + data)
        back = self._scrubber.longest
        if back:
            cleaned, self._held[index] = cleaned[:-back], cleaned[-back:]
        if cleaned:
            self._exchanges.append_response_chunk(index, cleaned)

    def _store_response(self, index: int, began: ResponseStart, ended: ResponseEnd) -> ApiResponse:
        came = self._exchanges.read_response_so_far(index) + self._held.pop(index, b"")
        body, stays = decompress_body(came, began.headers.get("content-encoding", ""))
        cleaned = self._rewrite_secret_events(self._scrubber.clean_bytes(body))
        response = replace(
            self._make_response(index, began),
            ending=ended.ending,
            encoding=stays,
            total_ms=ended.total_ms,
            notes=tuple(map(self._scrubber.clean_text, ended.notes)),
            scrubbed=("a credential",) if b"[scrubbed]" in cleaned and cleaned != came else (),
        )
        kept = self._exchanges.record_response(response, cleaned)
        if self._told is not None and not ended.served:
            self._told(cleaned)
        return kept

    def _rewrite_secret_events(self, body: bytes) -> bytes:
        """A secret told in several events stands in no single one: such an answer is written anew."""
        if not self._scrubber.longest:
            return body
        told = anthropic_messages.decode_response(body)
        said = msgspec.json.encode(told.message)
        cleaned = self._scrubber.clean_bytes(said)
        return (
            body
            if cleaned == said
            else anthropic_messages.render_events(replace(told, message=msgspec.json.decode(cleaned)))
        )

    def _make_response(self, index: int, began: ResponseStart) -> ApiResponse:
        headers = self._scrubber.clean_texts(filter_headers(began.headers, RESPONSE_HEADERS))
        return ApiResponse(
            index, began.status, headers, began.request_id, ResponseOutcome.OPEN, first_byte_ms=began.first_byte_ms
        )

    def _run_or_record_loss(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (FlightlogError, OSError, ValueError, RuntimeError) as error:
            self.losses.append(self._scrubber.clean_text(f"{type(error).__name__}: {error}")[:300])
            return None
