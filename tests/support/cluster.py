"""A real Dask cluster on loopback: a scheduler and workers, each a process of its own, stopped in the end."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.waiting import until


@dataclass
class Running:
    """A cluster at work."""

    address: str
    workers: list[subprocess.Popen] = field(default_factory=list)


@contextmanager
def cluster(
    folder: Path, env: Mapping[str, str], workers: int = 2, threads: int = 2
) -> Iterator[Running]:
    """Start a scheduler and so many workers, and stop them when the block ends."""
    where = folder / "scheduler.json"
    scheduler = _start_dask(
        "scheduler", env, "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where)
    )
    running = Running("")
    try:
        until(lambda: where.exists() and where.read_text().endswith("}"), 60)
        running.address = json.loads(where.read_text())["address"]
        words = (
            "--nthreads",
            str(threads),
            "--no-nanny",
            "--host",
            "127.0.0.1",
            "--local-directory",
            str(folder),
        )
        running.workers += [
            _start_dask("worker", env, running.address, *words) for _ in range(workers)
        ]
        until(lambda: _count(running.address) == workers, 60)
        yield running
    finally:
        for process in (*running.workers, scheduler):
            process.kill()
            process.wait()


def _start_dask(kind: str, env: Mapping[str, str], *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "dask", kind, *words, "--no-dashboard"]
    return subprocess.Popen(
        command, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _count(address: str) -> int:
    from distributed import Client

    with Client(address, timeout=30, set_as_default=False) as client:
        return len(client.scheduler_info(n_workers=-1)["workers"])
