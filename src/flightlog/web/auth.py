"""Token, origin and loopback checks; browser.

The token never stands in an argument list, which everybody on the machine can read: a browser
is given a private file that leads to the address.

Checked for every request, streams included: the Host header (another site's name may be made
to point here), the path (all pages live below one that cannot be guessed), where the browser says
the request comes from, the cookie, and for anything but reading also the Origin and a header
that a foreign page cannot set. The cookie is a random session id that this process alone knows. Every
answer carries the headers that keep a page from loading, running or sending anything that is not ours.
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
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def web_root(runtime: Runtime) -> str:
    """Return the path below which the pages of this home live; make it at the first call.

    It is kept, so that links stay valid. A browser sends cookies to every port of a host, but only
    to paths below the cookie's own: another server on this machine does not know this one.
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
    """Show `address` in the person's browser; say whether there is one."""
    lead = Path(runtime.data_dir) / "web" / "open.html"
    files.replace_file(lead, _LEAD.format(escape(address)).encode(), durable=False)
    return webbrowser.open(Path(lead).as_uri())


class AccessGuard:
    """Holds the token and the ids of the browsers that signed in; decides about one request at a time."""

    def __init__(self, token: str, root: str, *, read_only: bool = False) -> None:
        """Let in browsers that show `token` below `root`; `read_only` refuses every write."""
        assert len(token) >= 32, "a token that can be guessed is no token"
        self._token = token
        self._front = f"{root}/"
        self._sessions: set[str] = set()
        self._read_only = read_only

    def build_middleware(self) -> Middleware:
        """The check as aiohttp wants it; it belongs first in the list."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refuse_request(request)
            return refusal if refusal is not None else await handler(request)

        return check

    def _refuse_request(self, request: web.Request) -> web.StreamResponse | None:
        # The Host header may be wrong; a client that is gone already has no transport.
        port: int = request.transport.get_extra_info("sockname")[1] if request.transport else 0
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
        if request.headers.get("Host", "") not in hosts:
            return _text_response(403, "This server answers to its own address only.")
        if not request.path.startswith(self._front):
            return _text_response(404, "Open the address that `flightlog serve` printed.")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return _text_response(403, "Another site may not ask.")
        if request.headers.get("Sec-Fetch-Site") in OTHER_SITES and not self._is_opened_link(request):
            return _text_response(403, "Another site led here. Open the address that `flightlog serve` printed.")
        if request.method not in READING or "Upgrade" in request.headers:
            refused = self._refuse_write(request, origin)
            if refused is not None:
                return refused
        return self._check_sign_in(request, port)

    def _refuse_write(self, request: web.Request, origin: str | None) -> web.StreamResponse | None:
        if self._read_only:
            return _text_response(403, "Started with --read-only: nothing can be changed from here.")
        if origin is None or request.headers.get(WRITE_HEADER) != "1":
            return _text_response(403, f"A write needs an Origin of ours and the header {WRITE_HEADER}.")
        return None

    def _check_sign_in(self, request: web.Request, port: int) -> web.StreamResponse | None:
        name = f"flightlog-{port}"
        if self._is_sign_in(request):
            given = request.query["token"].encode("utf-8", "replace")
            if not secrets.compare_digest(given, self._token.encode()):
                return _text_response(
                    401, "That token is not this server's. `flightlog serve` prints the right address."
                )
            session = secrets.token_urlsafe(32)
            self._sessions.add(session)
            welcome = self._redirect_to_front(request)
            # No age: the ids end with this process, so a cookie that outlives the browser would be of no use.
            welcome.set_cookie(name, session, path=self._front, httponly=True, samesite="Strict")
            return welcome
        if request.cookies.get(name, "") not in self._sessions:
            return _text_response(401, "Open the address that `flightlog serve` printed; it carries the token.")
        return None

    def _is_sign_in(self, request: web.Request) -> bool:
        return "token" in request.query and request.path == self._front and request.method in READING

    def _is_opened_link(self, request: web.Request) -> bool:
        """Say whether the sign-in address was opened in a tab of its own, by a link or the private file of `serve`."""
        sent = request.headers
        is_tab = (sent.get("Sec-Fetch-Mode"), sent.get("Sec-Fetch-Dest")) == ("navigate", "document")
        return is_tab and self._is_sign_in(request)

    def _redirect_to_front(self, request: web.Request) -> web.Response:
        """Return the way to the first page. A strict cookie does not go along a redirect that another site began."""
        if request.headers.get("Sec-Fetch-Site") not in OTHER_SITES:
            return web.Response(status=303, headers={"Location": self._front})
        html = f'<!doctype html><meta http-equiv="refresh" content="0;url={self._front}"><title>flightlog</title>\n'
        return web.Response(text=html, content_type="text/html", charset="utf-8")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Put the protecting headers on an answer about to be sent, whatever it is."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)


def _text_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", content_type="text/plain", charset="utf-8")
