"""Send requests to the model's API over persistent connections and return the undecoded responses.

Uses aiohttp's connector (DNS, TLS, keep-alive) and response parser, but not its client session:
cookies, redirects and default headers cost more than the rest of the proxy. Nothing is decompressed.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from flightlog.model.exchange import is_loopback

_BUFFER_BYTES = 1 << 18  # aiohttp's parser pauses the socket above it
_CONNECT_S = 30.0  # only for the connection: a model may think for minutes before the first byte
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class UpstreamResponse:
    """A response whose head has arrived; call `release` when done, even if `content` is unread."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: aiohttp.StreamReader) -> None:
        """Wrap the results of aiohttp's parser."""
        self.status: int = message.code
        self.reason: str = message.reason
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self.release = connection.release


class Upstream:
    """One API at one address; made by `open_upstream`."""

    def __init__(self, address: str, connector: aiohttp.BaseConnector, proxy: str = "") -> None:
        """Use an open connector."""
        url = URL(address.rstrip("/"))
        # Never sent: the connector takes host, TLS and proxy from a request object.
        proxy_url = URL(proxy) if proxy else None
        self._target = aiohttp.ClientRequest("POST", url, loop=asyncio.get_running_loop(), proxy=proxy_url)
        self._connector = connector
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        self._base = url.raw_path.rstrip("/")
        self._host = f"Host: {url.host_port_subcomponent}\r\n"

    async def send_request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> UpstreamResponse:
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


@asynccontextmanager
async def open_upstream(address: str, proxy: str = "") -> AsyncIterator[Upstream]:
    """Open connections for the length of a block; `proxy` is the `proxy_for` the address."""
    async with aiohttp.TCPConnector(limit=0) as connector:
        yield Upstream(address, connector, proxy)


def proxy_for(address: str, environ: Mapping[str, str]) -> str:
    """Return this machine's proxy for `address`, or "".

    Only an address with TLS gets one: the proxy then forwards a tunnel and never sees the key.
    """
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    url = URL(address)
    direct = url.scheme != "https" or is_loopback(address)
    if direct or proxy_bypass_environment(f"{url.host}:{url.port}", {"no": exempt}):
        return ""
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


async def _exchange(connection: Connection, method: str, data: bytes) -> UpstreamResponse:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None:
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(
        skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False, read_bufsize=_BUFFER_BYTES
    )
    transport.write(data)
    while True:
        message, content = await protocol.read()
        if message.code >= 200:
            return UpstreamResponse(connection, message, content)
