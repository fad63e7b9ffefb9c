"""Jobs on a Dask cluster, which others deploy (SSH, Kubernetes, Slurm): the scheduler's address is all it takes.

A job has the key it is known by, so that one that is asked for again while its result is there is
not carried out again. A worker that dies has its jobs carried out by another; one that kills several
workers is given up. What jobs have in common is a task of its own, made again when its holder dies.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from flightlog.app.jobs.works import carry_out
from flightlog.model.errors import FlightlogError, Unavailable
from flightlog.model.extras import optional_import
from flightlog.model.jobs import Job, JobError

_CONNECT_S = 20.0
_SAME = "install the same flightlog on every worker: pip install 'flightlog[scale]'"


class DaskExecutor:
    """The workers behind one scheduler."""

    def __init__(self, client: Any) -> None:
        """Take an open client."""
        self._client = client
        self._shared: dict[str, Any] = {}

    async def submit(self, job: Job) -> bytes:
        """Carry one job out on some worker."""
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        future = self._client.submit(
            carry_out, job.work, job.payload, self._share_bytes(job.shared), key=job.key, pure=True, retries=0
        )
        try:
            result = await future
        except KilledWorker as error:
            raise JobError(f"it took several workers down: {error}"[:500]) from error
        except asyncio.CancelledError:
            if future.status == "cancelled":
                raise JobError("the cluster lost it") from None
            await future.cancel()
            raise
        except FlightlogError:
            raise
        except Exception as error:
            raise Unavailable(f"a worker failed: {type(error).__name__}: {error}"[:500], hint=_SAME) from error
        finally:
            future.release()
        assert isinstance(result, bytes), "a job's result is bytes"
        return result

    def _share_bytes(self, data: bytes) -> Any:
        """Bytes that many jobs have in common, as a task that any worker can make again."""
        if not data:
            return data
        name = hashlib.sha256(data).hexdigest()[:32]
        if name not in self._shared:
            self._shared[name] = self._client.submit(_return_bytes, data, key=f"flightlog-shared-{name}", pure=True)
        return self._shared[name]


@asynccontextmanager
async def connect_cluster(address: str, connect_s: float = _CONNECT_S) -> AsyncIterator[DaskExecutor]:
    """Connect to a scheduler."""
    with optional_import():
        from distributed import Client  # noqa: PLC0415 - an extra
    try:
        open_client: Any = Client
        client = await open_client(address, asynchronous=True, timeout=connect_s, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        hint = "start one, as docs/how-to/run-on-a-cluster.md says: dask scheduler"
        raise Unavailable(f"no scheduler answers at {address[:80]}: {type(error).__name__}", hint=hint) from error
    try:
        yield DaskExecutor(client)
    finally:
        await client.close()


def _return_bytes(data: bytes) -> bytes:
    return data
