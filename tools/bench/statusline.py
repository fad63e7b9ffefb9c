"""What the status line costs: alone and in a crowd, against a bare Python and two peers, in one run.

    python -m tools.bench.statusline [--sessions 10000] [--runs 60]

An archive of many sessions stands around it, and the payload belongs to one of them. Every
contender is started by a real shell with the same payload on stdin, in turns. Then what a state
update takes with 13 and with 200 running sessions. Exits 1 when a bar is missed.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from tools.bench.peers import peers, status_peer
from tools.bench.table import Table

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.live.collector import CollectDepth, LiveDirectory, collect_live_state
from flightlog.live.service import render_status_lines
from flightlog.model.runtime import Runtime
from flightlog.setup.install import status_line_command

PYTHON = Path(sys.executable)
FLOOR = f"'{PYTHON}' -I -S -c pass"
CROWD = 16


def main() -> int:
    """Measure, print one table, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        payload, env = ground(root, options.sessions)
        race(table, payload, env, options.runs)
        for count, bar_ms in ((13, 50.0), (200, 150.0)):
            update(table, root / f"live-{count}", count, bar_ms)
    print(f"\n{len(table.failed)} bars missed" + "".join(f"\n  {name}" for name in table.failed))
    return 1 if table.failed else 0


def race(table: Table, payload: bytes, env: dict[str, str], runs: int) -> None:
    """Let all contenders print their line, taking turns."""
    contenders = {"bare python": FLOOR, "flightlog": status_line_command(PYTHON)}
    place = Path(".bench/peers").absolute()
    ccusage = peers(place)["ccusage"]
    ccstatusline = status_peer(place)
    for name, peer, command in (
        ("ccusage statusline", ccusage, f"'{ccusage.program}' statusline --offline"),
        ("ccstatusline", ccstatusline, f"'{shutil.which('node')}' '{ccstatusline.program}'"),
    ):
        table.note(f"peer {name}", peer.version)
        if peer.program is not None:
            contenders[name] = command
    times: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs):
        for name, command in contenders.items():
            if name not in {"bare python", "flightlog"} and turn % 4:
                continue  # the slow ones fewer times
            before = children_ms()
            took, output = time_command(command, payload, env)
            cpu[name].append(children_ms() - before)
            assert output.strip() or name == "bare python", f"{name} printed nothing"
            times[name].append(took)
    table.title(f"one status line, {len(times['flightlog'])} runs")
    for name, durations in times.items():
        table.note(
            f"  {name}",
            f"median {at(durations, 50):7.1f} ms   p95 {at(durations, 95):7.1f} ms   n {len(durations)}",
        )
        table.note("", f"processor median {at(cpu[name], 50):4.0f} ms")
    ours = times["flightlog"]
    table.most("flightlog p95, ms", at(ours, 95), 50)
    table.most("flightlog over bare python, median", at(ours, 50) / at(times["bare python"], 50), 3)
    for name in ("ccusage statusline", "ccstatusline"):
        if name in times:
            table.ratio(f"{name} over flightlog, median", at(times[name], 50) / at(ours, 50), 1.0)
        else:
            table.truth(f"{name} can be had", value=False)
    crowd(table, payload, env, contenders)


def crowd(table: Table, payload: bytes, env: dict[str, str], contenders: dict[str, str]) -> None:
    """Sixteen at once: the last one is not later than so many bare Pythons would be."""
    spans = {}
    for name in ("bare python", "flightlog"):
        rounds = []
        for _ in range(5):
            began = time.perf_counter()
            with ThreadPoolExecutor(CROWD) as pool:
                list(
                    pool.map(
                        lambda _, word=contenders[name]: time_command(word, payload, env),
                        range(CROWD),
                    )
                )
            rounds.append((time.perf_counter() - began) * 1000)
        spans[name] = statistics.median(rounds)
    table.note(
        f"  {CROWD} at once, all done",
        f"{spans['flightlog']:.0f} ms, bare python {spans['bare python']:.0f} ms",
    )
    table.most(f"{CROWD} at once over bare python", spans["flightlog"] / spans["bare python"], 3)


def apart(root: Path) -> Runtime:
    """Return this machine with a data directory below `root` and no settings."""
    return replace(open_runtime(), data_dir=str(root / "home"), zone=UTC, read_config=lambda _: {})


def update(table: Table, root: Path, count: int, bar_ms: float) -> None:
    """A state update after one session wrote, with `count` running."""
    now = time.time_ns() // 1_000_000
    paths = [session(root / "config", number, now - 60_000) for number in range(count)]
    took, cpu = [], []
    for turn in range(12):
        with paths[0].open("a") as file:
            file.write(json.dumps({"type": "user", "uuid": f"x{turn}"}) + "\n")
        archive = Archive({"claude-code": (str(root / "config"),)}, str(root / "home"))
        archive.usage_pipeline.refresh()  # as settle has done by then
        where = LiveDirectory(apart(root), root / "config", now + turn * 1000, render_status_lines)
        began, busy = time.perf_counter(), time.process_time()
        collect_live_state(where, archive, CollectDepth(only=paths[0].stem, durable=False))
        took.append((time.perf_counter() - began) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
        archive.usage_pipeline.save()
    spans = f"first {took[0]:.0f} ms, then median {at(took[1:], 50):.0f} ms, processor {at(cpu[1:], 50):.0f} ms"
    table.note(f"  state update, {count} running", spans)
    table.most(f"state update with {count} running, ms", at(took[1:], 50), bar_ms)


def ground(root: Path, sessions: int) -> tuple[bytes, dict[str, str]]:
    """Make an archive, and a page for one of its sessions."""
    config = root / "config"
    now = time.time_ns() // 1_000_000
    for number in range(sessions):
        path = session(config, number, now - 86_400_000)
        (root / "home" / "sessions" / "claude-code" / path.stem).mkdir(parents=True)
    last = session(config, sessions, now)
    where = LiveDirectory(apart(root), config, now)
    archive = Archive({"claude-code": (str(config),)}, str(root / "home"))
    collect_live_state(where, archive, CollectDepth(only=last.stem, secrets=False, durable=False))
    archive.usage_pipeline.save()
    payload = {
        "session_id": last.stem,
        "transcript_path": str(last),
        "cwd": str(root),
        "model": {"id": "claude-opus-5-5", "display_name": "Opus 5.5"},
        "workspace": {"current_dir": str(root), "project_dir": str(root)},
        "version": "2.1.325",
        "output_style": {"name": "default"},
        "cost": {"total_cost_usd": 1.5, "total_duration_ms": 60_000, "total_api_duration_ms": 9_000,
                 "total_lines_added": 1, "total_lines_removed": 1},
        "context_window": {"context_window_size": 200_000, "total_input_tokens": 41_155, "total_output_tokens": 100,
                           "current_usage": {"input_tokens": 1_155, "output_tokens": 100,
                                             "cache_creation_input_tokens": 0, "cache_read_input_tokens": 40_000}},
        "exceeds_200k_tokens": False,
    }  # fmt: skip
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "CLAUDE_CONFIG_DIR": str(config), "LANG": "C.UTF-8",
           "FLIGHTLOG_HOME": str(root / "home"), "COLUMNS": "120"}  # fmt: skip
    return json.dumps(payload).encode(), env


def session(config: Path, number: int, at_ms: int) -> Path:
    """Write one small session."""
    name = f"{number:08}-1111-4111-8111-111111111111"
    path = config / "projects" / f"p{number % 50}" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = (
        datetime.fromtimestamp(at_ms / 1000, tz=UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    head = {
        "uuid": f"u{number}",
        "timestamp": stamp,
        "sessionId": name,
        "cwd": "/srv/app",
        "version": "2.1.325",
    }
    use = {"input_tokens": 90_000, "output_tokens": 500}
    body = {
        "id": f"m{number}",
        "model": "claude-opus-5-5",
        "role": "assistant",
        "content": [],
        "usage": use,
    }
    records = [
        {**head, "type": "user", "message": {"role": "user", "content": "hello"}},
        {**head, "type": "assistant", "requestId": f"r{number}", "message": body},
    ]
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    os.utime(path, (at_ms / 1000, at_ms / 1000))
    return path


def time_command(command: str, payload: bytes, env: dict[str, str]) -> tuple[float, bytes]:
    """Run once and return milliseconds and what was printed."""
    began = time.perf_counter()
    done = subprocess.run(
        ["sh", "-c", command], input=payload, env=env, capture_output=True, check=False
    )
    return (time.perf_counter() - began) * 1000, done.stdout


def children_ms() -> float:
    """Processor time of everything started so far; other programs disturb it less than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def at(times: Sequence[float], percent: int) -> float:
    """The given percentile."""
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


if __name__ == "__main__":
    sys.exit(main())
