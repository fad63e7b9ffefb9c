"""The server: loopback only, one token per start, every page below one path and behind the guard.

Knows addresses and sockets; which addresses there are and what they show is decided in `pages`.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from flightlog.app.directories import reads_samples
from flightlog.model.errors import Conflict, FlightlogError, Invalid, NotFound, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.web.auth import AccessGuard, add_headers
from flightlog.web.context import DESK, BackgroundProcesses, WebContext, html_response
from flightlog.web.data import WebData
from flightlog.web.live_updates import UpdateHub, render_changes
from flightlog.web.pages import SECTIONS
from flightlog.web.templates import STATIC, make_environment

HOSTS = ("127.0.0.1", "::1")
STATUS: tuple[tuple[type[FlightlogError], int], ...] = (
    (NotFound, 404),
    (Invalid, 400),
    (Conflict, 409),
    (Unavailable, 503),
    (FlightlogError, 500),
)
# A browser sends its headers at once and a page of ours asks again within 3 s; longer silence is a half-open request.
IDLE_S = 10
# What a refused request still wants to send is read for this long, so that its client sees the refusal.
LINGER_S = 2
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServerConfig(Struct, frozen=True):
    """How to serve: what to show, to whom, below which path (`/` and a random name), and where."""

    runtime: Runtime
    token: str
    root: str
    port: int = 0
    read_only: bool = False


def build_application(serving: ServerConfig) -> web.Application:
    """Put the server together."""
    root = serving.root
    guard = AccessGuard(serving.token, root, read_only=serving.read_only)
    app = web.Application(middlewares=[guard.build_middleware(), _error_middleware])
    templates = make_environment(serving.runtime.zone, serving.runtime.clock.now_ms, root)
    data = WebData(serving.runtime)
    app[DESK] = WebContext(
        data,
        templates,
        UpdateHub(render_changes(templates), data.shelf),
        SECTIONS,
        BackgroundProcesses(),
        serving.read_only,
        root,
        reads_samples(serving.runtime),
    )
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(_end_streams)
    app.on_cleanup.append(_close_services)
    static = web.get("/static/{name:(?:vendor/)?[a-z0-9]+[.](?:css|js|svg)}", _serve_static)
    routes = [static, *(route for family in SECTIONS for route in family.routes)]
    app.add_routes(web.RouteDef(route.method, root + route.path, route.handler, route.kwargs) for route in routes)
    return app


async def run_server(serving: ServerConfig, ready: Callable[[str], None]) -> None:
    """Serve until told to stop; `ready` is told the address once it answers."""
    log = logging.getLogger(__name__)
    log.addFilter(_is_bug)
    runner = web.AppRunner(
        build_application(serving),
        access_log=None,
        shutdown_timeout=1,
        keepalive_timeout=IDLE_S,
        lingering_time=LINGER_S,
        logger=log,
    )
    stopped = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        # Said outright: a shell that starts us in the background has SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await runner.setup()
    try:
        port = await _listen_on_loopback(runner, serving.port)
        ready(f"http://127.0.0.1:{port}{serving.root}/?token={serving.token}")
        await stopped.wait()
    finally:
        await runner.cleanup()
    raise KeyboardInterrupt


def _is_bug(record: logging.LogRecord) -> bool:
    """Say whether a logged error is ours; a malformed request is answered with 400 and is not."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def _listen_on_loopback(runner: web.AppRunner, wanted: int) -> int:
    """Bind loopback in both families; a machine without IPv6 has one."""
    first = _bind_socket(socket.AF_INET, HOSTS[0], wanted)
    port: int = first.getsockname()[1]
    await web.SockSite(runner, first).start()
    with contextlib.suppress(OSError, Unavailable, Conflict):
        await web.SockSite(runner, _bind_socket(socket.AF_INET6, HOSTS[1], port)).start()
    return port


def _bind_socket(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"port {port} is taken", hint="flightlog serve --port 0") from error
        raise Unavailable(f"cannot listen: {error.strerror}", hint="flightlog serve --port 0") from error
    return sock


async def _serve_static(request: web.Request) -> web.StreamResponse:
    path = STATIC / request.match_info["name"]
    if not path.is_file():
        raise NotFound("no such file", hint="make install")
    keep = "private, max-age=31536000, immutable" if "v" in request.query else "no-cache"
    body = await asyncio.to_thread(path.read_bytes)
    return web.Response(body=body, content_type=KINDS[path.suffix], charset="utf-8", headers={"Cache-Control": keep})


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an error a person can act on into a page that says so."""
    try:
        return await handler(request)
    except FlightlogError as error:
        status = next(code for kind, code in STATUS if isinstance(error, kind))
        html = request.app[DESK].render_html("error.html", status=status, message=error.message, hint=error.hint)
        return html_response(html, status)


async def _end_streams(app: web.Application) -> None:
    app[DESK].hub.close()


async def _close_services(app: web.Application) -> None:
    await asyncio.to_thread(app[DESK].errands.close_all)
    await asyncio.to_thread(app[DESK].data.close)
