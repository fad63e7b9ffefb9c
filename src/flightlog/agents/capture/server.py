"""Run the capture proxy on the running event loop or on its own thread.

    recorder = ExchangeRecorder(ExchangeStore(folder, now=…, new_id=…), secrets=(key,))
    with capture_in_thread(ProxySettings(upstream, token, new_id), recorder) as base_url:
        …  # run the client with ANTHROPIC_BASE_URL=base_url; one proxy per session
    recorder.losses     # what could not be stored

When the block ends, everything captured is on disk.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvloop
from aiohttp import web

from flightlog.agents.capture.proxy import Proxy, ProxySettings, open_upstream
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.model.errors import Invalid, Unavailable

LOOPBACK = "127.0.0.1"
_Started = tuple[str, Callable[[], object]] | BaseException


@contextmanager
def capture_in_thread(settings: ProxySettings, recorder: ExchangeRecorder) -> Iterator[str]:
    """Serve on a thread for the length of a block; yields the client's base URL."""
    started: queue.SimpleQueue[_Started] = queue.SimpleQueue()
    thread = threading.Thread(
        target=_run_server, args=(settings, recorder, started), name="proxy", daemon=True
    )
    thread.start()
    result = started.get()
    if isinstance(result, BaseException):
        thread.join()
        raise Unavailable(
            f"the capture proxy cannot start: {result}", hint="free a loopback port"
        ) from result
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
        raise Invalid(
            f"not an address of an API: {settings.upstream[:80]!r}", hint="it begins with https://"
        )
    async with open_upstream(settings.upstream, settings.proxy) as upstream:
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
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except BaseException as error:  # noqa: BLE001 - the thread that started this one raises it
        started.put(error)
