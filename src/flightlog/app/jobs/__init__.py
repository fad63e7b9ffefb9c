"""Where jobs are carried out: here, or on the machines of a cluster; the same jobs, the same results."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flightlog.model.errors import Invalid
from flightlog.model.jobs import Jobs

LOCAL = "local"


@asynccontextmanager
async def place(on: str, parallel: int) -> AsyncIterator[Jobs]:
    """Open the place a person names: `local`, or the address of a Dask scheduler."""
    if on == LOCAL:
        from flightlog.app.jobs.local import local  # noqa: PLC0415 - a cluster needs none of it

        async with local(parallel) as here:
            yield here
    elif on.startswith(("tcp://", "tls://", "ws://", "wss://")):
        from flightlog.app.jobs.cluster import cluster  # noqa: PLC0415 - an extra

        async with cluster(on) as there:
            yield there
    else:
        raise Invalid(f"not a place for jobs: {on[:80]!r}", hint="write `local` or `tcp://scheduler:8786`")
