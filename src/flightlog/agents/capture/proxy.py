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

from flightlog.agents.capture.recorder import (
    ExchangeRecorder,
    IncomingRequest,
    ResponseEnd,
    ResponseStart,
    RewrittenRequest,
    ServedResponse,
)
from flightlog.agents.capture.upstream import Upstream, UpstreamResponse
from flightlog.agents.dialects.anthropic_messages import RequestInfo
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import ApiRequest, ResponseOutcome

BODY_BYTES_MAX = 256 << 20
_FLUSH_S = 0.02
_FLUSH_BYTES = 1 << 18
_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)

Barrier = Callable[[ApiRequest], Awaitable[None]]
Rewrite = Callable[[RequestInfo, IncomingRequest], RewrittenRequest | ServedResponse | None]


class ProxySettings(Struct, frozen=True):
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

    def __init__(self, settings: ProxySettings, recorder: ExchangeRecorder, upstream: Upstream) -> None:
        """Take an open way to the upstream; `serving` is the way in."""
        self._settings = settings
        self._recorder = recorder
        self._upstream = upstream
        self._loop = asyncio.get_running_loop()

    async def handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = self._path_below_token(request.raw_path)
        if path is None:
            return web.Response(status=404)
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = await _read_body(request)
        if body is None:
            return web.Response(status=413)
        if request.method == "POST" and path.partition("?")[0].endswith("/v1/messages"):
            headers = {name.lower(): value for name, value in request.headers.items()}
            return await self._forward_exchange(request, IncomingRequest(request.method, path, headers, body))
        return await self._pass_through(request, path, body)

    async def _forward_exchange(self, request: web.BaseRequest, arrived: IncomingRequest) -> web.StreamResponse:
        """Pass a call on, with its request kept before and its response kept as it streams."""
        began_at = self._loop.time()
        index = self._recorder.next_index()
        said, sent = None, None
        if self._settings.rewrite is not None:
            said = self._recorder.classify_request(arrived)
            try:
                sent = self._settings.rewrite(said, arrived)
            except FlightlogError as error:
                self._recorder.record_request(index, arrived, said, None)
                return self._answer_with_error(index, 400, "invalid_request_error", str(error))
        if isinstance(sent, ServedResponse):
            return await self._serve_recorded(index, arrived, said, sent)
        body = arrived.body if sent is None else sent.body
        asked = self._recorder.record_request(index, arrived, said, sent)
        barred = asyncio.ensure_future(self._wait_for_barrier(asked)) if self._settings.barrier is not None else None
        answer = None
        try:
            try:
                answer = await self._upstream.send_request(
                    request.method, arrived.path, _end_to_end_headers(request.headers), body
                )
            finally:
                notes = await (barred or self._wait_until_recorded(asked))
        except (aiohttp.ClientError, OSError) as error:
            return self._answer_with_error(
                index, 502, "api_error", f"no answer from the upstream: {type(error).__name__}"
            )
        except asyncio.CancelledError:
            if barred is not None:
                barred.cancel()
            if answer is not None:
                answer.release()
            self._recorder.record_response_end(
                index, ResponseStart(0, {}, "", 0.0), ResponseEnd(ResponseOutcome.LEFT, self._elapsed_ms(began_at))
            )
            raise
        head = self._response_headers(answer)
        began = ResponseStart(answer.status, _lower_names(head), head["request-id"], self._elapsed_ms(began_at))
        copy = _ResponseTee(self._recorder, index, began)
        ending = ResponseOutcome.LEFT
        try:
            response, ending = await _pump_response(request, answer, head, copy)
        finally:
            copy.finish_copy(ResponseEnd(ending, self._elapsed_ms(began_at), notes))
        return response

    async def _serve_recorded(
        self, index: int, arrived: IncomingRequest, said: RequestInfo | None, served: ServedResponse
    ) -> web.Response:
        """Answer in the upstream's place; the request is on record and the barrier passed as with any other."""
        notes = await self._wait_for_barrier(self._recorder.record_request(index, arrived, said, None))
        head = {"request-id": self._settings.new_id(), **served.headers}
        began = ResponseStart(served.status, head, head["request-id"], 0.0)
        self._recorder.record_chunk(index, began, served.body)
        self._recorder.record_response_end(
            index, began, ResponseEnd(ResponseOutcome.COMPLETE, 0.0, (*notes, "served from a recording"), served=True)
        )
        return web.Response(status=served.status, body=served.body, headers=head)

    async def _wait_until_recorded(self, asked: "Future[ApiRequest]") -> tuple[str, ...]:
        """Wait until a request is on record, though not for ever."""
        if not asked.done():
            await asyncio.wait((asyncio.wrap_future(asked),), timeout=self._settings.record_s)
        return () if asked.done() else ("the request was not on record when its answer was passed on",)

    async def _wait_for_barrier(self, asked: "Future[ApiRequest]") -> tuple[str, ...]:
        """Wait until a request is on record and the barrier passed; neither can fail the call."""
        late = await self._wait_until_recorded(asked)
        if late or self._settings.barrier is None:
            return late
        try:
            await asyncio.wait_for(self._settings.barrier(asked.result()), self._settings.barrier_s)
        except Exception as error:  # noqa: BLE001 - one request of the proxy: what waits beside a call never fails it
            return (f"the barrier failed: {type(error).__name__}: {error}",)
        return ()

    async def _pass_through(self, request: web.BaseRequest, path: str, body: bytes) -> web.StreamResponse:
        """Pass on what is no exchange."""
        try:
            answer = await self._upstream.send_request(request.method, path, _end_to_end_headers(request.headers), body)
        except (aiohttp.ClientError, OSError):
            return web.json_response(_error_body("api_error", "no answer from the upstream"), status=502)
        response, _ = await _pump_response(request, answer, self._response_headers(answer), None)
        return response

    def _response_headers(self, answer: UpstreamResponse) -> CIMultiDict[str]:
        head = _end_to_end_headers(answer.headers)
        if "content-length" in answer.headers:
            head["Content-Length"] = answer.headers["content-length"]
        if "request-id" not in head:
            head["request-id"] = self._settings.new_id()
        return head

    def _answer_with_error(self, index: int, status: int, kind: str, message: str) -> web.Response:
        """Answer in the upstream's place, and say so on record."""
        body = json.dumps(_error_body(kind, f"flightlog: {message}")).encode()
        request_id = self._settings.new_id()
        head = {"content-type": "application/json", "request-id": request_id}
        began = ResponseStart(status, head, request_id, 0.0)
        self._recorder.record_chunk(index, began, body)
        self._recorder.record_response_end(index, began, ResponseEnd(ResponseOutcome.UNANSWERED, 0.0))
        return web.Response(status=status, body=body, headers=head)

    def _path_below_token(self, raw_path: str) -> str | None:
        word, slash, rest = raw_path.removeprefix("/").partition("/")
        right = hmac.compare_digest(word.encode("utf-8", "replace"), self._settings.token.encode())
        return "/" + rest if right and slash else None

    def _elapsed_ms(self, began_at: float) -> float:
        return round((self._loop.time() - began_at) * 1000, 3)


class _ResponseTee:
    """A response on its way to the recorder, in few large parts: the call does not wait for the disk."""

    def __init__(self, recorder: ExchangeRecorder, index: int, began: ResponseStart) -> None:
        self._recorder = recorder
        self._index = index
        self._began = began
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._has_begun = False
        # The head too goes to disk a moment later: written now, it would hold up the first byte.
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_chunks)

    def add_chunk(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._bytes += len(chunk)
        if self._bytes >= _FLUSH_BYTES:
            self._flush_chunks()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_chunks)

    def finish_copy(self, ended: ResponseEnd) -> None:
        self._flush_chunks()
        self._recorder.record_response_end(self._index, self._began, ended)

    def _flush_chunks(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._has_begun:
            self._has_begun = True
            self._recorder.record_response_start(self._index, self._began)
        if self._waiting:
            self._recorder.record_chunk(self._index, self._began, b"".join(self._waiting))
            self._waiting = []
            self._bytes = 0


async def _read_body(request: web.BaseRequest) -> bytes | None:
    """Read a body with no more copies of it than are needed; None where it is larger than is taken."""
    parts, size = [], 0
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
    return b"".join(parts)


async def _pump_response(
    request: web.BaseRequest, answer: UpstreamResponse, head: CIMultiDict[str], copy: _ResponseTee | None
) -> tuple[web.StreamResponse, ResponseOutcome]:
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
                        copy.add_chunk(rest)
                    await response.write(rest)
                # The client shall see a broken answer as broken: no last chunk, just the end of the connection.
                if request.transport is not None:
                    request.transport.close()
                return response, ResponseOutcome.CUT
            if not chunk:
                break
            if copy is not None:
                copy.add_chunk(chunk)
            await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        return response, ResponseOutcome.LEFT
    finally:
        answer.release()
    return response, ResponseOutcome.COMPLETE


def _end_to_end_headers(headers: "aiohttp.typedefs.LooseHeaders") -> CIMultiDict[str]:
    """The headers that are not of one connection only (RFC 9110, 7.6.1)."""
    given = CIMultiDict(headers)
    named = {name.strip().lower() for value in given.getall("connection", []) for name in value.split(",")}
    hop = _HOP | named if named else _HOP
    return CIMultiDict((name, value) for name, value in given.items() if name.lower() not in hop)


def _lower_names(headers: CIMultiDict[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _error_body(kind: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}
