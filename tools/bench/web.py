"""The pages on ten thousand sessions: list, search, long sessions, scrolling, memory; agentsview beside them.

Times are of whole answers over loopback, as a browser waits for them.
"""

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.bench import many
from tools.bench.measure import family_mb, plain_env
from tools.bench.table import Table

TYPED = (
    "err",
    "error",
    "import te",
    "test function",
    "config",
    "server requ",
    "return value",
    "module_12",
    "zing",
)
SCROLL_S = 10
PATIENCE_S = 900


class Ground(NamedTuple):
    """A corpus, what is in it, and where the contenders keep their own."""

    corpus: Path
    made: many.Many
    work: Path


class Server:
    """A running server of pages, ours or a peer's."""

    def __init__(self, command: Sequence[str], env: dict[str, str], address: str) -> None:
        """Start it; `address` is a pattern for the port and, if there is one, the token."""
        self._process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        match = None
        for line in self._process.stdout:
            if match := re.search(address, line):
                break
        assert match, f"{command[0]} did not say where it listens"
        self.port = int(match["port"])
        self.root = match.groupdict().get("root") or ""
        self.token = match.groupdict().get("token") or ""
        self._cookie = self._sign_in() if self.token else ""
        os.set_blocking(self._process.stdout.fileno(), False)

    def _sign_in(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", f"{self.root}/?token={self.token}")
        return (connection.getresponse().headers["Set-Cookie"] or "").partition(";")[0]

    def ask(self, path: str) -> tuple[float, str]:
        """Return how many milliseconds an answer took, and the answer."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", self.root + path, headers={"Cookie": self._cookie})
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
        took = (time.perf_counter() - began) * 1000
        assert answer.status == 200, f"{path}: {answer.status} {body[:200]}"
        return took, body

    def times(self, paths: Sequence[str]) -> list[float]:
        """Ask one after the other."""
        return [self.ask(path)[0] for path in paths]

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def memory_mb(self) -> float:
        """Resident memory, children included."""
        return family_mb(self.pid)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


def ground(root: Path, sessions: int) -> Ground:
    """Make the corpus once."""
    corpus = root / f"many-{sessions}-{many.VERSION}"
    note = corpus / "made.json"
    if not note.exists():
        print(f"making {sessions:,} sessions", flush=True)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(many.generate(corpus, sessions)._asdict()))
    work = root / f"work-many-{sessions}"
    for name in ("ours", "peers"):
        (work / name).mkdir(parents=True, exist_ok=True)
    link = work / "peers" / ".claude"
    link.unlink(missing_ok=True)
    link.symlink_to(corpus)
    return Ground(corpus, many.Many(**json.loads(note.read_text())), work)


def pages(here: Ground, table: Table) -> dict[str, float]:
    """Measure ours; return what a peer is compared in."""
    table.title(f"pages over {here.made.sessions:,} sessions, {here.made.size / 1e9:.2f} GB")
    server = _ours(here)
    try:
        began = time.perf_counter()
        _until(lambda: _count_listed(server) == here.made.sessions)
        table.note("  list complete after, s", f"{time.perf_counter() - began:.1f}")
        began = time.perf_counter()
        server.ask("/sessions/words?q=warm")
        table.note("  words indexed after, s", f"{time.perf_counter() - began:.1f}")
        table.most("  memory after the first index, MB", server.memory_mb, 300)
    finally:
        server.close()
    server = _ours(here)
    try:
        _until(lambda: _count_listed(server) == here.made.sessions)
        return _measure_pages(here, server, table)
    finally:
        server.close()


def _measure_pages(here: Ground, server: Server, table: Table) -> dict[str, float]:
    server.ask("/sessions/words?q=warm")
    times = {
        "list": _p95(
            server.times(["/", "/sessions?q=project-1", "/sessions?sort=cost", "/?show=look"] * 8)
        ),
        "search": _p95(
            server.times([f"/sessions/words?q={word.replace(' ', '+')}" for word in TYPED * 4])
        ),
        "long": server.ask(f"/sessions/{here.made.long}")[0],
        "longest": server.ask(f"/sessions/{here.made.longest}")[0],
    }
    page = server.ask(f"/sessions/{here.made.longest}")[1]
    rows, size = (int(re.findall(rf'data-{name}="(\d+)"', page)[0]) for name in ("total", "chunk"))
    last = (rows - 1) // size
    parts = [f"/sessions/{here.made.longest}/rows/{place * last // 40}" for place in range(40)]
    table.most("  list, p95 ms", times["list"], 100)
    table.most("  search as one types, p95 ms", times["search"], 100)
    table.most("  5,000 steps opened, ms", times["long"], 300)
    table.most("  50,000 steps opened, ms", times["longest"], 300)
    table.most("  a part of 50,000 steps, p95 ms", _p95(server.times(parts)), 100)
    server.times(["/home", "/privacy", "/usage", "/usage?since=30d", "/usage?agent=claude-code"])
    _scroll(here, server, table)
    table.most("  memory, MB", server.memory_mb, 150)
    return times


def _scroll(here: Ground, server: Server, table: Table) -> None:
    """Scroll 50,000 steps in a real browser: in screens, then from end to end; count the frames."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.browser import Browser  # type: ignore[import-not-found]  # noqa: PLC0415 - the tests' own

    browser = Browser()
    try:
        page = browser.page()
        page.go(f"http://127.0.0.1:{server.port}{server.root}/?token={server.token}")
        page.ask("Performance.enable")
        page.go(f"http://127.0.0.1:{server.port}{server.root}/sessions/{here.made.longest}")
        page.js("new Promise(done => setTimeout(done, 1500))")
        loaded = page.js('performance.getEntriesByType("navigation")[0].loadEventEnd')
        metrics = {
            one["name"]: one["value"] for one in page.ask("Performance.getMetrics")["metrics"]
        }
        frames = json.loads(page.js(_FRAMES % (SCROLL_S * 1000)))
    finally:
        browser.close()
    table.most("  50,000 steps opened in Chromium, ms", loaded, 300)
    table.note("  processor time of its page, ms", f"{1000 * metrics['TaskDuration']:.0f}")
    table.note(
        "  frames while scrolling", f"{len(frames)}, median {statistics.median(frames):.0f} ms"
    )
    table.most("  longest frame while scrolling, ms", max(frames), 100)


_FRAMES = """new Promise(done => {
  const frames = [], begun = performance.now(), far = document.documentElement;
  let last = begun, step = 0;
  const next = now => {
    frames.push(now - last); last = now; step += 1;
    if (step %% 120 === 0) scrollTo(0, Math.random() * far.scrollHeight); else scrollBy(0, 180);
    if (now - begun < %d) requestAnimationFrame(next); else done(JSON.stringify(frames.slice(1)));
  };
  requestAnimationFrame(next);
})"""


def peer(here: Ground, program: Path, table: Table, ours: dict[str, float]) -> None:
    """Measure agentsview on the same corpus, and compare."""
    env = plain_env(HOME=str(here.work / "peers"), AGENTSVIEW_NO_DAEMON="1")
    began = time.perf_counter()
    subprocess.run(
        [program, "sync"], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    table.note("  agentsview sync, s", f"{time.perf_counter() - began:.1f}")
    flags = ["--port", "0", "--no-browser", "--no-sync", "--no-update-check"]
    server = Server([str(program), "serve", *flags], env, r"http://127\.0\.0\.1:(?P<port>\d+)")
    try:
        words = [f"/api/v1/search?q={word.replace(' ', '+')}&limit=30" for word in TYPED * 4]
        long = f"/api/v1/sessions/{here.made.long}/messages?limit=100"
        theirs = {
            "list": _p95(server.times(["/api/v1/sessions?limit=100"] * 20)),
            "search": _p95(server.times(words)),
            "long": server.ask(long)[0],
        }
        table.note("  agentsview memory, MB", f"{server.memory_mb:.0f}")
    finally:
        server.close()
    for name, took in theirs.items():
        table.note(f"  agentsview {name}, ms", f"{took:.1f}")
        table.ratio(f"  {name} against agentsview's data", took / ours[name], 0)


def _ours(here: Ground) -> Server:
    home = here.work / "ours"
    env = plain_env(
        CLAUDE_CONFIG_DIR=str(here.corpus), FLIGHTLOG_HOME=str(home / "data"), HOME=str(home)
    )
    program = Path(sys.executable).with_name("flightlog")
    return Server(
        [str(program), "serve", "--no-open"],
        env,
        r"http://127\.0\.0\.1:(?P<port>\d+)(?P<root>/\w+)?/\?token=(?P<token>\S+)",
    )


def _count_listed(server: Server) -> int:
    """How many sessions the list knows."""
    match = re.search(r"([\d,]+) sessions? (?:of [^<]+ )?in", server.ask("/")[1])
    return int(match[1].replace(",", "")) if match else 0


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.5)


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]
