"""Exchanges on disk: a journal of what was asked and answered, and the bodies as pieces.

A request is on record before its answer is; an answer is written as it streams (to a file of
its own) and becomes a blob when it ends. A recorder that dies leaves what came so far. One
process writes; any may read. Knows nothing of servers.

    exchanges.jsonl     the journal: one line per request, two per response (begun, ended)
    blobs/              pieces of bodies, each once (may be shared: give `blobs`)
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

CHAIN_MAX = 64
RESOLVED_MAX = 16
# Known while only one thread imports: the first use of a type by two threads at once ends the process.
msgspec.json.Decoder(ApiRequest | ApiResponse)


class ExchangeStore:
    """The exchanges of one session, in one folder."""

    def __init__(
        self, folder: Path, *, now: Callable[[], str], new_id: Callable[[], str], blobs: Path | None = None
    ) -> None:
        """Open the folder, which need not be there yet."""
        self.folder = folder
        self._journal: Journal[ApiRequest | ApiResponse] = Journal(
            folder / "exchanges.jsonl", ApiRequest | ApiResponse, now=now, new_id=new_id
        )
        self._pieces = BodyStore(blobs or folder / "blobs")
        self._last: dict[str, tuple[int, int, StoredBody]] = {}
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._requests: dict[int, ApiRequest] = {}

    def record_request(self, request: ApiRequest, sent: bytes, given: bytes | None = None) -> ApiRequest:
        """Put a request on record with its body, and with the client's own body where that differs."""
        thread = request.session_id + "/" + request.agent_id
        base, length, before = self._last.get(thread, (0, 0, NOTHING))
        kept = self._pieces.store_body(sent, before)
        # Begun anew often enough that damage costs little.
        fresh = length >= CHAIN_MAX or not base
        self._last[thread] = (request.index, 0 if fresh else length + 1, kept)
        body = BodyRef(kept.digest, len(sent), kept.names) if fresh else _make_body(sent, kept, base)
        own = None if given is None else _make_body(given, self._pieces.store_body(given, kept), request.index)
        made = msgspec.structs.replace(request, sent=body, given=own)
        self._journal.append(made)
        return made

    def append_response_chunk(self, index: int, data: bytes) -> None:
        """Write more of a response, as it comes."""
        path = self._open_response_path(index)
        ensure_dir(path.parent)
        with os_errors_as_unavailable(path):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                write_all(file, data)
            finally:
                os.close(file)

    def read_response_so_far(self, index: int) -> bytes:
        """Return what has been streamed of a response so far."""
        with suppress(FileNotFoundError), os_errors_as_unavailable(self._open_response_path(index)):
            return self._open_response_path(index).read_bytes()
        return b""

    def record_response(self, response: ApiResponse, body: bytes | None = None) -> ApiResponse:
        """Put a response on record: without a body when it begins, with it when it ends."""
        made = response
        if body is not None:
            made = msgspec.structs.replace(response, body=self._pieces.store_unsplit(body))
        self._journal.append(made)
        if body is not None:
            with os_errors_as_unavailable(self.folder):
                self._open_response_path(response.index).unlink(missing_ok=True)
        return made

    def last_index(self) -> int:
        """Return the highest number on record, 0 when there is none."""
        return max((each.index for each in self.read_exchanges()), default=0)

    def read_exchanges(self) -> list[Exchange]:
        """Return every exchange on record, by number; a response that never ended says so."""
        return [each for each in self.read_all() if not isinstance(each, Damage)]

    def read_all(self) -> Iterator[Exchange | Damage]:
        """Yield every exchange by number, after the damage of the journal."""
        asked: dict[int, tuple[str, ApiRequest]] = {}
        answered: dict[int, ApiResponse] = {}
        for entry in self._journal.read_records():
            if isinstance(entry, Damage):
                yield entry
            elif isinstance(entry, JournalRecord):
                event = entry.event
                if isinstance(event, ApiRequest):
                    asked[event.index] = (entry.ts, event)
                else:
                    answered[event.index] = event
        self._requests.update((index, request) for index, (_, request) in asked.items())
        for index, (at, request) in sorted(asked.items()):
            yield Exchange(at, request, answered.get(index))

    def sent_body(self, exchange: Exchange) -> bytes:
        """Return the body that went upstream, byte for byte as it is on record."""
        self._requests.setdefault(exchange.index, exchange.request)
        return self._load_body(exchange.request.sent)

    def client_body(self, exchange: Exchange) -> bytes:
        """Return the body the client gave."""
        self._requests.setdefault(exchange.index, exchange.request)
        return self._load_body(exchange.request.given or exchange.request.sent)

    def response_body(self, exchange: Exchange) -> bytes:
        """Return the body of the response: whole, or what came of it."""
        response = exchange.response
        if response is None or response.body is None or response.ending is ResponseOutcome.OPEN:
            return self.read_response_so_far(exchange.index)
        return self._load_body(response.body)

    def _load_body(self, body: BodyRef) -> bytes:
        return self._pieces.load_body(body, self._resolve_chunks(body))

    def _resolve_chunks(self, body: BodyRef) -> tuple[str, ...]:
        """Resolve a body's pieces through the bodies it builds on."""
        chain = [body]
        while chain[-1].base and chain[-1].digest not in self._resolved:
            chain.append(self._find_request(chain[-1].base).sent)
        pieces: tuple[str, ...] = ()
        for each in reversed(chain):
            pieces = self._resolved.get(each.digest) or expand_chunks(each, pieces)
            if len(self._resolved) >= RESOLVED_MAX:
                self._resolved.clear()
            self._resolved[each.digest] = pieces
        return pieces

    def _find_request(self, index: int) -> ApiRequest:
        if index not in self._requests:
            list(self.read_all())
        if index not in self._requests:
            raise NotFound(f"the record of exchange {index} is gone: {self.folder}", hint="flightlog doctor")
        return self._requests[index]

    def _open_response_path(self, index: int) -> Path:
        return self.folder / "open" / f"{index:06d}"


def _make_body(data: bytes, kept: StoredBody, base: int) -> BodyRef:
    return BodyRef(kept.digest, len(data), kept.own_chunks, base, kept.keep, kept.tail)
