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

from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Body, Ending, Request, Response
from flightlog.sources.api import sse
from flightlog.sources.api.encodings import decoded
from flightlog.sources.api.scrub import Scrubber, clean_request
from flightlog.sources.api.wire import REQUEST_HEADERS, RESPONSE_HEADERS, Recogniser, Said, kept_headers
from flightlog.store.exchanges import Exchanges

_NO_BODY = Body("", 0)
T = TypeVar("T")


class Arrived(Struct, frozen=True):
    """A request as it came: `path` without the token, header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Sent(Struct, frozen=True):
    """What went upstream in its place, and what was replaced in it."""

    body: bytes
    replaced: tuple[str, ...] = ()


class Served(Struct, frozen=True):
    """An answer given in the upstream's place, which is not asked."""

    status: int
    headers: dict[str, str]
    body: bytes


class Began(Struct, frozen=True):
    """The head of a response."""

    status: int
    headers: dict[str, str]
    request_id: str
    first_byte_ms: float


class Ended(Struct, frozen=True):
    """The end of a response."""

    ending: Ending
    total_ms: float
    notes: tuple[str, ...] = ()
    served: bool = False


class Recorder:
    """Keeps the exchanges of one session."""

    def __init__(
        self, exchanges: Exchanges, secrets: tuple[str, ...] = (), ended: Callable[[bytes], None] | None = None
    ) -> None:
        """Go on after the exchanges that are on record; `ended` is told the body of each answer of the upstream."""
        self.losses: list[str] = []
        self._exchanges = exchanges
        self._told = ended
        self._scrubber = Scrubber(secrets)
        self._recogniser = Recogniser()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._lock = threading.Lock()
        self._held: dict[int, bytes] = {}
        self._next = self._try(exchanges.last_index) or 0

    def number(self) -> int:
        """Give out the number of a new exchange."""
        with self._lock:
            self._next += 1
            return self._next

    def recognise(self, arrived: Arrived) -> Said:
        """Say what a request is; once for each, in order."""
        return self._recogniser.read(arrived.headers, arrived.body)

    def ask(self, index: int, arrived: Arrived, said: Said | None, sent: Sent | None) -> "Future[Request]":
        """Put a request on record and return it; it is returned also when it could not be kept."""
        return self._thread.submit(self._asked, index, arrived, said, sent)

    def begin(self, index: int, began: Began) -> None:
        """Put the head of a response on record."""
        self._thread.submit(self._try, lambda: self._exchanges.answer(self._response(index, began)))

    def more(self, index: int, began: Began, data: bytes) -> None:
        """Keep more of a response."""
        self._thread.submit(self._try, lambda: self._copied(index, began, data))

    def end(self, index: int, began: Began, ended: Ended) -> "Future[Response | None]":
        """Put the end of a response on record."""
        return self._thread.submit(self._try, lambda: self._ended(index, began, ended))

    def close(self) -> None:
        """Wait until all that was given is on disk."""
        self._thread.shutdown(wait=True)

    def _asked(self, index: int, arrived: Arrived, said: Said | None, sent: Sent | None) -> Request:
        said = said or self.recognise(arrived)
        self._scrubber.learn(arrived.headers)
        given, scrubbed = clean_request(self._scrubber, arrived.body)
        headers = self._scrubber.clean_texts(kept_headers(arrived.headers, REQUEST_HEADERS))
        own = {"path": arrived.path, "agent": said.agent_id, "session": said.session_id, "model": said.model}
        own = self._scrubber.clean_texts(own)
        request = Request(
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
            return self._try(lambda: self._exchanges.ask(request, given)) or request
        request = replace(request, replaced=sent.replaced)
        body, _ = clean_request(self._scrubber, sent.body)
        return self._try(lambda: self._exchanges.ask(request, body, given)) or request

    def _copied(self, index: int, began: Began, data: bytes) -> None:
        """Write what cannot be the beginning of a secret; the rest waits for what follows."""
        if "content-encoding" in began.headers:
            self._exchanges.stream(index, data)
            return
        cleaned = self._scrubber.clean(self._held.pop(index, b"") + data)
        back = self._scrubber.longest
        if back:
            cleaned, self._held[index] = cleaned[:-back], cleaned[-back:]
        if cleaned:
            self._exchanges.stream(index, cleaned)

    def _ended(self, index: int, began: Began, ended: Ended) -> Response:
        came = self._exchanges.streamed(index) + self._held.pop(index, b"")
        body, stays = decoded(came, began.headers.get("content-encoding", ""))
        cleaned = self._whole(self._scrubber.clean(body))
        response = replace(
            self._response(index, began),
            ending=ended.ending,
            encoding=stays,
            total_ms=ended.total_ms,
            notes=tuple(map(self._scrubber.clean_text, ended.notes)),
            scrubbed=("a credential",) if b"[scrubbed]" in cleaned and cleaned != came else (),
        )
        kept = self._exchanges.answer(response, cleaned)
        if self._told is not None and not ended.served:
            self._told(cleaned)
        return kept

    def _whole(self, body: bytes) -> bytes:
        """A secret told in several events stands in no single one: such an answer is written anew."""
        if not self._scrubber.longest:
            return body
        told = sse.answer(body)
        said = msgspec.json.encode(told.message)
        cleaned = self._scrubber.clean(said)
        return body if cleaned == said else sse.rendered(replace(told, message=msgspec.json.decode(cleaned)))

    def _response(self, index: int, began: Began) -> Response:
        headers = self._scrubber.clean_texts(kept_headers(began.headers, RESPONSE_HEADERS))
        return Response(index, began.status, headers, began.request_id, Ending.OPEN, first_byte_ms=began.first_byte_ms)

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (FlightlogError, OSError, ValueError, RuntimeError) as error:
            self.losses.append(self._scrubber.clean_text(f"{type(error).__name__}: {error}")[:300])
            return None
