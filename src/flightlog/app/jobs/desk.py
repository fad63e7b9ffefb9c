"""Jobs for those who do not run on a loop: a thread has one, and gives a future for each job."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from flightlog.app.jobs import open_executor
from flightlog.model.jobs import Job

_THREADS = 8


@contextmanager
def open_job_queue(on: str, parallel: int = _THREADS) -> Iterator[Callable[[Job], "Future[bytes]"]]:
    """Open a place for the length of a block; the value takes jobs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="jobs", daemon=True)
    thread.start()
    there = open_executor(on, parallel)
    try:
        jobs = asyncio.run_coroutine_threadsafe(there.__aenter__(), loop).result()
        try:
            yield lambda job: asyncio.run_coroutine_threadsafe(jobs.submit(job), loop)
        finally:
            asyncio.run_coroutine_threadsafe(there.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
