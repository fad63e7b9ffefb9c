"""Jobs on this machine: what waits for a model waits on the loop, what works takes a thread or a process."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import msgspec

from flightlog.app.jobs.works import carry_out
from flightlog.lab.resampling.sending import Ask, client, send
from flightlog.model.jobs import Job


class Local:
    """This machine."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        """Take threads for what blocks."""
        self._threads = threads
        self._http = client()

    async def submit(self, job: Job) -> bytes:
        """Carry one job out."""
        if job.work == "sample":
            ask = msgspec.json.decode(job.payload, type=Ask)
            return msgspec.json.encode(await send(self._http, ask, job.shared, os.environ))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, carry_out, job.work, job.payload, job.shared)

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.close()


@asynccontextmanager
async def local(parallel: int) -> AsyncIterator[Local]:
    """Open this machine for so many jobs at once."""
    with ThreadPoolExecutor(parallel, thread_name_prefix="job") as threads:
        here = Local(threads)
        try:
            yield here
        finally:
            await here.close()
