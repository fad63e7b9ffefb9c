"""Executors of jobs: this machine or a Dask cluster, with the same results."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from flightlog.model.errors import Invalid
from flightlog.model.runtime import Job, JobExecutor, JobExecutors

if TYPE_CHECKING:
    from concurrent.futures import Future


LOCAL = "local"


def make_executors(on: str) -> JobExecutors:
    """Return what opens executors at `on`: `local`, or the address of a Dask scheduler."""

    def open_in_thread(parallel: int) -> AbstractContextManager[Callable[[Job], "Future[bytes]"]]:
        from flightlog.app.jobs.executors import open_job_queue  # noqa: PLC0415 - few commands have jobs

        return open_job_queue(on, parallel)

    return JobExecutors(on == LOCAL, lambda parallel: open_executor(on, parallel), open_in_thread)


@asynccontextmanager
async def open_executor(on: str, parallel: int) -> AsyncIterator[JobExecutor]:
    """Open an executor at `on`: `local`, or the address of a Dask scheduler."""
    from flightlog.app.jobs import executors  # noqa: PLC0415 - few commands have jobs

    if on == LOCAL:
        async with executors.open_local_executor(parallel) as executor:
            yield executor
    elif on.startswith(("tcp://", "tls://", "ws://", "wss://")):
        async with executors.connect_cluster(on) as cluster:
            yield cluster
    else:
        hint = "write `local` or `tcp://scheduler:8786`"
        raise Invalid(f"not an executor: {on[:80]!r}", hint=hint)
