"""The way to the model's API: connections kept open, a request written at once, the answer as it comes.

It stands on aiohttp's own connector (names, TLS, keeping alive) and response parser, and leaves out
what a session of aiohttp does for each call besides (cookies, redirects, headers of its own), which
costs more than the rest of the proxy. Bodies come as they were sent: nothing is decompressed.
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

_BUFFER_BYTES = 1 << 18
_CONNECT_S = 30.0
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class UpstreamResponse:
    """A response of which the head is here; `release` it when done, whether or not it was read to its end."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: aiohttp.StreamReader) -> None:
        """Take what the parser gave."""
        self.status: int = message.code
        self.reason: str = message.reason
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self.release = connection.release


class Upstream:
    """One API, at one address."""

    def __init__(self, address: str, connector: aiohttp.TCPConnector, proxy: str = "") -> None:
        """Take an open connector; `upstream` is the way in."""
        url = URL(address.rstrip("/"))
        # A request only in name: it tells the connector where to connect and how.
        way_out = URL(proxy) if proxy else None
        self._door = aiohttp.ClientRequest("POST", url, loop=asyncio.get_running_loop(), proxy=way_out)
        self._connector = connector
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        self._base = url.raw_path.rstrip("/")
        self._host = f"Host: {url.host_port_subcomponent}\r\n"

    async def send_request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> UpstreamResponse:
        """Send a request and return the answer once its head is here."""
        head = [f"{method} {self._base}{path} HTTP/1.1\r\n", self._host]
        head += [f"{name}: {value}\r\n" for name, value in headers.items()]
        if body or method not in _WITHOUT_BODY:
            head.append(f"Content-Length: {len(body)}\r\n")
        whole = "".join((*head, "\r\n")).encode("utf-8", "surrogateescape") + body
        connection = await self._connector.connect(self._door, [], self._timeout)
        try:
            return await _read_answer(connection, method, whole)
        except HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientPayloadError(f"not an answer: {error.message}") from error
        except BaseException:
            connection.close()
            raise


@asynccontextmanager
async def open_upstream(address: str, proxy: str = "") -> AsyncIterator[Upstream]:
    """Open the way for the length of a block; `proxy` is a `proxy_for` the address."""
    connector = aiohttp.TCPConnector(limit=0)
    async with connector:
        yield Upstream(address, connector, proxy)


def proxy_for(address: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that leads to `address` from this machine, or nothing.

    Only an address with TLS gets one: the proxy then passes a tunnel on and never sees the key.
    """
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    url = URL(address)
    direct = url.scheme != "https" or is_loopback(address)
    if direct or proxy_bypass_environment(f"{url.host}:{url.port}", {"no": exempt}):
        return ""
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


async def _read_answer(connection: Connection, method: str, whole: bytes) -> UpstreamResponse:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None:
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(
        skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False, read_bufsize=_BUFFER_BYTES
    )
    transport.write(whole)
    while True:
        message, content = await protocol.read()
        if message.code >= 200:
            return UpstreamResponse(connection, message, content)
