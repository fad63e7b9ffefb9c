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
from contextlib import suppress

import aiohttp
from aiohttp import web
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Ending, Request
from flightlog.sources.api.recorder import Arrived, Began, Ended, Recorder, Sent
from flightlog.sources.api.wire import Said

_FLUSH_S = 0.02
_FLUSH_BYTES = 1 << 18
_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)

Barrier = Callable[[Request], Awaitable[None]]
Rewrite = Callable[[Said, Arrived], Sent | None]


class Settings(Struct, frozen=True):
    """How to pass calls on.

    `barrier` is awaited, with the request on record, while the upstream is already at work, and
    before the first byte of its response is passed on. `rewrite` may put another body in the
    place of the client's; when it refuses (a FlightlogError), so does the proxy. `new_id` makes
    a request id where the upstream gives none.
    """

    upstream: str
    token: str
    new_id: Callable[[], str]
    barrier: Barrier | None = None
    rewrite: Rewrite | None = None
    barrier_s: float = 60.0
    record_s: float = 2.0


class Proxy:
    """Passes the calls of one client on; one for each session."""

    def __init__(self, settings: Settings, recorder: Recorder, client: aiohttp.ClientSession) -> None:
        """Take an open client; `serving` is the way in."""
        self._settings = settings
        self._recorder = recorder
        self._client = client
        self._loop = asyncio.get_running_loop()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = self._below_token(request.raw_path)
        if path is None:
            return web.Response(status=404)
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = await request.read()
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
        body = arrived.body if sent is None else sent.body
        upstream = asyncio.ensure_future(self._forwarded(request, arrived.path, body))
        gate = asyncio.ensure_future(self._gate(index, arrived, said, sent))
        try:
            try:
                answer = await upstream
            except (aiohttp.ClientError, OSError) as error:
                await gate
                return self._own(index, 502, "api_error", f"no answer from the upstream: {type(error).__name__}")
            notes = await gate
        except asyncio.CancelledError:
            _dropped(upstream)
            gate.cancel()
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

    async def _gate(self, index: int, arrived: Arrived, said: Said | None, sent: Sent | None) -> tuple[str, ...]:
        """Wait until the request is on record and the barrier passed; neither can fail the call."""
        asked = asyncio.wrap_future(self._recorder.ask(index, arrived, said, sent))
        try:
            request = await asyncio.wait_for(asyncio.shield(asked), self._settings.record_s)
        except TimeoutError:
            return ("the request was not on record when its answer was passed on",)
        if self._settings.barrier is None:
            return ()
        try:
            await asyncio.wait_for(self._settings.barrier(request), self._settings.barrier_s)
        except Exception as error:  # noqa: BLE001 - one request of the proxy: what waits beside a call never fails it
            return (f"the barrier failed: {type(error).__name__}: {error}",)
        return ()

    async def _passed(self, request: web.BaseRequest, path: str, body: bytes) -> web.StreamResponse:
        """Pass on what is no exchange."""
        try:
            answer = await self._forwarded(request, path, body)
        except (aiohttp.ClientError, OSError):
            return web.json_response(_error("api_error", "no answer from the upstream"), status=502)
        response, _ = await _pumped(request, answer, self._head(answer), None)
        return response

    async def _forwarded(self, request: web.BaseRequest, path: str, body: bytes) -> aiohttp.ClientResponse:
        url = URL(self._settings.upstream.rstrip("/") + path, encoded=True)
        return await self._client.request(
            request.method,
            url,
            data=body or None,
            headers=_end_to_end(request.headers),
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    def _head(self, answer: aiohttp.ClientResponse) -> CIMultiDict[str]:
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
        self._timer: asyncio.TimerHandle | None = None
        recorder.begin(index, began)

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
        if self._waiting:
            self._recorder.more(self._index, self._began, b"".join(self._waiting))
            self._waiting = []
            self._bytes = 0


async def _pumped(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, head: CIMultiDict[str], copy: _Copy | None
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
        answer.close() if not answer.content.at_eof() else answer.release()
    return response, Ending.COMPLETE


def _end_to_end(headers: "aiohttp.typedefs.LooseHeaders") -> CIMultiDict[str]:
    """The headers that are not of one connection only (RFC 9110, 7.6.1)."""
    given = CIMultiDict(headers)
    named = {name.strip().lower() for value in given.getall("connection", []) for name in value.split(",")}
    return CIMultiDict((name, value) for name, value in given.items() if name.lower() not in _HOP | named)


def _lower(headers: CIMultiDict[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _dropped(upstream: "asyncio.Future[aiohttp.ClientResponse]") -> None:
    """Let go of a call nobody waits for."""
    if not upstream.cancel():
        with suppress(aiohttp.ClientError, OSError):
            upstream.result().close()


def _error(kind: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}
