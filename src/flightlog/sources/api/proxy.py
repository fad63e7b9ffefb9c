"""The capture proxy: a client's calls to its model pass through, and a copy is kept.

One upstream fixed at the start, one secret word in the path. The bytes of a response go to the
client as they came, the first of them once the request is on record and the barrier has been
passed. Whatever goes wrong with the copy, the call goes on. Knows HTTP; what is kept and how
is the recorder's business.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import aiohttp
from aiohttp import web
from msgspec import Struct
from multidict import CIMultiDict

from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Ending, Request
from flightlog.sources.api.recorder import Arrived, Began, Ended, Recorder, Sent, Served
from flightlog.sources.api.upstream import Answer, Upstream
from flightlog.sources.api.wire import Said

BODY_BYTES_MAX = 256 << 20
_FLUSH_S = 0.02
_FLUSH_BYTES = 1 << 18
_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)

Barrier = Callable[[Request], Awaitable[None]]
Rewrite = Callable[[Said, Arrived], Sent | Served | None]


class Settings(Struct, frozen=True):
    """How to pass calls on.

    `barrier` is awaited, with the request on record, while the upstream is already at work, and
    before the first byte of its response is passed on. `rewrite` may put another body in the
    place of the client's, or give an answer in the upstream's; when it refuses (a FlightlogError),
    so does the proxy. `new_id` makes a request id where the upstream gives none. `proxy` is the
    machine's own way out, for an upstream with TLS.
    """

    upstream: str
    token: str
    new_id: Callable[[], str]
    barrier: Barrier | None = None
    rewrite: Rewrite | None = None
    barrier_s: float = 60.0
    record_s: float = 2.0
    proxy: str = ""


class Proxy:
    """Passes the calls of one client on; one for each session."""

    def __init__(self, settings: Settings, recorder: Recorder, upstream: Upstream) -> None:
        """Take an open way to the upstream; `serving` is the way in."""
        self._settings = settings
        self._recorder = recorder
        self._upstream = upstream
        self._loop = asyncio.get_running_loop()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = self._below_token(request.raw_path)
        if path is None:
            return web.Response(status=404)
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = await _whole(request)
        if body is None:
            return web.Response(status=413)
        if request.method == "POST" and path.partition("?")[0].endswith("/v1/messages"):
            headers = {name.lower(): value for name, value in request.headers.items()}
            return await self._exchange(request, Arrived(request.method, path, headers, body))
        return await self._passed(request, path, body)

    async def _exchange(self, request: web.BaseRequest, arrived: Arrived) -> web.StreamResponse:
        """Pass a call on, with its request kept before and its response kept as it streams."""
        began_at = self._loop.time()
        index = self._recorder.number()
        said, sent = None, None
        if self._settings.rewrite is not None:
            said = self._recorder.recognise(arrived)
            try:
                sent = self._settings.rewrite(said, arrived)
            except FlightlogError as error:
                self._recorder.ask(index, arrived, said, None)
                return self._own(index, 400, "invalid_request_error", str(error))
        if isinstance(sent, Served):
            return await self._served(index, arrived, said, sent)
        body = arrived.body if sent is None else sent.body
        asked = self._recorder.ask(index, arrived, said, sent)
        barred = asyncio.ensure_future(self._barred(asked)) if self._settings.barrier is not None else None
        answer = None
        try:
            try:
                answer = await self._upstream.send(request.method, arrived.path, _end_to_end(request.headers), body)
            finally:
                notes = await (barred or self._on_record(asked))
        except (aiohttp.ClientError, OSError) as error:
            return self._own(index, 502, "api_error", f"no answer from the upstream: {type(error).__name__}")
        except asyncio.CancelledError:
            if barred is not None:
                barred.cancel()
            if answer is not None:
                answer.release()
            self._recorder.end(index, Began(0, {}, "", 0.0), Ended(Ending.LEFT, self._since(began_at)))
            raise
        head = self._head(answer)
        began = Began(answer.status, _lower(head), head["request-id"], self._since(began_at))
        copy = _Copy(self._recorder, index, began)
        ending = Ending.LEFT
        try:
            response, ending = await _pumped(request, answer, head, copy)
        finally:
            copy.end(Ended(ending, self._since(began_at), notes))
        return response

    async def _served(self, index: int, arrived: Arrived, said: Said | None, served: Served) -> web.Response:
        """Answer in the upstream's place; the request is on record and the barrier passed as with any other."""
        notes = await self._barred(self._recorder.ask(index, arrived, said, None))
        head = {"request-id": self._settings.new_id(), **served.headers}
        began = Began(served.status, head, head["request-id"], 0.0)
        self._recorder.more(index, began, served.body)
        self._recorder.end(index, began, Ended(Ending.COMPLETE, 0.0, (*notes, "served from a recording"), served=True))
        return web.Response(status=served.status, body=served.body, headers=head)

    async def _on_record(self, asked: "Future[Request]") -> tuple[str, ...]:
        """Wait until a request is on record, though not for ever."""
        if not asked.done():
            await asyncio.wait((asyncio.wrap_future(asked),), timeout=self._settings.record_s)
        return () if asked.done() else ("the request was not on record when its answer was passed on",)

    async def _barred(self, asked: "Future[Request]") -> tuple[str, ...]:
        """Wait until a request is on record and the barrier passed; neither can fail the call."""
        late = await self._on_record(asked)
        if late or self._settings.barrier is None:
            return late
        try:
            await asyncio.wait_for(self._settings.barrier(asked.result()), self._settings.barrier_s)
        except Exception as error:  # noqa: BLE001 - one request of the proxy: what waits beside a call never fails it
            return (f"the barrier failed: {type(error).__name__}: {error}",)
        return ()

    async def _passed(self, request: web.BaseRequest, path: str, body: bytes) -> web.StreamResponse:
        """Pass on what is no exchange."""
        try:
            answer = await self._upstream.send(request.method, path, _end_to_end(request.headers), body)
        except (aiohttp.ClientError, OSError):
            return web.json_response(_error("api_error", "no answer from the upstream"), status=502)
        response, _ = await _pumped(request, answer, self._head(answer), None)
        return response

    def _head(self, answer: Answer) -> CIMultiDict[str]:
        head = _end_to_end(answer.headers)
        if "content-length" in answer.headers:
            head["Content-Length"] = answer.headers["content-length"]
        if "request-id" not in head:
            head["request-id"] = self._settings.new_id()
        return head

    def _own(self, index: int, status: int, kind: str, message: str) -> web.Response:
        """Answer in the upstream's place, and say so on record."""
        body = json.dumps(_error(kind, f"flightlog: {message}")).encode()
        request_id = self._settings.new_id()
        head = {"content-type": "application/json", "request-id": request_id}
        began = Began(status, head, request_id, 0.0)
        self._recorder.more(index, began, body)
        self._recorder.end(index, began, Ended(Ending.UNANSWERED, 0.0))
        return web.Response(status=status, body=body, headers=head)

    def _below_token(self, raw_path: str) -> str | None:
        word, slash, rest = raw_path.removeprefix("/").partition("/")
        right = hmac.compare_digest(word.encode("utf-8", "replace"), self._settings.token.encode())
        return "/" + rest if right and slash else None

    def _since(self, began_at: float) -> float:
        return round((self._loop.time() - began_at) * 1000, 3)


class _Copy:
    """A response on its way to the recorder, in few large parts: the call does not wait for the disk."""

    def __init__(self, recorder: Recorder, index: int, began: Began) -> None:
        self._recorder = recorder
        self._index = index
        self._began = began
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._has_begun = False
        # The head too goes to disk a moment later: written now, it would hold up the first byte.
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    def add(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._bytes += len(chunk)
        if self._bytes >= _FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    def end(self, ended: Ended) -> None:
        self._flush()
        self._recorder.end(self._index, self._began, ended)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._has_begun:
            self._has_begun = True
            self._recorder.begin(self._index, self._began)
        if self._waiting:
            self._recorder.more(self._index, self._began, b"".join(self._waiting))
            self._waiting = []
            self._bytes = 0


async def _whole(request: web.BaseRequest) -> bytes | None:
    """Read a body with no more copies of it than are needed; None where it is larger than is taken."""
    parts, size = [], 0
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
    return b"".join(parts)


async def _pumped(
    request: web.BaseRequest, answer: Answer, head: CIMultiDict[str], copy: _Copy | None
) -> tuple[web.StreamResponse, Ending]:
    """Pass a response on, chunk by chunk, and end it as the upstream did."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=head)
    try:
        await response.prepare(request)
        while True:
            try:
                chunk = await answer.content.readany()
            except (aiohttp.ClientError, OSError):
                # What had come before the break is the client's; aiohttp's own readers would drop it.
                if rest := answer.content._read_nowait(-1):  # noqa: SLF001
                    if copy is not None:
                        copy.add(rest)
                    await response.write(rest)
                # The client shall see a broken answer as broken: no last chunk, just the end of the connection.
                if request.transport is not None:
                    request.transport.close()
                return response, Ending.CUT
            if not chunk:
                break
            if copy is not None:
                copy.add(chunk)
            await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        return response, Ending.LEFT
    finally:
        answer.release()
    return response, Ending.COMPLETE


def _end_to_end(headers: "aiohttp.typedefs.LooseHeaders") -> CIMultiDict[str]:
    """The headers that are not of one connection only (RFC 9110, 7.6.1)."""
    given = CIMultiDict(headers)
    named = {name.strip().lower() for value in given.getall("connection", []) for name in value.split(",")}
    hop = _HOP | named if named else _HOP
    return CIMultiDict((name, value) for name, value in given.items() if name.lower() not in hop)


def _lower(headers: CIMultiDict[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _error(kind: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}
