"""Executors: local threads and processes, or a Dask cluster.

A job's key identifies it, so that a job submitted again while its result exists does not run again.
If a worker dies, another one runs its jobs; a job that kills several workers fails. Bytes that jobs
share are a task of their own, recomputed if its worker dies.
"""

import asyncio
import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from flightlog.agents.sandbox import parent_death_prefix
from flightlog.app.jobs import open_executor
from flightlog.app.runtime import open_runtime
from flightlog.model.errors import FlightlogError, Invalid, Unavailable, optional_import
from flightlog.model.runtime import Job, JobError
from flightlog.model.text import make_inert, pluralize

Work = Callable[[bytes], bytes]
SAMPLE = "sample"
_CONNECT_S = 20.0  # longest wait for the scheduler
_WORKER_S = 30.0  # longest wait while the cluster has no worker
_LOOK_S = 3.0  # the client asks the scheduler for its workers every two seconds
_SAME = "install the same flightlog on every worker: pip install 'flightlog[scale]'"
_THREADS = 8  # jobs at once if the caller does not say


def carry_out(work: str, payload: bytes, shared: bytes) -> bytes:
    """Run a job on a worker and return its result."""
    if work == SAMPLE:
        from flightlog.lab.resample.send import run_send_job  # noqa: PLC0415 - a worker imports what it does

        return run_send_job(payload, shared, os.environ)
    if work not in ALONE:
        raise Invalid(f"this worker does not know the job kind {work[:40]!r}", hint=_SAME)
    # The prefix ends the process with the thread that waits for it, and so with the worker.
    prefix = parent_death_prefix(os.environ.get("PATH", os.defpath))
    words = [*prefix, sys.executable, "-m", "flightlog.app.jobs", work]
    done = subprocess.run(words, input=payload + shared, capture_output=True, check=False)
    if done.returncode:
        message, _, hint = done.stderr.decode("utf-8", "replace")[-2000:].partition("\t")
        problem = message or f"a job failed with exit code {done.returncode}"
        raise Unavailable(problem, hint=hint or "run the command again")
    return done.stdout


def run_replay_job(payload: bytes) -> bytes:
    """Continue one branch; retry it if it was in flight when its worker died."""
    from flightlog.lab.replay import service  # noqa: PLC0415 - a worker imports what it does

    service.continue_sent_branch(open_runtime(), Path(payload.decode()))
    return b""


def _run_by(module: str, function: str) -> Work:
    """Return the job that calls a service's function; a worker imports only what it does."""
    return lambda payload: getattr(import_module(module), function)(open_runtime(), payload)


# Jobs that run in a process of their own.
ALONE: dict[str, Work] = {
    "session": _run_by("flightlog.lab.replay.service", "run_sent_session"),
    "replay": run_replay_job,
    "cell": _run_by("flightlog.lab.experiment.service", "run_sent_cell"),
    "archive": _run_by("flightlog.archive.bulk_export", "run_archive_chunk"),
}


class DaskExecutor:
    """The workers of one scheduler."""

    def __init__(self, client: Any, address: str, worker_s: float) -> None:
        """Use an open client of the scheduler at `address`; wait `worker_s` for a worker."""
        self._client, self._address, self._worker_s = client, address, worker_s
        self._shared: dict[str, Any] = {}
        self._workers = int(client.scheduler_info()["n_workers"])
        self._is_idle = False

    async def submit(self, job: Job) -> bytes:
        """Run one job on a worker and return its result."""
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        what = (job.work, job.payload, self._share_bytes(job.shared))
        future = self._client.submit(carry_out, *what, key=job.key, pure=True, retries=0)
        try:
            result = await self._await_worker(future)
        except KilledWorker as error:
            raise JobError(f"the job killed several workers: {error}"[:500]) from error
        except asyncio.CancelledError:
            if future.status == "cancelled":
                raise JobError("the cluster lost the job") from None
            await future.cancel()
            raise
        except FlightlogError:
            raise
        except Exception as error:
            raise Unavailable(
                f"a worker failed: {type(error).__name__}: {error}"[:500], hint=_SAME
            ) from error
        finally:
            future.release()
        assert isinstance(result, bytes), "a job's result is bytes"
        return result

    async def _await_worker(self, future: Any) -> Any:
        """Return the result; raise `Unavailable` if the cluster has no worker for a while."""
        waiting = asyncio.ensure_future(future.result())
        # Take its error also if the wait ended before; asyncio would print it otherwise.
        waiting.add_done_callback(lambda task: task.cancelled() or task.exception())
        idle = 0.0
        while not (await asyncio.wait({waiting}, timeout=_LOOK_S))[0]:
            # Not `workers`: what the client refreshes in the background lists none of them.
            workers = int(self._client.scheduler_info()["n_workers"])
            self._report_workers(workers)
            idle = 0.0 if workers else idle + _LOOK_S
            if idle >= self._worker_s:
                waiting.cancel()
                problem = f"no worker joined {self._address} in {self._worker_s:g} s"
                raise Unavailable(problem, hint=f"start one: dask worker {self._address}")
        return waiting.result()

    def _report_workers(self, workers: int) -> None:
        """Say once, for all jobs, that workers were lost or that there is none."""
        lost, self._workers = max(self._workers - workers, 0), workers
        message = (
            f"{pluralize(lost, 'worker')} lost; other workers run the jobs again" if lost else ""
        )
        if not workers and (lost or not self._is_idle):
            message = f"no worker at {self._address}; waiting up to {self._worker_s:g} s for one"
        self._is_idle = not workers
        if message:
            sys.stderr.write(make_inert(f"{message}\n"))

    def _share_bytes(self, data: bytes) -> Any:
        """Return shared bytes as a task that any worker can recompute."""
        if not data:
            return data
        name = hashlib.sha256(data).hexdigest()[:32]
        if name not in self._shared:
            key = f"flightlog-shared-{name}"
            self._shared[name] = self._client.submit(_return_bytes, data, key=key, pure=True)
        return self._shared[name]


@asynccontextmanager
async def connect_cluster(
    address: str, connect_s: float = _CONNECT_S, worker_s: float = _WORKER_S
) -> AsyncIterator[DaskExecutor]:
    """Connect to a scheduler, or raise `Unavailable`."""
    with optional_import():
        from distributed import Client  # noqa: PLC0415 - an extra
    # Lost keys and workers are reported in our own words.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        open_client: Any = Client
        client = await open_client(
            address, asynchronous=True, timeout=connect_s, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as error:
        hint = "start one: dask scheduler"
        text = f"no scheduler answers at {address[:80]}: {type(error).__name__}"
        raise Unavailable(text, hint=hint) from error
    try:
        yield DaskExecutor(client, address, worker_s)
    finally:
        await client.close()


def _return_bytes(data: bytes) -> bytes:
    return data


@contextmanager
def open_job_queue(on: str, parallel: int = _THREADS) -> Iterator[Callable[[Job], "Future[bytes]"]]:
    """Open an executor in a thread; yield a function that submits jobs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="jobs", daemon=True)
    thread.start()
    executor = open_executor(on, parallel)
    try:
        jobs = asyncio.run_coroutine_threadsafe(executor.__aenter__(), loop).result()
        try:
            yield lambda job: asyncio.run_coroutine_threadsafe(jobs.submit(job), loop)
        finally:
            asyncio.run_coroutine_threadsafe(executor.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class LocalExecutor:
    """Runs jobs on this machine."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        """Run blocking jobs in `threads`."""
        self._threads = threads
        self._http: Any = None

    async def submit(self, job: Job) -> bytes:
        """Run one job and return its result."""
        if job.work == SAMPLE:
            return await self._send_sample(job)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, carry_out, job.work, job.payload, job.shared
        )

    async def close(self) -> None:
        """Close the HTTP connections."""
        if self._http is not None:
            await self._http.close()

    async def _send_sample(self, job: Job) -> bytes:
        from flightlog.lab.resample import send  # noqa: PLC0415 - an extra that other jobs do without

        if self._http is None:
            self._http = send.open_client()
        response = await send.send_request(
            self._http, send.decode_call(job.payload), job.shared, os.environ
        )
        return msgspec.json.encode(response)


@asynccontextmanager
async def open_local_executor(parallel: int) -> AsyncIterator[LocalExecutor]:
    """Open an executor for `parallel` jobs at once on this machine."""
    with ThreadPoolExecutor(parallel, thread_name_prefix="job") as threads:
        executor = LocalExecutor(threads)
        try:
            yield executor
        finally:
            await executor.close()
