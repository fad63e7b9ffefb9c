"""`python -m tools.bench.atif`: how long a session of 5,000 steps takes to become a trajectory.

The floor is reading the same transcript with the same JSON parser and writing the same bytes
again. Measured is the trajectory itself, from the session as a value to the bytes of every
file, and beside it the whole way from the transcript, and a lint of the result.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from tools.bench.table import Table

from flightlog.archive.archive import Archive
from flightlog.views.atif.lint import lint_trajectory
from flightlog.views.atif.writer import MAIN, build_trajectory

STEPS = 5_000
ROUNDS = 5
SESSION = "55555555-5555-4555-8555-555555555555"
_OUTPUT = "src/module.py:12: value = compute(first, second)  # a line as tools print it\n" * 12


def transcript(steps: int) -> bytes:
    """Make a session: a prompt every ten steps, each step with words, a thought, a call and its result."""
    records: list[dict[str, object]] = []
    for number in range(steps):
        if number % 10 == 0:
            records.append(
                _record(len(records), "user", {"role": "user", "content": f"Now do part {number}."})
            )
        call = {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": "Bash",
            "input": {"command": f"make part{number}"},
        }
        blocks = [
            {"type": "thinking", "thinking": "It should build."},
            {"type": "text", "text": f"Step {number}."},
            call,
        ]
        usage = {
            "input_tokens": 12,
            "output_tokens": 90,
            "cache_read_input_tokens": 40_000 + number,
        }
        message = {
            "id": f"msg_{number}",
            "model": "claude-opus-5-5",
            "role": "assistant",
            "usage": usage,
        }
        records.append(_record(len(records), "assistant", {**message, "content": blocks}))
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{number}",
            "content": f"{number}\n{_OUTPUT}",
        }
        records.append(_record(len(records), "user", {"role": "user", "content": [result]}))
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _record(number: int, kind: str, message: dict[str, object]) -> dict[str, object]:
    seconds = number // 2
    stamp = f"2026-11-02T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{number % 2 * 500:03}Z"
    where = {
        "cwd": "/home/ada/shop",
        "version": "2.1.325",
        "gitBranch": "main",
        "isSidechain": False,
    }
    chain = {
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "sessionId": SESSION,
    }
    return {"type": kind, "timestamp": stamp, "message": message, **where, **chain}


def seconds(work: Callable[[], object]) -> float:
    """Return the median processor time of a few runs."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> int:
    """Measure, print, fail when the bar is missed."""
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "projects" / "shop" / f"{SESSION}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(transcript(STEPS))
        session = Archive({"claude-code": (folder,)}).read_session(SESSION)
        files = dict(build_trajectory(session).iter_files())
        document = json.loads(files[MAIN])
        table.title(
            f"a session of {len(session.steps):,} steps, {path.stat().st_size / 1e6:.0f} MB"
        )
        table.truth("every response is a step", _agent_steps(document) == STEPS)
        table.truth("nothing is wrong with it", not lint_trajectory(files[MAIN], lambda _: False))
        table.note(
            "floor: parse and write the transcript, s", f"{seconds(lambda: _floor(path)):.2f}"
        )
        table.most(
            "session to trajectory files, s",
            seconds(lambda: list(build_trajectory(session).iter_files())),
            1,
        )
        table.most("transcript to trajectory files, s", seconds(lambda: _build_whole(folder)), 1)
        table.note(
            "lint, s", f"{seconds(lambda: lint_trajectory(files[MAIN], lambda _: False)):.2f}"
        )
    return 1 if table.failed else 0


def _build_whole(folder: str) -> None:
    archive = Archive({"claude-code": (folder,)})
    list(
        build_trajectory(
            archive.read_session(SESSION), contexts=archive.thread_contexts(SESSION)
        ).iter_files()
    )


def _floor(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        msgspec.json.encode(msgspec.json.decode(line))


def _agent_steps(document: dict[str, list[dict[str, object]]]) -> int:
    return sum(step["source"] == "agent" for step in document["steps"])


if __name__ == "__main__":
    sys.exit(main())
