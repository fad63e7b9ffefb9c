"""Running the capture proxy: on a loop that is there, or on a thread of its own.

    recorder = Recorder(Exchanges(folder, now=…, new_id=…), secrets=(key,))
    with capturing(Settings("https://api.anthropic.com", token, new_id), recorder) as base_url:
        …  # run the client with ANTHROPIC_BASE_URL=base_url; one proxy per session
    recorder.losses     # what could not be kept

When the block ends, all that passed is on disk.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvloop
from aiohttp import web

from flightlog.agents.capture.proxy import Proxy, ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.upstream import open_upstream
from flightlog.model.errors import Invalid, Unavailable

LOOPBACK = "127.0.0.1"
_Started = tuple[str, Callable[[], object]] | BaseException


@contextmanager
def capture_in_thread(settings: ProxySettings, recorder: ExchangeRecorder) -> Iterator[str]:
    """Serve on a thread for the length of a block; the value is the client's base URL."""
    started: queue.SimpleQueue[_Started] = queue.SimpleQueue()
    thread = threading.Thread(target=_run_server, args=(settings, recorder, started), name="proxy", daemon=True)
    thread.start()
    begun = started.get()
    if isinstance(begun, BaseException):
        thread.join()
        raise Unavailable(f"the capture proxy cannot start: {begun}", hint="free a loopback port") from begun
    url, stop = begun
    try:
        yield url
    finally:
        stop()
        thread.join()
        recorder.close()


@asynccontextmanager
async def serve_proxy(settings: ProxySettings, recorder: ExchangeRecorder) -> AsyncIterator[str]:
    """Serve on the running loop; the value is the client's base URL."""
    if not settings.upstream.startswith(("https://", "http://")):
        raise Invalid(f"not an address of an API: {settings.upstream[:80]!r}", hint="it begins with https://")
    async with open_upstream(settings.upstream, settings.proxy) as way:
        server = web.Server(
            Proxy(settings, recorder, way).handle_request,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, LOOPBACK, 0)
            await site.start()
            port = runner.addresses[0][1]
            yield f"http://{LOOPBACK}:{port}/{settings.token}"
        finally:
            await runner.cleanup()


def _run_server(settings: ProxySettings, recorder: ExchangeRecorder, started: "queue.SimpleQueue[_Started]") -> None:
    async def main() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with serve_proxy(settings, recorder) as url:
            started.put((url, partial(loop.call_soon_threadsafe, stopped.set)))
            await stopped.wait()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
        started.put(error)
