"""Jobs on this machine: what waits for a model waits on the loop, everything else in processes of its own."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from flightlog.app.jobs.works import SAMPLE, carry_out
from flightlog.model.jobs import Job


class LocalExecutor:
    """This machine."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        """Take threads for what blocks."""
        self._threads = threads
        self._http: Any = None

    async def submit(self, job: Job) -> bytes:
        """Carry one job out."""
        if job.work == SAMPLE:
            return await self._send_sample(job)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, carry_out, job.work, job.payload, job.shared)

    async def close(self) -> None:
        """Let go of connections."""
        if self._http is not None:
            await self._http.close()

    async def _send_sample(self, job: Job) -> bytes:
        from flightlog.lab.resampling import sending  # noqa: PLC0415 - an extra that other jobs do without

        if self._http is None:
            self._http = sending.open_client()
        came = await sending.send_request(self._http, sending.read_ask(job.payload), job.shared, os.environ)
        return msgspec.json.encode(came)


@asynccontextmanager
async def open_local_executor(parallel: int) -> AsyncIterator[LocalExecutor]:
    """Open this machine for so many jobs at once."""
    with ThreadPoolExecutor(parallel, thread_name_prefix="job") as threads:
        here = LocalExecutor(threads)
        try:
            yield here
        finally:
            await here.close()
