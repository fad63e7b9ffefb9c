"""What a batch of samples costs beyond the requests themselves: 200 of them against the scripted model.

    python -m tools.bench.resample [--samples 200] [--parallel 8]

The model is a process of its own. The floor is the same requests, sent by a bare client at the same
concurrency, which keeps nothing; both take turns. Exits 1 when the bar is missed.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import convert
from tools.bench.table import Table

from flightlog.agents.scripted.scenario import Scenario, parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.config import RunConfig
from flightlog.lab.resample.plan import Sweep
from flightlog.lab.resample.samples import list_samples
from flightlog.lab.resample.service import SamplingOptions, dump_request, resample_grid
from flightlog.lab.resample.state import BatchLimits
from flightlog.lab.runner.run import start_run

RATIO = 1.2
COMMAND = "for n in $(seq 1 {}); do echo 'a tool result, so long that a request is as large as real ones'; done"


def script(kilobytes: int) -> dict[str, Any]:
    """What the model says: a command whose output makes the next request large, and a few words."""
    asks = {"blocks": [{"tool": "Bash", "input": {"command": COMMAND.format(kilobytes * 14)}}]}
    return {"rules": [{"replies": [asks, {"text": "It is done. " * 40}]}]}


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--kilobytes", type=int, default=50)
    options = parser.parse_args()
    os.environ["ANTHROPIC_API_KEY"] = "no-key-is-needed-here"
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), options.kilobytes)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        model = context.Process(target=run_model, args=(theirs,), daemon=True)
        model.start()
        theirs.close()  # so that its death is heard
        url = ours.recv()
        body = sent_body(run)
        try:
            times = measure(run, url, body, options)
        finally:
            model.terminate()
            model.join()
        samples = list_samples(run)
    return print_table(times, options, len(samples), sum(not sample.error for sample in samples))


def make_run(root: Path, kilobytes: int) -> Path:
    """A run with a captured request as large as a real one."""
    (root / "work").mkdir()
    given = {
        "model": "claude-opus-5-5",
        "work_dir": str(root / "work"),
        "engine": "scripted",
        "scenario": script(kilobytes),
        "memory_file": None,
        "sessions": [{"session_index": 1, "prompt": "Do it."}],
    }
    environ = {"PATH": os.environ["PATH"], "HOME": str(root)}
    return start_run(
        root / "runs" / "run",
        convert(given, RunConfig),
        service.prepare_run(open_runtime(environ), lambda *_: None),
    ).path


def sent_body(run: Path) -> bytes:
    """The request as it goes over the wire."""
    return json.dumps(
        dump_request(service.open_run(open_runtime(), run.parent, run.name), 1, 0, 2)
    ).encode()


def run_model(pipe: Connection) -> None:
    """Serve the scripted model until ended."""
    scenario: Scenario = parse_scenario(script(1))
    with serve_scenario(scenario, keep=False) as model:
        pipe.send(model.url)
        time.sleep(3600)


def measure(
    run: Path, url: str, body: bytes, options: argparse.Namespace
) -> dict[str, list[float]]:
    """Take turns."""
    times: dict[str, list[float]] = {"bare client, s": [], "resample, s": []}
    limits = BatchLimits(parallel=options.parallel)
    for turn in range(options.rounds + 1):
        began = time.perf_counter()
        asyncio.run(bare(url, body, options.samples, options.parallel))
        middle = time.perf_counter()
        book = service.open_run(open_runtime(), run.parent, run.name)
        sweep = Sweep(requests=(2,), count=options.samples)
        batch = resample_grid(
            open_runtime(),
            book,
            sweep,
            SamplingOptions(limits, lambda *_: None, base_url=url),
            dry_run=False,
        )
        ended = time.perf_counter()
        assert batch["stop_reason"] == "completed", batch
        if turn:  # the first round warms both
            times["bare client, s"].append(middle - began)
            times["resample, s"].append(ended - middle)
    return times


async def bare(url: str, body: bytes, count: int, parallel: int) -> None:
    """Send the same requests and throw the answers away."""
    left = count
    headers = {"x-api-key": "no-key-is-needed-here", "content-type": "application/json"}

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def slot() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                async with http.post(f"{url}/v1/messages", data=body, headers=headers) as answer:
                    await answer.read()

        await asyncio.gather(*(slot() for _ in range(parallel)))


def print_table(
    times_by_name: dict[str, list[float]], options: argparse.Namespace, files: int, answered: int
) -> int:
    """Print one table."""
    table = Table()
    table.title(f"{options.samples} samples, {options.parallel} at once")
    for name, times in times_by_name.items():
        table.note(
            name, f"p50 {statistics.median(times):6.3f}   {min(times):6.3f} to {max(times):6.3f}"
        )
    bare_s, ours_s = times_by_name.values()
    ratios = [ours / bare for bare, ours in zip(bare_s, ours_s, strict=True)]
    table.note("samples a second", f"{options.samples / statistics.median(ours_s):,.0f}")
    table.note(
        "resample over the bare client, by round", "  ".join(f"{ratio:.2f}" for ratio in ratios)
    )
    table.most("resample over the bare client, median", statistics.median(ratios), RATIO)
    expected = options.samples * (options.rounds + 1)
    table.truth("every sample has its file and its answer", files == answered == expected)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
