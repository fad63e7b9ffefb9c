"""The capture proxy: forward a client's API calls to one upstream and record a copy of each.

A secret token in the path keeps other local programs out. The client gets the bytes of a response
unchanged: the first of them after the request is recorded, and those it can act on after the
barrier has passed. A failure to record never fails the call.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future

import aiohttp
from aiohttp import web
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from flightlog.agents.capture.recorder import (
    ExchangeRecorder,
    IncomingRequest,
    ResponseEnd,
    ResponseStart,
    ResponseTee,
    RewrittenRequest,
    ServedResponse,
)
from flightlog.agents.dialects.anthropic_messages import FirstBlock, RequestInfo
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import ApiRequest, ResponseOutcome

_BUFFER_BYTES = 1 << 18  # aiohttp's parser pauses the socket above it
_CONNECT_S = 30.0  # only for the connection: a model may think for minutes before the first byte
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
BODY_BYTES_MAX = 256 << 20  # far above any request the API accepts; bounds memory
_HOP_HEADERS = """
connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer
transfer-encoding upgrade host content-length expect
"""
BarrierNotes = asyncio.Future[tuple[str, ...]]
Barrier = Callable[[ApiRequest], Awaitable[None]]
Rewrite = Callable[[RequestInfo, IncomingRequest], RewrittenRequest | ServedResponse | None]


class UpstreamResponse:
    """A response whose head has arrived; call `release` when done, even if `content` is unread."""

    def __init__(
        self, connection: Connection, message: RawResponseMessage, content: aiohttp.StreamReader
    ) -> None:
        """Wrap the results of aiohttp's parser."""
        self.status: int = message.code
        self.reason: str = message.reason
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self.release = connection.release


class Upstream:
    """One API at one address; made by `server.open_upstream`."""

    def __init__(self, address: str, connector: aiohttp.BaseConnector, proxy: str = "") -> None:
        url = URL(address.rstrip("/"))
        proxy_url = URL(proxy) if proxy else None
        login = aiohttp.BasicAuth.from_url(proxy_url) if proxy_url else None
        # Never sent: the connector takes host, TLS and proxy from a request object.
        self._target = aiohttp.ClientRequest(
            "POST",
            url,
            loop=asyncio.get_running_loop(),
            proxy=proxy_url.with_user(None) if proxy_url else None,
            proxy_auth=login,
        )
        self._address = str(url.with_user(None)).rstrip("/")
        self._connector = connector
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        self._base = url.raw_path.rstrip("/")
        self._host = f"Host: {url.host_port_subcomponent}\r\n"
        if proxy_url and url.scheme == "http":  # without a tunnel, the proxy reads the whole URL
            self._base = f"http://{url.host_port_subcomponent}{self._base}"
            self._host += f"Proxy-Authorization: {login.encode()}\r\n" if login else ""

    def url_of(self, path: str) -> str:
        """Return the URL that a path below the token is sent to, without a login."""
        return f"{self._address}{path}"

    async def send_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> UpstreamResponse:
        """Send a request and return the response once its head has arrived."""
        head = [f"{method} {self._base}{path} HTTP/1.1\r\n", self._host]
        head += [f"{name}: {value}\r\n" for name, value in headers.items()]
        if body or method not in _WITHOUT_BODY:
            head.append(f"Content-Length: {len(body)}\r\n")
        data = "".join((*head, "\r\n")).encode("utf-8", "surrogateescape") + body
        connection = await self._connector.connect(self._target, [], self._timeout)
        try:
            return await _exchange(connection, method, data)
        except HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientPayloadError(f"not an HTTP response: {error.message}") from error
        except BaseException:
            connection.close()
            raise


async def _exchange(connection: Connection, method: str, data: bytes) -> UpstreamResponse:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None:
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(
        skip_payload=method == "HEAD",
        read_until_eof=True,
        auto_decompress=False,
        read_bufsize=_BUFFER_BYTES,
    )
    transport.write(data)
    while True:
        message, content = await protocol.read()
        if message.code >= 200:
            return UpstreamResponse(connection, message, content)


class ProxySettings(Struct, frozen=True):
    """The upstream and what happens to each call.

    `barrier` is awaited after the request is recorded; until it has passed, only the first block of
    a streamed response is forwarded. `rewrite` may replace the client's body or give the response
    itself; if it raises a FlightlogError, the proxy rejects the call. `new_id` makes a request id
    if the upstream gives none. `proxy` is the machine's own proxy, `certificates` are files with
    authorities that TLS trusts beside the system's.
    """

    upstream: str
    token: str
    new_id: Callable[[], str]
    barrier: Barrier | None = None
    rewrite: Rewrite | None = None
    barrier_s: float = 60.0
    record_s: float = 2.0
    proxy: str = ""
    certificates: tuple[str, ...] = ()
    body_bytes_max: int = BODY_BYTES_MAX


class Proxy:
    """Forwards the calls of one session; `server.serve_proxy` runs it."""

    def __init__(
        self, settings: ProxySettings, recorder: ExchangeRecorder, upstream: Upstream
    ) -> None:
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
        body = await _read_body(request, self._settings.body_bytes_max)
        if body is None:
            return web.Response(status=413)
        if request.method == "POST" and path.partition("?")[0].endswith("/v1/messages"):
            headers = {name.lower(): value for name, value in request.headers.items()}
            url = self._upstream.url_of(path)
            incoming = IncomingRequest(request.method, path, headers, body, url)
            return await self._forward_exchange(request, incoming)
        return await self._pass_through(request, path, body)

    async def _forward_exchange(
        self, request: web.BaseRequest, incoming: IncomingRequest
    ) -> web.StreamResponse:
        """Forward a call; its request is recorded first, its response as it streams."""
        started_at = self._loop.time()
        if self._settings.rewrite is not None:
            # A budget must know what the calls cost that ended before this one.
            await self._wait_until_recorded(self._recorder.wait_for_ended())
        index = self._recorder.next_index()
        info, rewritten = None, None
        if self._settings.rewrite is not None:
            info = self._recorder.classify_request(incoming)
            try:
                rewritten = self._settings.rewrite(info, incoming)
            except FlightlogError as error:
                self._recorder.record_request(index, incoming, info, None)
                return self._respond_with_error(index, 400, "invalid_request_error", str(error))
        if isinstance(rewritten, ServedResponse):
            return await self._serve_recorded(index, incoming, info, rewritten)
        body = incoming.body if rewritten is None else rewritten.body
        stored = self._recorder.record_request(index, incoming, info, rewritten)
        barrier = asyncio.ensure_future(self._wait_for_barrier(stored))
        answer = None
        headers = _end_to_end_headers(request.headers)
        headers.update(rewritten.headers if rewritten is not None else {})
        try:
            try:
                send = self._upstream.send_request
                answer = await send(request.method, incoming.path, headers, body)
            except (aiohttp.ClientError, OSError) as error:
                await barrier
                message = f"no answer from the upstream: {type(error).__name__}"
                return self._respond_with_error(index, 502, "api_error", message)
            await self._wait_until_recorded(stored)
        except asyncio.CancelledError:
            barrier.cancel()
            if answer is not None:
                answer.release()
            end = ResponseEnd(ResponseOutcome.LEFT, self._elapsed_ms(started_at))
            self._recorder.record_response_end(index, ResponseStart(0, {}, "", 0.0), end)
            raise
        return await self._stream_answer(request, answer, index, started_at, barrier)

    async def _stream_answer(
        self,
        request: web.BaseRequest,
        answer: UpstreamResponse,
        index: int,
        started_at: float,
        barrier: BarrierNotes,
    ) -> web.StreamResponse:
        """Send the upstream's answer to the client and to the recording as it comes."""
        head = self._response_headers(answer)
        lower_head = {name.lower(): value for name, value in head.items()}
        first_ms = self._elapsed_ms(started_at)
        start = ResponseStart(answer.status, lower_head, head["request-id"], first_ms)
        copy = ResponseTee(self._recorder, index, start)
        outcome = ResponseOutcome.LEFT
        try:
            response, outcome = await _pump_response(request, answer, head, barrier, copy)
        finally:
            notes = barrier.result() if barrier.done() and not barrier.cancelled() else ()
            barrier.cancel()
            copy.finish_copy(ResponseEnd(outcome, self._elapsed_ms(started_at), notes))
        return response

    async def _serve_recorded(
        self,
        index: int,
        incoming: IncomingRequest,
        info: RequestInfo | None,
        served: ServedResponse,
    ) -> web.Response:
        """Respond without the upstream, after the request is recorded and the barrier has passed."""
        stored = self._recorder.record_request(index, incoming, info, None)
        notes = (*await self._wait_for_barrier(stored), "served from a recording")
        head = {"request-id": self._settings.new_id(), **served.headers}
        end = ResponseEnd(ResponseOutcome.COMPLETE, 0.0, notes, served=True)
        return self._respond(index, served.status, head, served.body, end)

    def _respond_with_error(self, index: int, status: int, kind: str, message: str) -> web.Response:
        body = json.dumps(_error_body(kind, f"flightlog: {message}")).encode()
        head = {"content-type": "application/json", "request-id": self._settings.new_id()}
        end = ResponseEnd(ResponseOutcome.UNANSWERED, 0.0)
        return self._respond(index, status, head, body, end)

    def _respond(
        self, index: int, status: int, head: dict[str, str], body: bytes, end: ResponseEnd
    ) -> web.Response:
        """Return a response of our own and record it."""
        start = ResponseStart(status, head, head["request-id"], 0.0)
        self._recorder.record_chunk(index, start, body)
        self._recorder.record_response_end(index, start, end)
        return web.Response(status=status, body=body, headers=head)

    async def _wait_until_recorded(
        self, stored: "Future[ApiRequest] | Future[None]"
    ) -> tuple[str, ...]:
        """Wait until something is recorded, at most `record_s`; return a note if it is not."""
        if not stored.done():
            await asyncio.wait((asyncio.wrap_future(stored),), timeout=self._settings.record_s)
        note = "the response was forwarded before the request was recorded"
        return () if stored.done() else (note,)

    async def _wait_for_barrier(self, stored: "Future[ApiRequest]") -> tuple[str, ...]:
        """Wait until a request is recorded and the barrier has passed; return notes on failures."""
        notes = await self._wait_until_recorded(stored)
        if notes or self._settings.barrier is None:
            return notes
        try:
            barrier = self._settings.barrier(stored.result())
            await asyncio.wait_for(barrier, self._settings.barrier_s)
        except Exception as error:  # noqa: BLE001 - one request of the proxy: a barrier never fails a call
            return (f"the barrier failed: {type(error).__name__}: {error}",)
        return ()

    async def _pass_through(
        self, request: web.BaseRequest, path: str, body: bytes
    ) -> web.StreamResponse:
        """Forward a request that is not recorded."""
        try:
            headers = _end_to_end_headers(request.headers)
            answer = await self._upstream.send_request(request.method, path, headers, body)
        except (aiohttp.ClientError, OSError):
            return web.json_response(
                _error_body("api_error", "no answer from the upstream"), status=502
            )
        passed: BarrierNotes = self._loop.create_future()
        passed.set_result(())
        return (await _pump_response(request, answer, self._response_headers(answer), passed))[0]

    def _response_headers(self, answer: UpstreamResponse) -> CIMultiDict[str]:
        head = _end_to_end_headers(answer.headers)
        if "content-length" in answer.headers:
            head["Content-Length"] = answer.headers["content-length"]
        if "request-id" not in head:
            head["request-id"] = self._settings.new_id()
        return head

    def _path_below_token(self, raw_path: str) -> str | None:
        token, slash, rest = raw_path.removeprefix("/").partition("/")
        expected = self._settings.token.encode()
        matches = hmac.compare_digest(token.encode("utf-8", "replace"), expected)
        return "/" + rest if matches and slash else None

    def _elapsed_ms(self, started_at: float) -> float:
        return round((self._loop.time() - started_at) * 1000, 3)


async def _read_body(request: web.BaseRequest, bytes_max: int) -> bytes | None:
    """Return the body, copied once, or None if it is larger than `bytes_max`."""
    parts, size = [], 0
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            return None
    return b"".join(parts)


async def _pump_response(
    request: web.BaseRequest,
    answer: UpstreamResponse,
    head: CIMultiDict[str],
    barrier: BarrierNotes,
    copy: ResponseTee | None = None,
) -> tuple[web.StreamResponse, ResponseOutcome]:
    """Forward a response chunk by chunk and end it as the upstream did.

    What follows the first block of a stream, or all of another body, waits for the barrier.
    """
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=head)
    block = FirstBlock(head)
    is_cut = False
    try:
        await response.prepare(request)
        while not is_cut:
            chunk, is_cut = await _read_chunk(answer)
            if not chunk:
                break
            if copy is not None:
                copy.add_chunk(chunk)
            if not barrier.done():
                if size := block.count_bytes(chunk):
                    await response.write(chunk[:size])
                if chunk := chunk[size:]:
                    await barrier
            await response.write(chunk)
        await barrier
        if not is_cut:
            await response.write_eof()
        elif request.transport is not None:
            # Close without a last chunk, so that the client too sees a broken response.
            request.transport.close()
    except ConnectionError:
        return response, ResponseOutcome.LEFT
    finally:
        answer.release()
    return response, ResponseOutcome.CUT if is_cut else ResponseOutcome.COMPLETE


async def _read_chunk(answer: UpstreamResponse) -> tuple[bytes, bool]:
    """Return the next bytes of a response, b"" at its end, and whether it breaks after them."""
    try:
        return await answer.content.readany(), False
    except (aiohttp.ClientError, OSError):
        # What arrived before the break; aiohttp's own readers would drop it.
        return answer.content._read_nowait(-1), True  # noqa: SLF001


def _end_to_end_headers(headers: "aiohttp.typedefs.LooseHeaders") -> CIMultiDict[str]:
    """Return the headers that are not for one connection only (RFC 9110, 7.6.1)."""
    fields = CIMultiDict(headers)
    named = ",".join(fields.getall("connection", [])).split(",")
    hop = set(_HOP_HEADERS.split()).union(name.strip().lower() for name in named)
    return CIMultiDict((name, value) for name, value in fields.items() if name.lower() not in hop)


def _error_body(kind: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}
