"""Who may talk to the server: this machine's person, through a page of ours, and nobody else.

Checked for every request, streams included: the Host header (another site's name may be made
to point here), the token's cookie, and for anything but reading also the Origin and a header
that a foreign page cannot set. Every answer carries the headers that keep a page from loading,
running or sending anything that is not ours.
"""

import secrets
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

READING = frozenset({"GET", "HEAD"})
WRITE_HEADER = "X-Flightlog"
COOKIE_DAYS = 30
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """Holds the token; decides about one request at a time."""

    def __init__(self, token: str, *, read_only: bool = False) -> None:
        """Let in whoever knows `token`; `read_only` refuses every write, whoever asks."""
        assert len(token) >= 32, "a token that can be guessed is no token"
        self._token = token
        self._read_only = read_only

    def middleware(self) -> Middleware:
        """The check as aiohttp wants it; it belongs first in the list."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refusal(request)
            return refusal if refusal is not None else await handler(request)

        return check

    def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        port = _port(request)
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
        if request.headers.get("Host", "") not in hosts:
            return _plain(403, "This server answers to its own address only.")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return _plain(403, "Another site may not ask.")
        if request.method not in READING or "Upgrade" in request.headers:
            refused = self._refused_write(request, origin)
            if refused is not None:
                return refused
        return self._signed_in(request, port)

    def _refused_write(self, request: web.Request, origin: str | None) -> web.StreamResponse | None:
        if self._read_only:
            return _plain(403, "Started with --read-only: nothing can be changed from here.")
        if origin is None or request.headers.get(WRITE_HEADER) != "1":
            return _plain(403, f"A write needs an Origin of ours and the header {WRITE_HEADER}.")
        return None

    def _signed_in(self, request: web.Request, port: int) -> web.StreamResponse | None:
        name = f"flightlog-{port}"
        given = request.query.get("token")
        if given is not None and request.path == "/" and request.method in READING:
            if not _same(given, self._token):
                return _plain(401, "That token is not this server's. `flightlog serve` prints the right address.")
            welcome = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
            welcome.set_cookie(
                name, self._token, max_age=COOKIE_DAYS * 86_400, path="/", httponly=True, samesite="Strict"
            )
            return welcome
        if not _same(request.cookies.get(name, ""), self._token):
            return _sign_in(request)
        return None


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Put the protecting headers on an answer about to be sent, whatever it is."""
    response.headers.update(HEADERS)
    if not request.path.startswith("/static/"):
        response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)


def _port(request: web.Request) -> int:
    """The port the request came in on: the connection knows, the caller may lie."""
    assert request.transport is not None
    port = request.transport.get_extra_info("sockname")[1]
    assert isinstance(port, int)
    return port


def _same(one: str, two: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), two.encode())


def _sign_in(request: web.Request) -> web.Response:
    """Say how to get in; a page that led here from outside gets its strict cookie on the second try."""
    from_outside = request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and "again" not in request.query
    again = '<meta http-equiv="refresh" content="0;url=/?again">' if from_outside and request.path == "/" else ""
    said = "Open the address that <code>flightlog serve</code> printed; it carries the token."
    html = f'<!doctype html><html lang="en"><meta charset="utf-8">{again}<title>flightlog</title><p>{said}</p></html>\n'
    return web.Response(status=401, text=html, content_type="text/html", charset="utf-8")


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", content_type="text/plain", charset="utf-8")
