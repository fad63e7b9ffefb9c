"""What a hook event costs the agent: alone, and with 16 agents on this machine at once.

    python tools/bench/hook.py [--agents 16] [--events 400]

Each event is the guarded command as settings hold it, started by a real shell, with a payload of
3 KB. The floor beside it is a bare isolated Python, taken in turns with it, since the machine is
never quiet: read the ratio first. Exits 1 when a budget of the design is missed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from flightlog.setup.install import build_hook_command

PYTHON = Path(sys.executable)
HOOK = build_hook_command(PYTHON)
FLOOR = f"'{PYTHON}' -I -S -c pass >/dev/null 2>&1 || :"
ALONE_P50_MS = 25.0
CROWD_P99_MS = 250.0


def main() -> int:
    """Measure, print one table, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--events", type=int, default=800)
    options = parser.parse_args()
    share = options.events // options.agents
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        alone_floor, alone = alternating(home, options.events // 4)
        cpu_floor, cpu = cpu_ms(home, FLOOR, 40), cpu_ms(home, HOOK, 40)
        crowd_floor, crowd = (
            time_crowd(home, FLOOR, options.agents, share),
            time_crowd(home, HOOK, options.agents, share),
        )
        stored, expected = count_recorded(home), len(alone) + 40 + len(crowd)
    row("bare python, alone", alone_floor)
    row("hook, alone", alone)
    row(f"bare python, {options.agents} at once", crowd_floor)
    row(f"hook, {options.agents} agents at once", crowd)
    print(f"CPU of one event: bare python {cpu_floor:.1f} ms, hook {cpu:.1f} ms")
    ratios = at(alone, 50) / at(alone_floor, 50), at(crowd, 50) / at(crowd_floor, 50)
    print(
        f"hook over floor: alone {ratios[0]:.2f} x, at once {ratios[1]:.2f} x; {stored} of {expected} events on record"
    )
    print(
        f"budgets: alone p50 <= {ALONE_P50_MS:g} ms, at once p99 <= {CROWD_P99_MS:g} ms; load {os.getloadavg()[0]:.1f}"
    )
    good = at(alone, 50) <= ALONE_P50_MS and at(crowd, 99) <= CROWD_P99_MS and stored == expected
    return 0 if good else 1


def alternating(home: Path, count: int) -> tuple[list[float], list[float]]:
    """Time the floor and the hook one after the other, alone."""
    pairs = [
        (time_event(home, FLOOR, "alone"), time_event(home, HOOK, "alone")) for _ in range(count)
    ]
    return [floor for floor, _ in pairs], [ours for _, ours in pairs]


def cpu_ms(home: Path, run: str, count: int) -> float:
    """The processor time of one event, shell and all; other programs do not disturb it much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    time_repeatedly(home, run, "alone", count)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / count


def time_crowd(home: Path, run: str, agents: int, count: int) -> list[float]:
    """Time `run` while every agent, a process of its own, fires event after event."""
    with ProcessPoolExecutor(agents, mp_context=get_context("fork")) as pool:
        runs = [
            pool.submit(time_repeatedly, home, run, f"agent-{agent}", count)
            for agent in range(agents)
        ]
        return [one for times in runs for one in times.result()]


def time_repeatedly(home: Path, run: str, session: str, count: int) -> list[float]:
    """One agent's events."""
    return [time_event(home, run, session) for _ in range(count)]


def row(name: str, times: Sequence[float]) -> None:
    """Print one line of the table."""
    print(f"{name:26} p50 {at(times, 50):7.1f} ms   p99 {at(times, 99):7.1f} ms   n {len(times)}")


def time_event(home: Path, run: str, session: str) -> float:
    """Run one event and return milliseconds; anything but silence and exit 0 is a failure."""
    payload = json.dumps(
        {"session_id": session, "hook_event_name": "PostToolUse", "pad": "x" * 3000}
    ).encode()
    given = {"PATH": os.environ["PATH"], "FLIGHTLOG_HOME": str(home)}
    started = time.perf_counter()
    done = subprocess.run(
        ["sh", "-c", run], input=payload, env=given, capture_output=True, check=False
    )
    took = (time.perf_counter() - started) * 1000
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return took


def count_recorded(home: Path) -> int:
    """Count the events that were written down."""
    files = home.glob("sessions/*/*/hooks.jsonl*")
    return sum(file.read_bytes().count(b"\n") for file in files)


def at(times: Sequence[float], percent: int) -> float:
    """The given percentile."""
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


if __name__ == "__main__":
    sys.exit(main())
