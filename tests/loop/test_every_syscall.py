"""A runner killed at every system call of a plan comes to the same end as one that was left alone.

The tasks are functions of the scenario itself, so that every call that is counted is one of the
runner's own: locks, journal, pages, reports.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from loop.loops import final, journal, session_of
from support.strace_points import inject, points, run

SCENARIO = """
import itertools, json, time, os
from datetime import timezone
from flightlog.loop.report import write_report
from flightlog.loop.plan.load import parse_plan
from flightlog.loop.runner import session
from flightlog.loop.runner.executor import LoopOptions, TaskExecutor
from flightlog.loop.runner.driver import VerifyResult, TaskResult
from flightlog.loop.directories import iter_session_dirs
from flightlog.loop import events as e
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Clock, Runtime
from flightlog.privacy.redactor import Redactor

COUNT = {count}
tasks = [dict(task_id=f"{{n:03}}", name=f"task {{n}}", run=dict(command="true"), verify=["true"],
              dependencies=[f"{{n - 1:03}}"] if n > 1 else []) for n in range(1, COUNT + 1)]
data = json.dumps(dict(plan="killed", tasks=tasks, config=dict(human_intervention="never"),
                       milestones=[dict(name="all", phase=1)])).encode()
numbers = itertools.count(time.time_ns())
# A clock that goes on with each look at it: pages are written by the clock too, and every run must have the same calls.
ticks = itertools.count(int(time.time()) * 100)
clock = Clock(lambda: next(ticks) * 10, time.monotonic, time.sleep)
runtime = Runtime(dict(), str(root), str(root), str(root), clock, timezone.utc, lambda: str(next(numbers)),
                  lambda _: dict(), print)
options = LoopOptions(runtime, root, keep=lambda _: None, redact=lambda text: Redacted(text, 0, 0))
redactor = Redactor(bytes(32))

class OwnTasks(TaskExecutor):
    def run_attempt(self, effect, state, emit):
        key = state.task_state(effect.task.task_id).effect_id
        done = (root / "effects.txt").read_text().split() if (root / "effects.txt").exists() else []
        with open(root / "ran.txt", "a") as file:
            file.write(effect.task.task_id + "\\n")
        if key not in done:
            with open(root / "effects.txt", "a") as file:
                file.write(key + "\\n")
        emit(e.TaskReported(effect.task.task_id, effect.attempt, "metric", "m" + effect.task.task_id, 1.0))
        return TaskResult("success", 0.0, 0)

    def verify_task(self, effect, state):
        return VerifyResult(True, (("true", 0),), (), "", 0.0)

how = session.RunnerOptions("a test", session.RunMode.RESUME, executor=OwnTasks)
top = root / "ralph-loop-sessions"
begin()
known = [path for path in iter_session_dirs(top)] if top.is_dir() else []
if not known:
    told = session.LoopStart(parse_plan(data), data, root, autonomous=True)
    known = [session.create_session(top, told, runtime, redactor)]
try:
    session.continue_session(known[0], options, redactor, how, write_report)
except Exception as error:
    if "is completed" not in str(error):
        raise
end()
"""


def run_again(code, root):
    """Run the scenario again, unharmed."""
    program = code.replace("begin()\n", "").replace("\nend()\n", "\n")
    prelude = "import sys\nfrom pathlib import Path\nroot = Path(sys.argv[1])\n"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", prelude + program, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def kill_everywhere(tmp_path, count, every):
    """Kill at each point (or each `every`-th, and wherever an event is made to last) and resume; count the points."""
    code = SCENARIO.format(count=count)
    plain = tmp_path / "plain"
    plain.mkdir()
    named = points(code, plain)
    wanted = final(session_of(plain))
    assert wanted["status"] == "completed"

    def kill(point):
        root = tmp_path / f"{point[0]}-{point[1]}"
        root.mkdir()
        # Without seccomp, under which strace delivers no signal.
        done = run(
            code,
            root,
            "-o",
            "/dev/null",
            "-e",
            f"trace={point[0]}",
            "-e",
            inject(point, "signal=KILL"),
        )
        assert done.returncode in {-9, 137}, (point, done.returncode, done.stderr)
        sessions = list((root / "ralph-loop-sessions").glob("session-001-*"))
        completed = [
            event["task"]
            for path in sessions
            for event in journal_so_far(path)
            if event["kind"] == "task_complete"
        ]
        ran = (root / "ran.txt").read_text().split() if (root / "ran.txt").exists() else []
        run_again(code, root)
        assert final(session_of(root)) == wanted, point
        again = (root / "ran.txt").read_text().split()
        assert [task for task in completed if again.count(task) != ran.count(task)] == [], point
        effects = (root / "effects.txt").read_text().split()
        assert len(effects) == len(set(effects)) == count, point
        ended = [
            event["task"] for event in journal(session_of(root)) if event["kind"] == "task_complete"
        ]
        assert len(ended) == len(set(ended)) == count, point
        logged = json.loads((session_of(root) / "execution-log.json").read_text())["events"]
        assert len(logged) == len(journal(session_of(root))), point

    chosen = [point for at, point in enumerate(named) if at % every == 0 or point[0] == "fdatasync"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(kill, chosen))
    return len(chosen)


def journal_so_far(path):
    """The whole lines of a journal; the last may be torn."""
    lines = (
        (path / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        if (path / "journal.jsonl").exists()
        else []
    )
    return [json.loads(line) for line in lines if line]


@pytest.mark.slow
def test_plan_killed_at_some_calls_comes_to_the_same_end(tmp_path):
    assert kill_everywhere(tmp_path, 3, every=251) >= 12


@pytest.mark.soak
def test_plan_of_20_tasks_killed_at_every_call_ends_the_same(tmp_path):
    assert kill_everywhere(tmp_path, 20, every=int(os.environ.get("FLIGHTLOG_EVERY", "1"))) >= 100
