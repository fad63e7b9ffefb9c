"""Small plans and sessions to try things with; every one of them runs real commands."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from flightlog.app.runtime import open_runtime
from flightlog.loop.plan.load import parse_plan
from flightlog.loop.report import write_report
from flightlog.loop.runner.executor import LoopOptions
from flightlog.loop.runner.session import LoopStart, RunnerOptions, continue_session, create_session
from flightlog.model.output_files import Redacted
from flightlog.privacy.redactor import Redactor

BIN = Path(sys.executable).parent
RALPH = BIN / "ralph-runtime"
TWO = """
plan: two
tasks:
  - {task_id: a, name: first, run: {command: "echo one > one.txt"}, verify: ["grep -q one one.txt"]}
  - {task_id: b, name: second, dependencies: [a], run: {command: "cat one.txt > two.txt"}, verify: ["test -s two.txt"]}
"""


def project(root, plan, **files):
    """Make a project directory with a plan in it and return it."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "plan.yaml").write_text(textwrap.dedent(plan))
    for name, body in files.items():
        (root / name.replace("__", ".")).write_text(textwrap.dedent(body))
    return root


def environment(root, **more):
    """An environment that knows nothing of this machine but where programs are."""
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    return {
        **variables,
        "FLIGHTLOG_HOME": str(root / "flightlog"),
        "CLAUDE_CONFIG_DIR": str(root / "config"),
        **more,
    }


def ralph(root, *words, timeout=120, **more):
    """Run `ralph-runtime` in a project."""
    return subprocess.run(
        [RALPH, *words],
        cwd=root,
        env=environment(root, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def conduct(root, **settings):
    """Carry a plan out in this process, as `run --autonomous` does; return what it came to."""
    options = LoopOptions(
        open_runtime(environment(root, FLIGHTLOG_CLAUDE="/no/such/program")),
        root / "config",
        keep=lambda _: None,
        redact=lambda text: Redacted(text, 0, 0),
    )
    redactor = Redactor(bytes(32))
    data = (root / "plan.yaml").read_bytes()
    start = LoopStart(parse_plan(data), data, root, autonomous=True, **settings)
    directory = create_session(root / "ralph-loop-sessions", start, options.runtime, redactor)
    continue_session(directory, options, redactor, RunnerOptions("a test"), write_report)
    return directory


def start(root, *words, **more):
    """Start `ralph-runtime` and return at once."""
    return subprocess.Popen(
        [RALPH, *words],
        cwd=root,
        env=environment(root, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def session_of(root, number=1):
    """The directory of a session."""
    (directory,) = (root / "ralph-loop-sessions").glob(f"session-{number:03}-*")
    return directory


def journal(directory):
    """The events on record."""
    return [json.loads(line) for line in (directory / "journal.jsonl").read_bytes().splitlines()]


def kinds(directory):
    """The kinds of events on record."""
    return [event["kind"] for event in journal(directory)]


def twenty(root, *, sleep=0.0):
    """A plan of 20 tasks; each notes that it ran, and does one effect whose receiver knows it by its key."""
    work = f"""
        set -e
        echo "$FLIGHTLOG_TASK" >> ran.txt
        sleep {sleep}
        mkdir -p "effects/$FLIGHTLOG_TASK-$FLIGHTLOG_KEY"
        echo "{{\\"metric\\": \\"m$FLIGHTLOG_TASK\\", \\"value\\": 1}}" >> "$FLIGHTLOG_REPORT"
        echo "$FLIGHTLOG_TASK" > "out-$FLIGHTLOG_TASK"
    """
    (root / "effects").mkdir(parents=True, exist_ok=True)
    (root / "work.sh").write_text(textwrap.dedent(work))
    tasks = [
        {
            "task_id": f"{number:03}",
            "name": f"task {number}",
            "run": {"command": "sh work.sh"},
            "verify": [f"test -f out-{number:03}"],
            "phase": 1 + number // 8,
            "dependencies": [f"{number - 2:03}"] if number > 3 else [],
        }
        for number in range(1, 21)
    ]
    plan = {
        "plan": "twenty",
        "tasks": tasks,
        "milestones": [{"name": "half", "tasks": ["010"]}],
        "quality_gates": [{"name": "seven", "metric": "m007", "threshold": 1, "phase": 1}],
        "config": {"human_intervention": "never"},
    }
    (root / "plan.yaml").write_text(json.dumps(plan))
    return root


def final(directory):
    """What a session came to, without times and without how often it was cut short."""
    from flightlog.loop.directories import open_loop_session

    state = open_loop_session(directory).state
    tasks = {
        name: (task.status, task.result, task.attempt, task.artifacts)
        for name, task in state.tasks.items()
    }
    return {
        "status": state.status,
        "tasks": tasks,
        "metrics": state.metrics,
        "gates": {name: (gate.value, gate.passed) for name, gate in state.gates.items()},
        "milestones": sorted(state.milestones),
    }


def wait_for_exit(runner):
    """Wait for a runner's end and return its exit code."""
    runner.communicate(timeout=30)
    return runner.returncode


def read_answer(root):
    (event,) = [event for event in journal(session_of(root)) if event["kind"] == "answer"]
    return event["answer"], event["answered_by"]
