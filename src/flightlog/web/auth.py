"""Check the token, origin and host of each request; open the browser.

The token is never passed in an argument list, which every user of the machine can read: the
browser opens a private file that redirects to the address.

Every request, streams included, is checked for: the Host header (against DNS rebinding), the path
(all pages are below a random one), Sec-Fetch-Site, the cookie, and for writes also the Origin and a
header that a foreign page cannot set. The cookie is a random session id known only to this process.
Every response carries headers that stop a page from loading, running or sending foreign content.
"""

import re
import secrets
import webbrowser
from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from flightlog.model.runtime import Runtime
from flightlog.store import files
from flightlog.store.directories import ensure_writable

_NAME = re.compile(r"[0-9a-f]{32}")  # 128 random bits
_LEAD = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>flightlog</title>\n'
READING = frozenset({"GET", "HEAD"})
WRITE_HEADER = "X-Flightlog"
OTHER_SITES = frozenset({"cross-site", "same-site"})  # same-site: another port of this host
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def web_root(runtime: Runtime) -> str:
    """Return the random path of all pages; create and store it at the first call.

    It is stored so that links stay valid. A browser sends cookies to every port of a host, but only
    below the cookie's path, which another server on this machine does not know.
    """
    path = Path(runtime.data_dir) / "web" / "root"
    try:
        name = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not _NAME.fullmatch(name) or path.stat().st_mode & 0o077:
        ensure_writable(Path(runtime.data_dir))
        name = secrets.token_hex(16)
        files.replace_file(path, name.encode() + b"\n", durable=False)
    return f"/{name}"


def open_browser(runtime: Runtime, address: str) -> bool:
    """Open `address` in the browser; return whether one was found."""
    redirect = Path(runtime.data_dir) / "web" / "open.html"
    files.replace_file(redirect, _LEAD.format(escape(address)).encode(), durable=False)
    return webbrowser.open(redirect.as_uri())


class AccessGuard:
    """Hold the token and the ids of signed-in browsers; accept or refuse requests."""

    def __init__(self, token: str, root: str, *, read_only: bool = False) -> None:
        """Accept browsers that present `token` below `root`; `read_only` refuses every write."""
        assert len(token) >= 32, "a shorter token can be guessed"
        self._token = token
        self._front = f"{root}/"
        self._sessions: set[str] = set()
        self._read_only = read_only

    def build_middleware(self) -> Middleware:
        """Return the check as aiohttp middleware; it must come first in the list."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refuse_request(request)
            return refusal if refusal is not None else await handler(request)

        return check

    def _refuse_request(self, request: web.Request) -> web.StreamResponse | None:
        # The port comes from the socket, not from the Host header; a closed client has none.
        port: int = request.transport.get_extra_info("sockname")[1] if request.transport else 0
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
        if request.headers.get("Host", "") not in hosts:
            return _text_response(403, "This server answers only to its own address.")
        if not request.path.startswith(self._front):
            return _text_response(404, "Open the address that `flightlog serve` printed.")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return _text_response(403, "Requests from other sites are refused.")
        is_foreign = request.headers.get("Sec-Fetch-Site") in OTHER_SITES
        if is_foreign and not self._is_opened_link(request):
            text = "Links from other sites are refused. Open the address that `flightlog serve` printed."
            return _text_response(403, text)
        if request.method not in READING or "Upgrade" in request.headers:
            refused = self._refuse_write(request, origin)
            if refused is not None:
                return refused
        return self._check_sign_in(request, port)

    def _refuse_write(self, request: web.Request, origin: str | None) -> web.StreamResponse | None:
        if self._read_only:
            text = "This server was started with --read-only, so it changes nothing."
            return _text_response(403, text)
        if origin is None or request.headers.get(WRITE_HEADER) != "1":
            text = f"A write needs this server's Origin and the header {WRITE_HEADER}."
            return _text_response(403, text)
        return None

    def _check_sign_in(self, request: web.Request, port: int) -> web.StreamResponse | None:
        name = f"flightlog-{port}"
        if self._is_sign_in(request):
            token = request.query["token"].encode("utf-8", "replace")
            if not secrets.compare_digest(token, self._token.encode()):
                text = "Wrong token. Open the address that `flightlog serve` printed."
                return _text_response(401, text)
            session = secrets.token_urlsafe(32)
            self._sessions.add(session)
            response = self._redirect_to_front(request)
            # A session cookie: the ids end with this process, so a longer life is useless.
            response.set_cookie(name, session, path=self._front, httponly=True, samesite="Strict")
            return response
        if request.cookies.get(name, "") not in self._sessions:
            text = "Open the address that `flightlog serve` printed; it contains the token."
            return _text_response(401, text)
        return None

    def _is_sign_in(self, request: web.Request) -> bool:
        is_front = request.path == self._front and request.method in READING
        return is_front and "token" in request.query

    def _is_opened_link(self, request: web.Request) -> bool:
        """Return whether the sign-in address was opened in a tab, as by `open_browser`."""
        headers = request.headers
        opened = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest"))
        return opened == ("navigate", "document") and self._is_sign_in(request)

    def _redirect_to_front(self, request: web.Request) -> web.Response:
        """Redirect to the first page; by HTML after another site, where a strict cookie is lost."""
        if request.headers.get("Sec-Fetch-Site") not in OTHER_SITES:
            return web.Response(status=303, headers={"Location": self._front})
        html = f'<!doctype html><meta http-equiv="refresh" content="0;url={self._front}"><title>flightlog</title>\n'
        return web.Response(text=html, content_type="text/html", charset="utf-8")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)


def _text_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", content_type="text/plain", charset="utf-8")
