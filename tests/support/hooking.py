"""Running the hook as an agent does: the guarded command, a payload on stdin, a real shell."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from flightlog.setup.install import build_hook_command
from support.waiting import command_line, environ, processes, until

COMMAND = build_hook_command(Path(sys.executable))


def payload(event="PostToolUse", session="session-1", **more):
    return json.dumps({"session_id": session, "hook_event_name": event, **more}).encode()


def run_hook(home, stdin, *, run=COMMAND, prefix=(), limit_s=20, **environment):
    """Run the hook; whatever happens, the agent sees exit 0 and no output."""
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "FLIGHTLOG_HOME": str(home),
        "TMPDIR": str(home),
    }
    started = time.monotonic()
    done = subprocess.run(
        [*prefix, "sh", "-c", run],
        input=stdin,
        env=given | environment,
        capture_output=True,
        timeout=limit_s,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    if time.monotonic() - started > 0.9:
        # On a stalled machine the record is finished behind our back.
        until(lambda: not _behind((given | environment)["FLIGHTLOG_HOME"]))


def _behind(home):
    mark = f"FLIGHTLOG_HOME={home}\0".encode()
    return [pid for pid in processes() if "record.py" in command_line(pid) and mark in environ(pid)]


def read_events(home, session="session-1", agent="claude-code"):
    """The events on record, each with the payload decoded."""
    files = sorted((home / "sessions" / agent / session).glob("hooks.jsonl*"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def count_lost(home):
    """How many records the hook says it lost."""
    return sum(
        int(file.read_text()) for file in (*home.glob("lost"), *home.glob("flightlog-lost-*"))
    )
