"""What the capture proxy costs a call: time to the first byte, stream rate, and whether bytes are equal.

    python -m tools.bench.proxy [--turns 200]

Upstream, proxy and client are three processes on loopback; direct and proxied calls take turns.
Requests grow turn by turn from `--kilobytes`, as a session's do, and are kept on disk before their
answer's first byte. A second proxy saves a work tree of 2,000 files for each request, as a run does:
24 calls at once, to a model that answers after 300 ms (the snapshots are taken meanwhile), and to
one that answers at once. Exits 1 when a bar is missed.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from tools.bench.table import Table

from flightlog.agents.capture.proxy import ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.server import serve_proxy
from flightlog.lab.runner.capture import SharedSaver
from flightlog.store.exchanges import ExchangeStore
from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SnapshotDirs

FIRST_BYTE_MS = 1.0
PARALLEL = 24
PARALLEL_MS = 5.0
THINKING_S = 0.3  # less than a model's own time to its first byte
FILES = 2_000
RATE = 0.8
EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":"%s"}}\n\n'
SHORT = b"".join(EVENT % str(at).encode() for at in range(20))
SHORT += b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
LONG = [EVENT % (b"word " * 8 + str(at).encode()) for at in range(2000)]
LONG_TIMES = 60
TOKEN = "bench"


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--kilobytes", type=int, default=100)
    parser.add_argument("--streams", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        upstream = context.Process(target=run_upstream, args=(theirs,))
        upstream.start()
        direct = ours.recv()
        proxy = context.Process(
            target=run_proxy, args=(theirs, f"http://127.0.0.1:{direct}", folder)
        )
        proxy.start()
        proxied, losses = ours.recv(), -1
        try:
            times = asyncio.run(measure(direct, proxied, options))
        finally:
            ours.send("stop")
            losses, _ = ours.recv()
            proxy.join()
        disk_bytes = sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*"))
        works, ports = {"proxied": None, "with snapshots": make_work(folder)}, {"direct": direct}
        proxies, pipes = [], []
        for name, work in works.items():
            mine, its = context.Pipe()
            given = (its, f"http://127.0.0.1:{direct}", f"{folder}/{name}", work)
            proxies.append(context.Process(target=run_proxy, args=given))
            proxies[-1].start()
            pipes.append(mine)
            ports[name] = mine.recv()
        ends = []
        try:
            together = asyncio.run(measure_together(ports, options.rounds))
        finally:
            for pipe in pipes:
                pipe.send("stop")
                ends.append(pipe.recv())
            for process in (upstream, *proxies):
                process.terminate()
                process.join()
    table = Table()
    print_table(table, times, losses, disk_bytes)
    print_concurrent_table(table, together, *map(sum, zip(*ends, strict=True)))
    return 1 if table.failed else 0


def make_work(folder: str) -> Path:
    """Make a work tree."""
    work = Path(folder) / "work"
    for number in range(FILES):
        path = work / f"d{number % 97:02d}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + "value = 1\n" * (number % 300))
    return work


async def measure_together(ports: dict[str, int], rounds: int) -> dict[str, list[list[float]]]:
    """Return the times to the first byte of each round of parallel calls, by side and model."""
    messages = [{"role": "user", "content": "Begin. " + "context " * 2_000}]
    body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
    rounds_by_name: dict[str, list[list[float]]] = {}
    for number in range(rounds + 1):
        for model in ("slow", "fast"):
            for name, port in ports.items():
                prefix = "" if name == "direct" else f"/{TOKEN}"
                calls = [await Call.open(port, prefix) for _ in range(PARALLEL)]
                answers = await asyncio.gather(
                    *(call.post(f"/v1/messages?{model}", body) for call in calls)
                )
                await asyncio.sleep(0.3)  # what is left to write must not delay the next round
                if number:  # the first round also takes the first snapshot
                    rounds_by_name.setdefault(f"{name}, {model}", []).append(
                        [answer[0] for answer in answers]
                    )
    return rounds_by_name


def print_concurrent_table(
    table: Table, rounds_by_name: dict[str, list[list[float]]], losses: int, snapshots: int
) -> None:
    """Print one table: the median round counts."""
    table.title(f"{PARALLEL} calls at once, a snapshot of {FILES:,} files for each")
    for name, rounds in rounds_by_name.items():
        middle = statistics.median(statistics.median(times) for times in rounds)
        last = statistics.median(max(times) for times in rounds)
        table.note(f"{name}, ms to first byte", f"middle {middle:8.3f}   last {last:8.3f}")
    choices: dict[str, Callable[[list[float]], float]] = {
        "middle": statistics.median,
        "last": max,
    }
    for (which, choose), model in itertools.product(choices.items(), ("slow", "fast")):
        direct, proxied, saved = (
            statistics.median(choose(times) for times in rounds_by_name[f"{side}, {model}"])
            for side in ("direct", "proxied", "with snapshots")
        )
        if model == "slow":
            table.most(f"added to the {which} first byte, ms", saved - direct, PARALLEL_MS)
        table.most(f"  by the snapshots, {model} model, ms", saved - proxied, PARALLEL_MS)
    calls = PARALLEL * 2 * (len(rounds_by_name["with snapshots, slow"]) + 1)
    table.note("snapshots", f"{snapshots} for {calls} calls")
    table.truth("nothing lost in the copy", losses == 0)


def print_table(
    table: Table, times_by_name: dict[str, list[float]], losses: int, disk_bytes: int
) -> None:
    """Print one table."""
    table.title("Capture proxy")
    for name, times in times_by_name.items():
        ordered = sorted(times)
        spread = (
            f"p10 {ordered[len(ordered) // 10]:8.3f}   p90 {ordered[len(ordered) * 9 // 10]:8.3f}"
        )
        table.note(name, f"p50 {statistics.median(times):8.3f}   {spread}   n {len(times)}")
    direct, proxied = (
        statistics.median(times_by_name[f"{side}, ms to first byte"])
        for side in ("direct", "proxied")
    )
    table.most("added to the first byte, ms", proxied - direct, FIRST_BYTE_MS)
    rates = [statistics.median(times_by_name[f"{side}, MB/s"]) for side in ("direct", "proxied")]
    table.ratio("stream rate, proxied over direct", rates[1] / rates[0], RATE)
    table.truth("bytes equal", all(times_by_name["bytes equal"]))
    table.truth("nothing lost in the copy", losses == 0)
    table.note("on disk", f"{disk_bytes / 1e6:.1f} MB")


async def measure(direct: int, proxied: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Take turns."""
    sides = {"direct": (direct, ""), "proxied": (proxied, f"/{TOKEN}")}
    times: dict[str, list[float]] = {"bytes equal": []}
    messages = [{"role": "user", "content": "Begin. " + "context " * (options.kilobytes * 125)}]
    calls = {name: await Call.open(port, prefix) for name, (port, prefix) in sides.items()}
    for turn in range(options.turns):
        messages.append(
            {"role": "user" if turn % 2 else "assistant", "content": f"turn {turn} " + "said " * 60}
        )
        body = json.dumps(
            {"model": "m", "messages": messages, "stream": True}, separators=(",", ":")
        ).encode()
        for name, call in calls.items():
            first, _, digest = await call.post("/v1/messages?beta=true", body)
            times.setdefault(f"{name}, ms to first byte", []).append(first)
            times["bytes equal"].append(digest == hashlib.sha256(SHORT).hexdigest())
        await asyncio.sleep(0.002)
    whole = hashlib.sha256(b"".join(LONG) * LONG_TIMES).hexdigest()
    async with aiohttp.ClientSession() as client:
        for _ in range(options.streams):
            for name, (port, prefix) in sides.items():
                rate, digest = await measure_stream(
                    client, f"http://127.0.0.1:{port}{prefix}/v1/messages?long", body
                )
                times.setdefault(f"{name}, MB/s", []).append(rate)
                times["bytes equal"].append(digest == whole)
            await asyncio.sleep(0.5)
    return times


async def measure_stream(client: aiohttp.ClientSession, url: str, body: bytes) -> tuple[float, str]:
    """MB/s of a long answer as an ordinary client reads it, and the digest of its bytes."""
    digest, count = hashlib.sha256(), 0
    async with client.post(url, data=body, headers={"x-api-key": "sk-bench-key"}) as answer:
        began = time.perf_counter()
        async for part in answer.content.iter_any():
            digest.update(part)
            count += len(part)
    return count / 1e6 / (time.perf_counter() - began), digest.hexdigest()


class Call:
    """A client with as little of its own as possible: one connection, bytes, chunks."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prefix: str
    ) -> None:
        """Take an open connection."""
        self._reader, self._writer, self._prefix = reader, writer, prefix

    @classmethod
    async def open(cls, port: int, prefix: str) -> "Call":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20), prefix)

    async def post(self, path: str, body: bytes) -> tuple[float, float, str]:
        """Return milliseconds to the first byte of the answer, MB/s of its body, and the body's digest."""
        head = f"POST {self._prefix}{path} HTTP/1.1\r\nhost: x\r\nx-api-key: sk-bench-key\r\n"
        began = time.perf_counter()
        self._writer.write(
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await self._reader.readuntil(b"\r\n\r\n")
        digest, count = hashlib.sha256(), 0
        size = await self._size()
        first = time.perf_counter()
        while size:
            digest.update(await self._reader.readexactly(size))
            count += size
            await self._reader.readexactly(2)
            size = await self._size()
        ended = time.perf_counter()
        await self._reader.readexactly(2)
        return (first - began) * 1000, count / 1e6 / (ended - first), digest.hexdigest()

    async def _size(self) -> int:
        return int(await self._reader.readuntil(b"\r\n"), 16)


def run_upstream(pipe: Connection) -> None:
    """Serve canned streams."""

    async def serve() -> None:
        server = await asyncio.start_server(answer_calls, "127.0.0.1", 0, limit=1 << 20)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


async def answer_calls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the calls of one connection."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        length = next(
            int(line[15:])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_1\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        is_long = b"?long" in head.partition(b"\r\n")[0]
        if b"?slow" in head.partition(b"\r\n")[0]:
            await asyncio.sleep(THINKING_S)
        # One chunk for each event, as a model's API sends them.
        framed = b"".join(
            b"%x\r\n%s\r\n" % (len(part), part) for part in (LONG if is_long else [SHORT])
        )
        for _ in range(LONG_TIMES if is_long else 1):
            writer.write(framed)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def run_proxy(pipe: Connection, upstream: str, folder: str, work: Path | None = None) -> None:
    """Serve the proxy until told to stop; with `work`, save that tree for each request."""
    saved: list[str] = []

    async def serve() -> None:
        barrier = None
        if work is not None:
            dirs = SnapshotDirs(Path(folder) / "shadow", work, Path("/none"), os.environ["PATH"])
            trees = open_trees(dirs, now=time.time)
            barrier = SharedSaver(
                lambda requests: saved.append(trees.save_snapshot(f"s{requests[0].index}").name)
            ).save
        exchanges = ExchangeStore(
            Path(folder),
            now=lambda: "2026-01-01T00:00:00Z",
            new_id=lambda: uuid.uuid4().hex,
        )
        recorder = ExchangeRecorder(exchanges)
        settings = ProxySettings(upstream, TOKEN, lambda: "req_made", barrier)
        async with serve_proxy(settings, recorder) as url:
            pipe.send(int(url.rsplit(":", 1)[1].partition("/")[0]))
            await asyncio.to_thread(pipe.recv)
        recorder.close()
        pipe.send((len(recorder.losses), len(saved)))

    asyncio.run(serve())


if __name__ == "__main__":
    sys.exit(main())
