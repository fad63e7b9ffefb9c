"""Pages that watch: from the command to a page with something true on it, 50 pages on one running session.

The session is written by a real file writer, five lines a second; each page is a connection that
reads what a browser's would be sent. The bar is the server's, so the watchers run elsewhere.
"""

import asyncio
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.bench.measure import plain_env
from tools.bench.table import Table
from tools.bench.transcript import Session
from tools.bench.web import Server
from tools.bench.words import Words

PAGES = 50
WATCH_S = 15.0
LINES_A_SECOND = 5
TURNS = {"an ordinary session": 40, "a session of 5,000 steps": 1_000}


class Watched(NamedTuple):
    """A running session: its name, its file, and what it will say next."""

    name: str
    file: Path
    lines: Iterator[str]


def main() -> int:
    """Measure and print."""
    table = Table()
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        table.title("pages that watch")
        _first_page(Path(folder) / "first", table)
        for title, turns in TURNS.items():
            root = Path(folder) / str(turns)
            watched = _running(root, turns)
            server = _server(root)
            try:
                asyncio.run(_watch(server, watched, title, table))
            finally:
                server.close()
    return 1 if table.failed else 0


def _first_page(root: Path, table: Table) -> None:
    """From the command to a page that names a session, with nothing kept from before."""
    took = []
    for turn in range(5):
        watched = _running(root / str(turn), 40)
        began = time.perf_counter()
        server = _server(root / str(turn))
        while watched.name[:8] not in server.ask("/")[1]:
            time.sleep(0.02)
        took.append(time.perf_counter() - began)
        server.close()
    table.most("  from command to a page, s, worst of 5", max(took), 5)


async def _watch(server: Server, watched: Watched, title: str, table: Table) -> None:
    """Open the pages, let the session run, and read what each is told."""
    page = server.ask(f"/sessions/{watched.name}")[1]
    seen: list[dict[str, float]] = [{} for _ in range(PAGES)]
    have = re.search(r'data-have="([^"]*)"', page)
    address = f"/sessions/{watched.name}/live?have={have[1] if have else ''}"
    readers = [asyncio.create_task(_read(server, address, marks)) for marks in seen]
    await asyncio.sleep(2)
    before, began = _cpu_s(server.pid), time.perf_counter()
    wrote = await asyncio.to_thread(_write, watched)
    cores = (_cpu_s(server.pid) - before) / (time.perf_counter() - began)
    await asyncio.sleep(1.5)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    waits = [marks[mark] - at for marks in seen for mark, at in wrote.items() if mark in marks]
    table.note(f"  {title}", f"{len(wrote)} marks on {PAGES} pages, {len(waits)} seen")
    table.truth("    every page was told every line", len(waits) == len(wrote) * PAGES)
    table.note("    a line is on a page after, median s", f"{statistics.median(waits):.2f}")
    table.most("    a line is on a page after, worst s", max(waits), 1)
    table.most(f"    {PAGES} pages, cores", cores, 1)


async def _read(server: Server, address: str, seen: dict[str, float]) -> None:
    """Be one page: note when each mark was first told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 26)
    cookie = f"flightlog-{server.port}={server.token}"
    writer.write(
        f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {cookie}\r\n\r\n".encode()
    )
    try:
        while part := await reader.read(1 << 20):
            for mark in re.findall(rb"mark-\d+-of-the-bench", part):
                seen.setdefault(mark.decode(), time.perf_counter())
    finally:
        writer.close()


def _write(watched: Watched) -> dict[str, float]:
    """Let the session run; every line of a prompt carries a mark."""
    wrote: dict[str, float] = {}
    end = time.perf_counter() + WATCH_S
    with watched.file.open("a", encoding="utf-8") as out:
        for number, line in enumerate(watched.lines):
            changed, count = re.subn(
                r'("content":")', rf"\1mark-{number}-of-the-bench ", line, count=1
            )
            out.write(changed + "\n")
            out.flush()
            if count and '"type":"user"' in line and "tool_result" not in line:
                wrote[f"mark-{number}-of-the-bench"] = time.perf_counter()
            time.sleep(1 / LINES_A_SECOND)
            if time.perf_counter() > end:
                break
    return wrote


def _running(root: Path, turns: int) -> Watched:
    """A session that has come some way."""
    draw = random.Random(7)
    maker = Session(Words(7), draw, "0b5e55ed-0000-4000-8000-00000000beef", int(time.time() * 1000))
    file = root / "claude" / "projects" / maker.cwd.replace("/", "-") / f"{maker.session}.jsonl"
    shutil.rmtree(root, ignore_errors=True)
    file.parent.mkdir(parents=True)
    with file.open("w", encoding="utf-8") as out:
        out.writelines(line + "\n" for _ in range(turns) for line in maker.turn())
    return Watched(maker.session, file, _on(maker.turn))


def _on(turn: Callable[[], Iterator[str]]) -> Iterator[str]:
    while True:
        yield from turn()


def _server(root: Path) -> Server:
    env = plain_env(
        CLAUDE_CONFIG_DIR=str(root / "claude"), FLIGHTLOG_HOME=str(root / "data"), HOME=str(root)
    )
    program = Path(sys.executable).with_name("flightlog")
    return Server(
        [str(program), "serve", "--no-open"],
        env,
        r"http://127\.0\.0\.1:(?P<port>\d+)/\?token=(?P<token>\S+)",
    )


def _cpu_s(process: int) -> float:
    """Seconds of CPU of a process so far, its ended children included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
