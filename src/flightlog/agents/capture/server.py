"""Run the capture proxy on the running event loop or on its own thread.

    recorder = ExchangeRecorder(ExchangeStore(folder, now=…, new_id=…), secrets=(key,))
    with capture_in_thread(ProxySettings(upstream, token, new_id), recorder) as base_url:
        …  # run the client with ANTHROPIC_BASE_URL=base_url; one proxy per session
    recorder.losses     # what could not be stored

When the block ends, everything captured is on disk.
"""

import asyncio
import queue
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache, partial
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
from aiohttp import web

from flightlog.agents.capture.proxy import Proxy, ProxySettings, Upstream
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.exchange import is_loopback

LOOPBACK = "127.0.0.1"
_Started = tuple[str, Callable[[], object]] | BaseException


@asynccontextmanager
async def open_upstream(
    address: str, proxy: str = "", certificates: tuple[str, ...] = ()
) -> AsyncIterator[Upstream]:
    """Open connections for the length of a block; `proxy` is the `proxy_for` the address."""
    async with aiohttp.TCPConnector(limit=0, ssl=trust_certificates(certificates)) as connector:
        yield Upstream(address, connector, proxy)


def certificate_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files with certificate authorities that the environment names."""
    names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return tuple(dict.fromkeys(environ[name] for name in names if environ.get(name)))


@lru_cache(maxsize=4)
def trust_certificates(paths: tuple[str, ...]) -> ssl.SSLContext | bool:
    """Return what TLS trusts: the system's authorities and those in `paths`.

    Cached: reading them takes 40 ms, and connections are shared only within one context.
    """
    if not paths:
        return True
    context = ssl.create_default_context()
    for path in paths:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            hint = "see SSL_CERT_FILE"
            raise Invalid(f"no certificates can be read: {path[:200]}", hint=hint) from error
    return context


def proxy_for(address: str, environ: Mapping[str, str]) -> str:
    """Return this machine's proxy for `address`, or "".

    With TLS the proxy forwards a tunnel and never sees the key. This machine itself is never
    reached through one.
    """
    url = urlsplit(address)
    own = f"{url.scheme}_proxy"
    names = (own.upper(), own, "ALL_PROXY", "all_proxy")
    proxy = next((environ[name] for name in names if environ.get(name)), "")
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    host = f"{url.hostname}:{url.port or ''}"
    if is_loopback(address) or proxy_bypass_environment(host, {"no": exempt}):
        return ""
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


@contextmanager
def capture_in_thread(settings: ProxySettings, recorder: ExchangeRecorder) -> Iterator[str]:
    """Serve on a thread for the length of a block; yields the client's base URL."""
    started: queue.SimpleQueue[_Started] = queue.SimpleQueue()
    given = (settings, recorder, started)
    thread = threading.Thread(target=_run_server, args=given, name="proxy", daemon=True)
    thread.start()
    result = started.get()
    if isinstance(result, BaseException):
        thread.join()
        hint = "free a loopback port"
        raise Unavailable(f"the capture proxy cannot start: {result}", hint=hint) from result
    url, stop = result
    try:
        yield url
    finally:
        stop()
        thread.join()
        recorder.close()


@asynccontextmanager
async def serve_proxy(settings: ProxySettings, recorder: ExchangeRecorder) -> AsyncIterator[str]:
    """Serve on the running loop; yields the client's base URL."""
    if not settings.upstream.startswith(("https://", "http://")):
        hint = "it begins with https://"
        raise Invalid(f"not an address of an API: {settings.upstream[:80]!r}", hint=hint)
    async with open_upstream(settings.upstream, settings.proxy, settings.certificates) as upstream:
        handle = Proxy(settings, recorder, upstream).handle_request
        server = web.Server(
            handle, handler_cancellation=True, auto_decompress=False, access_log=None
        )
        runner = web.ServerRunner(server, shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, LOOPBACK, 0).start()
            yield f"http://{LOOPBACK}:{runner.addresses[0][1]}/{settings.token}"
        finally:
            await runner.cleanup()


def _run_server(
    settings: ProxySettings, recorder: ExchangeRecorder, started: "queue.SimpleQueue[_Started]"
) -> None:
    async def main() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with serve_proxy(settings, recorder) as url:
            started.put((url, partial(loop.call_soon_threadsafe, stopped.set)))
            await stopped.wait()

    try:
        asyncio.run(main())
    except BaseException as error:  # noqa: BLE001 - the thread that started this one raises it
        started.put(error)
