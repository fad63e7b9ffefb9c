"""`python -m tools.bench.loop [EVENTS]`: a session of many events: appends stay flat, looking stays quick."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flightlog.app.runtime import open_runtime
from flightlog.loop import events
from flightlog.loop.directories import prepare_root
from flightlog.loop.plan.load import hash_plan, parse_plan, redact_plan
from flightlog.loop.store import LoopStore
from flightlog.privacy.redactor import Redactor
from flightlog.store.files import replace_file

APPEND_RATIO_MAX = 1.5
STATUS_S_MAX = 0.2
REPORT_S_MAX = 5.0
BLOCK = 1000


def main(count: int) -> int:
    """Fill a session, then look at it, and say which bar was missed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("FLIGHTLOG_BENCH_DIR")) as folder:
        top = Path(folder)
        directory, times = fill(top, count)
        first, last = times[0], times[-1]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "FLIGHTLOG_HOME": f"{folder}/home",
        }
        ralph = Path(sys.executable).with_name("ralph-runtime")
        status = min(
            time_command(top, environment, [ralph, "status", "--session", "session-001"])
            for _ in range(5)
        )
        report = time_command(
            top, environment, [ralph, "generate-report", "--session", "session-001"]
        )
        size = (directory / "journal.jsonl").stat().st_size / 1e6
    rows = (
        (
            f"append, last {BLOCK} of {count:,} against the first",
            last / first,
            APPEND_RATIO_MAX,
            "x",
        ),
        (f"status with {count:,} events", status, STATUS_S_MAX, "s"),
        (f"report with {count:,} events ({size:.0f} MB)", report, REPORT_S_MAX, "s"),
    )
    for name, value, bar, unit in rows:
        print(
            f"{name}\t{value:.3f} {unit}\t(bar {bar} {unit})\t{'met' if value <= bar else 'MISSED'}"
        )
    print(
        f"first {BLOCK}: {first / BLOCK * 1e6:.0f} us an event, last: {last / BLOCK * 1e6:.0f} us"
    )
    return int(any(value > bar for _, value, bar, _ in rows))


def fill(top: Path, count: int) -> tuple[Path, list[float]]:
    """Write a session of `count` events: one open-ended task, round after round; return the seconds per block."""
    run = {"agent": "scripted", "prompt": "Go on.", "repeat": True}
    plan = {
        "plan": "long",
        "tasks": [{"task_id": "001", "name": "go on", "run": run, "verify": ["true"]}],
    }
    data = json.dumps(plan).encode()
    directory = top / "ralph-loop-sessions" / "session-001-long"
    prepare_root(directory.parent)
    replace_file(directory / "plan.yaml", data)
    redactor = Redactor(bytes(32))
    parsed_plan = parse_plan(data)
    book = LoopStore(directory, redact_plan(parsed_plan, redactor), open_runtime(), redactor)
    book.append(
        events.LoopStarted(
            "session-001",
            "long",
            "long",
            hash_plan(data),
            1,
            parsed_plan.config,
            parsed_plan.budgets,
            marker="m",
        )
    )
    times, blocks = [], []
    for number in range(count // 5):
        began = time.perf_counter()
        for event in round_of(number):
            book.append(event)
        times.append(time.perf_counter() - began)
    book.write_output_files()
    book.close()
    step = BLOCK // 5
    blocks = [
        statistics.median(times[at : at + step]) * step
        for at in range(0, len(times) - step + 1, step)
    ]
    return directory, blocks


def round_of(number: int) -> list[events.Event]:
    """One round: decided, begun, a call paid for, ended, gone on."""
    name, attempt = "001", number + 1
    return [
        events.DecisionMade(
            name, "execute", 0.9, 0.9, "low risk", (("skip", 0.3),), {"execution": 0.0}
        ),
        events.TaskStarted(name, attempt, "work", "k"),
        events.UsageRecorded(name, attempt, f"msg_{number}", "claude-opus-5-5", 1200, 0.01),
        events.AttemptEnded(
            name,
            attempt,
            "success",
            1.0,
            0,
            made_progress=True,
            last_message=f"round {number} is done",
        ),
        events.RecoveryStarted(name, attempt, "repeat", f"round {number}: not done yet"),
    ]


def time_command(cwd: Path, environment: dict[str, str], words: list[object]) -> float:
    """Seconds of a command, from start to end."""
    began = time.perf_counter()
    subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
