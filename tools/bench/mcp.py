"""`flightlog mcp`: start to first answer, warm answers over 10,000 sessions, memory."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.bench import many
from tools.bench.measure import plain_env
from tools.bench.statusline import at
from tools.bench.table import Table

ROOT = Path(".bench").absolute()
SESSIONS = 10_000
MEAN_BYTES_LOG = 11.15  # 120 KB a session: 1.2 GB in all, and two long sessions
PROJECT = "/home/dev/project-07"
STARTS, ROUNDS = 30, 6
_SEARCHES = ("error", "the file", "import", "config", "server request", '"server request"', "zebra")
CALLS: tuple[tuple[str, dict[str, str]], ...] = (
    *(("search", {"query": words}) for words in _SEARCHES),
    ("sessions", {}),
    ("usage", {"scope": "project"}),
    ("usage", {"scope": "today"}),
    ("file_history", {"path": "src/app.py"}),
)


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    corpus = ROOT / f"mcp-{SESSIONS}-{many.VERSION}"
    if not corpus.exists():
        many.MEAN_BYTES_LOG = MEAN_BYTES_LOG
        many.generate(corpus, SESSIONS)
    env = plain_env(
        CLAUDE_CONFIG_DIR=str(corpus),
        FLIGHTLOG_HOME=str(ROOT / "mcp-home"),
        HOME=str(ROOT / "mcp-home"),
        CLAUDE_PROJECT_DIR=PROJECT,
    )
    program = str(Path(sys.executable).with_name("flightlog"))
    index = [program, "session", "search", "warm", "--json"]
    subprocess.run(index, env=env, check=True, stdout=subprocess.DEVNULL)
    table = Table()
    table.title(f"flightlog mcp, {SESSIONS:,} sessions")
    starts = [_start(program, env) for _ in range(STARTS)]
    table.most("  start to the list of tools, p95, ms", at(starts, 95), 150)
    with subprocess.Popen(
        [program, "mcp"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        for name, given in CALLS:
            _ask(server, "tools/call", {"name": name, "arguments": given})
        times = []
        for _ in range(ROUNDS):
            _ask(server, "tools/call", {"name": "usage", "arguments": {"scope": "today"}})
            for name, given in CALLS:
                times.append(_ask(server, "tools/call", {"name": name, "arguments": given}))
        status = Path(f"/proc/{server.pid}/status").read_text().partition("VmRSS:")[2]
        assert server.stdin is not None
        server.stdin.close()
    table.note("  a warm answer, median, ms", f"{at(times, 50):.1f}")
    table.most("  a warm answer, p95, ms", at(times, 95), 30)
    table.most("  resident memory, MB", int(status.split()[0]) / 1000, 40)
    return 1 if table.failed else 0


def _start(program: str, env: dict[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        [program, "mcp"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        _ask(server, "initialize", {})
        _ask(server, "tools/list", {})
        took = (time.perf_counter() - began) * 1000
        assert server.stdin is not None
        server.stdin.close()
    return took


def _ask(server: "subprocess.Popen[bytes]", method: str, params: dict[str, Any]) -> float:
    """Return how many milliseconds the answer took."""
    assert server.stdin is not None
    assert server.stdout is not None
    began = time.perf_counter()
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    assert b'"result"' in server.stdout.readline()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
