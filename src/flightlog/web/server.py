"""The web server: loopback only, one token per start, every page behind the access guard."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from flightlog.agents.recordings import reads_samples
from flightlog.model.errors import Conflict, FlightlogError, Invalid, NotFound, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.web.auth import AccessGuard, Handler, add_headers
from flightlog.web.context import CONTEXT, BackgroundProcesses, WebContext, html_response
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
# Browsers send headers at once and our pages poll every 3 s; longer silence is a half-open request.
IDLE_S = 10
# The body of a refused request is read for this long, so that the client gets the refusal.
LINGER_S = 2
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class ServerConfig(Struct, frozen=True):
    """How to serve; `root` is the random path below which all pages are."""

    runtime: Runtime
    token: str
    root: str
    port: int = 0
    read_only: bool = False


def build_application(config: ServerConfig) -> web.Application:
    """Build the aiohttp application."""
    root = config.root
    guard = AccessGuard(config.token, root, read_only=config.read_only)
    app = web.Application(middlewares=[guard.build_middleware(), _error_middleware])
    templates = make_environment(config.runtime.zone, config.runtime.clock.now_ms, root)
    data = WebData(config.runtime)
    app[CONTEXT] = WebContext(
        data,
        templates,
        UpdateHub(render_changes(templates), data.cache),
        SECTIONS,
        BackgroundProcesses(),
        config.read_only,
        root,
        reads_samples(config.runtime),
    )
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(_end_streams)
    app.on_cleanup.append(_close_services)
    static = web.get("/static/{name:(?:vendor/)?[a-z0-9]+[.](?:css|js|svg)}", _serve_static)
    routes = [static, *(route for section in SECTIONS for route in section.routes)]
    app.add_routes(
        web.RouteDef(route.method, root + route.path, route.handler, route.kwargs)
        for route in routes
    )
    return app


async def run_server(config: ServerConfig, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; call `ready` with the address once the server listens."""
    log = logging.getLogger(__name__)
    log.addFilter(_is_bug)
    runner = web.AppRunner(
        build_application(config),
        access_log=None,
        shutdown_timeout=1,
        keepalive_timeout=IDLE_S,
        lingering_time=LINGER_S,
        logger=log,
    )
    stopped = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        # Set explicitly: a shell that starts us in the background ignores SIGINT.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await runner.setup()
    try:
        port = await _listen_on_loopback(runner, config.port)
        ready(f"http://127.0.0.1:{port}{config.root}/?token={config.token}")
        await stopped.wait()
    finally:
        await runner.cleanup()
    raise KeyboardInterrupt


def _is_bug(record: logging.LogRecord) -> bool:
    """Return whether a logged error is our bug; a malformed request, answered with 400, is not."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def _listen_on_loopback(runner: web.AppRunner, port: int) -> int:
    """Bind loopback for IPv4 and, if the machine has it, IPv6; return the port."""
    sock = _bind_socket(socket.AF_INET, HOSTS[0], port)
    port = int(sock.getsockname()[1])
    await web.SockSite(runner, sock).start()
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
        hint = "flightlog serve --port 0"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"port {port} is in use", hint=hint) from error
        raise Unavailable(f"cannot listen: {error.strerror}", hint=hint) from error
    return sock


async def _serve_static(request: web.Request) -> web.StreamResponse:
    path = STATIC / request.match_info["name"]
    if not path.is_file():
        raise NotFound("no such file", hint="make install")
    caching = "private, max-age=31536000, immutable" if "v" in request.query else "no-cache"
    body = await asyncio.to_thread(path.read_bytes)
    headers = {"Cache-Control": caching, "Content-Type": f"{KINDS[path.suffix]}; charset=utf-8"}
    return web.Response(body=body, headers=headers)


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn a FlightlogError into an error page."""
    try:
        return await handler(request)
    except FlightlogError as error:
        status = next(code for kind, code in STATUS if isinstance(error, kind))
        values = {"status": status, "message": error.message, "hint": error.hint}
        return html_response(request.app[CONTEXT].render_html("error.html", **values), status)


async def _end_streams(app: web.Application) -> None:
    app[CONTEXT].hub.close()


async def _close_services(app: web.Application) -> None:
    await asyncio.to_thread(app[CONTEXT].processes.close_all)
    await asyncio.to_thread(app[CONTEXT].data.close)
