"""Store a copy of each exchange without delaying the call.

One thread does all disk work, in order. Nothing here raises to the caller: what cannot be stored
is listed in `losses`.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.capture.sanitize import MARK, Scrubber, clean_request, decompress_body
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
# A response reaches the recorder in few large parts: a model streams hundreds of small chunks.
_FLUSH_S = 0.02
_FLUSH_BYTES = 1 << 18
_LAST_EVENT_BYTES = 1000  # gateways add their figures to the last event of a stream
T = TypeVar("T")


class IncomingRequest(Struct, frozen=True):
    """A client's request: `path` without the token, header names in lower case; `url` upstream."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    url: str = ""


class RewrittenRequest(Struct, frozen=True):
    """The body and headers sent instead of the client's, and the names of what was replaced."""

    body: bytes
    replacements: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class ServedResponse(Struct, frozen=True):
    """A response that the proxy gives itself, without calling the upstream."""

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
    """Records the exchanges of one session."""

    def __init__(
        self,
        exchanges: ExchangeStore,
        secrets: tuple[str, ...] = (),
        ended: Callable[[bytes], None] | None = None,
    ) -> None:
        """Continue after the stored exchanges; `ended` gets the body of each upstream response."""
        self.losses: list[str] = []
        self._exchanges = exchanges
        self._on_response = ended
        self._scrubber = Scrubber(secrets)
        self._classifier = RequestClassifier()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._lock = threading.Lock()
        self._unwritten: dict[int, bytes] = {}
        self._ended: list[ResponseTee] = []
        self._last_index = self._run_or_record_loss(exchanges.last_index) or 0

    def next_index(self) -> int:
        """Return the number of a new exchange."""
        with self._lock:
            self._last_index += 1
            return self._last_index

    def classify_request(self, request: IncomingRequest) -> RequestInfo:
        """Classify a request; call it once for each, in order."""
        return self._classifier.classify_request(request.headers, request.body)

    def record_request(
        self,
        index: int,
        request: IncomingRequest,
        info: RequestInfo | None,
        rewritten: RewrittenRequest | None,
    ) -> "Future[ApiRequest]":
        """Store a request and return it, even if it could not be stored."""
        return self._thread.submit(self._store_request, index, request, info, rewritten)

    def record_response_start(self, index: int, start: ResponseStart) -> None:
        """Store the head of a response."""
        self._submit(lambda: self._exchanges.record_response(self._make_response(index, start)))

    def record_chunk(self, index: int, start: ResponseStart, data: bytes) -> None:
        """Store more of a response's body."""
        self._submit(lambda: self._write_chunk(index, start, data))

    def record_response_end(
        self, index: int, start: ResponseStart, end: ResponseEnd
    ) -> "Future[ApiResponse | None]":
        """Store the end of a response."""
        return self._submit(lambda: self._store_response(index, start, end))

    def add_ended(self, response: "ResponseTee") -> None:
        """Keep an ended response until its timer, `wait_for_ended` or `close` stores it."""
        self._ended.append(response)

    def store_ended(self) -> None:
        """Store the responses that have ended."""
        ended, self._ended = self._ended, []
        for response in ended:
            response.flush()

    def wait_for_ended(self) -> "Future[None]":
        """Return a result that is there once the responses that have ended are on disk."""
        self.store_ended()
        return self._thread.submit(lambda: None)

    def close(self) -> None:
        """Wait until everything is on disk."""
        self.store_ended()
        self._thread.shutdown(wait=True)

    def _store_request(
        self,
        index: int,
        incoming: IncomingRequest,
        info: RequestInfo | None,
        rewritten: RewrittenRequest | None,
    ) -> ApiRequest:
        info = info or self.classify_request(incoming)
        self._scrubber.learn_credentials(incoming.headers)
        original, scrubbed = clean_request(self._scrubber, incoming.body)
        headers = self._scrubber.clean_texts(filter_headers(incoming.headers, REQUEST_HEADERS))
        texts = {
            "path": incoming.path,
            "url": incoming.url,
            "agent": info.agent_id,
            "session": info.session_id,
            "model": info.model,
        }
        texts = self._scrubber.clean_texts(texts)
        request = ApiRequest(
            index=index,
            agent_context=info.agent_context,
            method=incoming.method,
            path=texts["path"],
            headers=headers,
            sent_body=_NO_BODY,
            agent_id=texts["agent"],
            session_id=texts["session"],
            model=texts["model"],
            message_count=info.message_count,
            is_compaction=info.is_compaction,
            scrubbed_fields=scrubbed,
            url=texts["url"],
        )
        if rewritten is None:
            store = partial(self._exchanges.record_request, request, original)
            return self._run_or_record_loss(store) or request
        sent_headers = headers | filter_headers(rewritten.headers, REQUEST_HEADERS)
        request = replace(request, replacements=rewritten.replacements, headers=sent_headers)
        body, _ = clean_request(self._scrubber, rewritten.body)
        store = partial(self._exchanges.record_request, request, body, original)
        return self._run_or_record_loss(store) or request

    def _write_chunk(self, index: int, start: ResponseStart, data: bytes) -> None:
        """Write all but the end, which may be half a secret and waits for the next chunk."""
        if "content-encoding" in start.headers:
            self._exchanges.append_response_chunk(index, data)
            return
        cleaned = self._scrubber.clean_bytes(self._unwritten.pop(index, b"") + data)
        if length := self._scrubber.longest:
            cleaned, self._unwritten[index] = cleaned[:-length], cleaned[-length:]
        if cleaned:
            self._exchanges.append_response_chunk(index, cleaned)

    def _store_response(self, index: int, start: ResponseStart, end: ResponseEnd) -> ApiResponse:
        received = self._exchanges.read_response_so_far(index) + self._unwritten.pop(index, b"")
        body, encoding = decompress_body(received, start.headers.get("content-encoding", ""))
        cleaned = self._rewrite_secret_events(self._scrubber.clean_bytes(body))
        response = replace(
            self._make_response(index, start),
            ending=_find_ending(end.ending, cleaned),
            encoding=encoding,
            total_ms=end.total_ms,
            notes=tuple(map(self._scrubber.clean_text, end.notes)),
            scrubbed_fields=("a credential",) if MARK in cleaned and cleaned != received else (),
        )
        stored = self._exchanges.record_response(response, cleaned)
        if self._on_response is not None and not end.served:
            self._on_response(cleaned)
        return stored

    def _rewrite_secret_events(self, body: bytes) -> bytes:
        """Return the body without secrets that are split over several events."""
        if not self._scrubber.longest:
            return body
        response = anthropic_messages.decode_response(body)
        message = msgspec.json.encode(response.message)
        cleaned = self._scrubber.clean_bytes(message)
        if cleaned == message:
            return body
        message = msgspec.json.decode(cleaned)
        return anthropic_messages.render_events(replace(response, message=message))

    def _make_response(self, index: int, start: ResponseStart) -> ApiResponse:
        headers = self._scrubber.clean_texts(filter_headers(start.headers, RESPONSE_HEADERS))
        head = (index, start.status, headers, start.request_id)
        return ApiResponse(*head, ResponseOutcome.OPEN, first_byte_ms=start.first_byte_ms)

    def _submit(self, work: Callable[[], T]) -> "Future[T | None]":
        return self._thread.submit(self._run_or_record_loss, work)

    def _run_or_record_loss(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (FlightlogError, OSError, ValueError, RuntimeError) as error:
            self.losses.append(self._scrubber.clean_text(f"{type(error).__name__}: {error}")[:300])
            return None


class ResponseTee:
    """Collects chunks for the recorder, so that the call does not wait for the disk."""

    def __init__(self, recorder: ExchangeRecorder, index: int, start: ResponseStart) -> None:
        """Record the head of the response a moment from now."""
        self._recorder = recorder
        self._index = index
        self._start = start
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._is_started = False
        self._end: ResponseEnd | None = None
        # The head too goes to disk a moment later: written now, it would delay the first byte.
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            _FLUSH_S, self.flush
        )

    def add_chunk(self, chunk: bytes) -> None:
        """Record a chunk, at once if many are waiting."""
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        if self._bytes >= _FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)

    def finish_copy(self, end: ResponseEnd) -> None:
        """Record the chunks that are waiting and the end, a moment from now.

        The recorder's thread would otherwise take the interpreter's lock from the event loop while
        it forwards the first bytes of parallel responses: 5 ms instead of 2 for the last of 24.
        """
        self._end = end
        self._recorder.add_ended(self)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._recorder.store_ended)

    def flush(self) -> None:
        """Give the recorder what is waiting; repeating it changes nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_started:
            self._is_started = True
            self._recorder.record_response_start(self._index, self._start)
        if self._chunks:
            self._recorder.record_chunk(self._index, self._start, b"".join(self._chunks))
            self._chunks = []
            self._bytes = 0
        if self._end is not None:
            self._recorder.record_response_end(self._index, self._start, self._end)
            self._end = None


def _find_ending(ending: ResponseOutcome, body: bytes) -> ResponseOutcome:
    """Return how a response ended; without its last event it is cut, whatever the connection says."""
    if ending is not ResponseOutcome.COMPLETE or b"message_stop" in body[-_LAST_EVENT_BYTES:]:
        return ending
    response = anthropic_messages.decode_response(body)
    is_cut = response.message is not None and not (response.is_whole or response.error)
    return ResponseOutcome.CUT if is_cut else ending
