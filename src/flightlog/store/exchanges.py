"""Exchanges on disk: a journal of requests and responses, and their bodies as chunks.

A request is recorded before its response. A response is written as it streams, to a file of its
own, and becomes a blob when it ends; a recorder that dies leaves what it received. One process
writes, any may read.

    exchanges.jsonl     the journal: one line per request, two per response (begun, ended)
    blobs/              chunks of bodies, each once
    open/000012         a response that has not ended
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from flightlog.model.errors import Damage, NotFound
from flightlog.model.exchange import ApiRequest, ApiResponse, BodyRef, Exchange, ResponseOutcome
from flightlog.store.blobs import NOTHING, BodyStore, StoredBody, expand_chunks
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, write_all
from flightlog.store.journal import Journal, JournalRecord

EXCHANGES = ".exchanges"  # the folder of exchanges, beside the transcript of their session
CHAIN_MAX = 64  # bodies that build on each other; a lost record makes at most so many unreadable
RESOLVED_MAX = 16  # chunk lists in memory, enough to read a session's bodies in order
# Built while only one thread imports: msgspec crashes if two threads use a new type at once.
msgspec.json.Decoder(ApiRequest | ApiResponse)


def exchanges_of(folder: Path) -> "ExchangeStore":
    """Open the exchanges of the session in `folder` for reading; there need not be any."""
    return ExchangeStore(folder / EXCHANGES, now=str, new_id=str)


class ExchangeStore:
    """The exchanges of one session, in one folder."""

    def __init__(self, folder: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        """Use `folder`, which need not exist yet."""
        self.folder = folder
        self._journal: Journal[ApiRequest | ApiResponse] = Journal(
            folder / "exchanges.jsonl", ApiRequest | ApiResponse, now=now, new_id=new_id
        )
        self._bodies = BodyStore(folder / "blobs")
        self._last: dict[str, tuple[int, int, StoredBody]] = {}
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._requests: dict[int, ApiRequest] = {}

    def record_request(
        self, request: ApiRequest, sent: bytes, given: bytes | None = None
    ) -> ApiRequest:
        """Record a request with the body sent upstream, and the client's own if that differs."""
        thread = request.session_id + "/" + request.agent_id
        base, length, before = self._last.get(thread, (0, 0, NOTHING))
        stored = self._bodies.store_body(sent, before)
        # A chain of bodies starts again now and then, so that damage costs little.
        is_first = length >= CHAIN_MAX or not base
        self._last[thread] = (request.index, 0 if is_first else length + 1, stored)
        whole = BodyRef(stored.digest, len(sent), stored.names)
        body = whole if is_first else _make_ref(sent, stored, base)
        own = None
        if given is not None:
            own = _make_ref(given, self._bodies.store_body(given, stored), request.index)
        request = msgspec.structs.replace(request, sent_body=body, client_body=own)
        self._journal.append(request)
        return request

    def append_response_chunk(self, index: int, data: bytes) -> None:
        """Append to a response that is streaming."""
        path = self._open_response_path(index)
        ensure_dir(path.parent)
        with os_errors_as_unavailable(path):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                write_all(file, data)
            finally:
                os.close(file)

    def read_response_so_far(self, index: int) -> bytes:
        """Return what was received of a response so far."""
        with suppress(FileNotFoundError), os_errors_as_unavailable(self._open_response_path(index)):
            return self._open_response_path(index).read_bytes()
        return b""

    def record_response(self, response: ApiResponse, body: bytes | None = None) -> ApiResponse:
        """Record a response: without a body when it begins, with it when it ends."""
        if body is not None:
            response = msgspec.structs.replace(response, body=self._bodies.store_unsplit(body))
        self._journal.append(response)
        if body is not None:
            with os_errors_as_unavailable(self.folder):
                self._open_response_path(response.index).unlink(missing_ok=True)
        return response

    def last_index(self) -> int:
        """Return the highest number on record, 0 if there is none."""
        return max((exchange.index for exchange in self.read_exchanges()), default=0)

    def read_exchanges(self) -> list[Exchange]:
        """Return every exchange by number; a response that did not end is `OPEN`."""
        return [item for item in self.read_all() if not isinstance(item, Damage)]

    def read_all(self) -> Iterator[Exchange | Damage]:
        """Yield the damage of the journal, then every exchange by number."""
        requests: dict[int, tuple[str, ApiRequest]] = {}
        responses: dict[int, ApiResponse] = {}
        for record in self._journal.read_records():
            if isinstance(record, Damage):
                yield record
            elif isinstance(record, JournalRecord):
                event = record.event
                if isinstance(event, ApiRequest):
                    requests[event.index] = (record.ts, event)
                else:
                    responses[event.index] = event
        self._requests.update((index, request) for index, (_, request) in requests.items())
        for index, (at, request) in sorted(requests.items()):
            yield Exchange(at, request, responses.get(index))

    def sent_body(self, exchange: Exchange) -> bytes:
        """Return the body that went upstream, byte for byte."""
        self._requests.setdefault(exchange.index, exchange.request)
        return self._load_body(exchange.request.sent_body)

    def client_body(self, exchange: Exchange) -> bytes:
        """Return the body that the client sent."""
        self._requests.setdefault(exchange.index, exchange.request)
        return self._load_body(exchange.request.client_body or exchange.request.sent_body)

    def response_body(self, exchange: Exchange) -> bytes:
        """Return the body of the response, or the part that was received."""
        response = exchange.response
        if response is None or response.body is None or response.ending is ResponseOutcome.OPEN:
            return self.read_response_so_far(exchange.index)
        return self._load_body(response.body)

    def _load_body(self, body: BodyRef) -> bytes:
        return self._bodies.load_body(body, self._resolve_chunks(body))

    def _resolve_chunks(self, body: BodyRef) -> tuple[str, ...]:
        """Return all chunks of a body, through the bodies it builds on."""
        chain = [body]
        while chain[-1].base_index and chain[-1].digest not in self._resolved:
            chain.append(self._find_request(chain[-1].base_index).sent_body)
        chunks: tuple[str, ...] = ()
        for link in reversed(chain):
            chunks = self._resolved.get(link.digest) or expand_chunks(link, chunks)
            if len(self._resolved) >= RESOLVED_MAX:
                self._resolved.clear()
            self._resolved[link.digest] = chunks
        return chunks

    def _find_request(self, index: int) -> ApiRequest:
        if index not in self._requests:
            list(self.read_all())
        if index not in self._requests:
            hint = "restore the file from a backup"
            raise NotFound(f"the record of exchange {index} is gone: {self.folder}", hint=hint)
        return self._requests[index]

    def _open_response_path(self, index: int) -> Path:
        return self.folder / "open" / f"{index:06d}"


def _make_ref(data: bytes, stored: StoredBody, base: int) -> BodyRef:
    shared = (stored.prefix_chunks, stored.suffix_chunks)
    return BodyRef(stored.digest, len(data), stored.own_chunks, base, *shared)
