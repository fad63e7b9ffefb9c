"""What the hook costs and how it stands up to a bad disk: counted in system calls, not in time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.setup.install import SCRIPT
from support.cli_runs import flightlog
from support.hooking import count_lost, payload, read_events, run_hook

PYTHON = str(Path(sys.executable).resolve())
PACKAGE = {"flightlog", "flightlog.hooks"}
OURS = PACKAGE | {f"flightlog.hooks.{name}" for name in ("recorder", "writer", "settle_gate")}
ALLOWED = {
    *("_abc", "_collections_abc", "_json", "_stat", "abc", "binascii", "errno", "fcntl"),
    *("genericpath", "os", "posixpath", "select", "stat"),
}


def test_the_hook_loads_exactly_these_modules(tmp_path):
    bare = list_imported_modules(tmp_path, ["-c", "pass"], b"")

    early = list_imported_modules(tmp_path, [str(SCRIPT)], payload("PreToolUse")) - bare - ALLOWED

    assert early == OURS - {"flightlog.hooks.settle_gate"}
    assert list_imported_modules(tmp_path, [str(SCRIPT)], payload("Stop")) - bare - ALLOWED == OURS


def test_an_event_is_one_write_and_syncs_only_where_it_must(tmp_path):
    run_hook(tmp_path, payload("SessionStart"))

    assert calls(tmp_path, payload("PreToolUse")) == {"write": 1}
    assert calls(tmp_path, payload("Stop")) == {"write": 1, "fdatasync": 1}


def test_first_event_of_a_session_syncs_its_directory_entries(tmp_path):
    counted = calls(tmp_path, payload("SessionStart"))

    # The event, who pays, that the session is live, a configuration directory that was not listed.
    assert counted["write"] == 4
    assert counted["fsync"] <= 6  # sessions, agent, session directory, the names of three files


@pytest.mark.parametrize("name", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_where_locks_do_not_work_each_hook_has_a_file_of_its_own(tmp_path, name):
    for number in range(3):
        run_hook(tmp_path, payload(n=number), prefix=inject(f"flock:error={name}"))

    assert {event["payload"]["n"] for event in read_events(tmp_path)} == {0, 1, 2}
    assert (tmp_path / "sessions/claude-code/session-1/hooks.jsonl").read_bytes() == b""


@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EROFS", "EACCES", "EDQUOT"])
def test_disk_error_loses_the_record_and_is_reported(tmp_path, name):
    run_hook(tmp_path, payload())
    before = (tmp_path / "sessions/claude-code/session-1/hooks.jsonl").read_bytes()

    run_hook(tmp_path, payload(), prefix=inject(f"write:error={name}"))

    assert (tmp_path / "sessions/claude-code/session-1/hooks.jsonl").read_bytes() == before
    assert count_lost(tmp_path) == 1


def test_a_full_disk_keeps_what_was_written_and_counts_the_rest(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False
    ).returncode:
        pytest.fail("this test mounts a small file system: run it as root")
    try:
        for number in range(30):
            run_hook(tmp_path, payload(n=number, pad="x" * 5000), FLIGHTLOG_HOME=str(disk))
        numbers = [event["payload"]["n"] for event in read_events(disk)]
        missing = count_lost(disk) + count_lost(tmp_path)
    finally:
        subprocess.run(["umount", disk], check=True)

    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 30
    assert missing == 30 - len(numbers)


def test_status_reports_the_events_that_were_lost(tmp_path):
    run_hook(tmp_path, payload())
    for _ in range(2):
        run_hook(tmp_path, payload(), prefix=inject("write:error=EIO"))
    (tmp_path / "config").mkdir()
    around = {"FLIGHTLOG_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    text = flightlog(tmp_path / "config", "status", **around)
    status = flightlog(tmp_path / "config", "status", "--json", **around)

    assert "2 hook events could not be recorded" in text.out
    assert json.loads(status.out)["lost_hook_events"] == 2


def test_a_lock_that_is_never_given_back_costs_a_shard_not_the_record(tmp_path):
    import fcntl

    run_hook(tmp_path, payload(n=0))
    with (tmp_path / "sessions/claude-code/session-1/hooks.jsonl").open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        run_hook(tmp_path, payload(n=1))

    assert [event["payload"]["n"] for event in read_events(tmp_path)] == [0, 1]
    assert count_lost(tmp_path) == 0


def test_a_line_torn_by_a_crash_is_sealed_off(tmp_path):
    run_hook(tmp_path, payload(n=0))
    file = tmp_path / "sessions/claude-code/session-1/hooks.jsonl"
    file.write_bytes(file.read_bytes() + b'{"v":1,"torn')

    run_hook(tmp_path, payload(n=1))

    lines = file.read_bytes().split(b"\n")
    assert (lines[1], b'"n": 1' in lines[2], lines[3:]) == (b'{"v":1,"torn', True, [b""])


@pytest.mark.slow
def test_death_at_any_system_call_hurts_no_record_but_its_own(tmp_path):
    """The agent is killed with its hook: every earlier and every later record stays whole."""
    run_hook(tmp_path, payload("SessionStart"))
    points = [
        (name, at)
        for name, count in all_calls(tmp_path, payload()).items()
        for at in range(1, count + 1)
    ]
    for name, at in points:
        run_hook(
            tmp_path, payload(point=f"{name}/{at}"), prefix=inject(f"{name}:signal=KILL:when={at}")
        )
        run_hook(tmp_path, payload("SessionEnd", after=f"{name}/{at}"))

    after = [event["payload"].get("after") for event in read_events(tmp_path)]
    assert [point for point in after if point] == [f"{name}/{at}" for name, at in points]


def list_imported_modules(home, run, stdin):
    """The modules an isolated Python loads for `run`."""
    done = subprocess.run(
        [PYTHON, "-X", "importtime", "-I", "-S", *run],
        input=stdin,
        env={"FLIGHTLOG_HOME": str(home)},
        capture_output=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}


def inject(what):
    """Make a system call of the hook fail, or kill it there."""
    return (sys.executable, "-c", _UNDER_STRACE, what)


# Only the Python of the hook is traced: the shell's own calls would be hit as well.
_UNDER_STRACE = """
import os, sys
what, shell = sys.argv[1], sys.argv[2:]
run = shell[-1]
python = run.split(" -I ", 1)[0]
traced = "strace -qq -o /dev/null -e inject=" + what + " " + python
os.execvp(shell[0], [*shell[:-1], run.replace(python, traced, 1)])
"""


def calls(home, stdin):
    """How often the hook writes and syncs."""
    trace = home / "trace"
    subprocess.run(
        [
            "strace",
            "-o",
            trace,
            "-e",
            "trace=write,pwrite64,fsync,fdatasync",
            PYTHON,
            "-I",
            "-S",
            str(SCRIPT),
        ],
        input=stdin,
        env={"FLIGHTLOG_HOME": str(home)},
        check=True,
    )
    return count(trace.read_text(), skip=("pwrite64",))


def all_calls(home, stdin):
    """Every system call the hook makes once its own code runs."""
    trace = home / "trace"
    subprocess.run(
        ["strace", "-o", trace, PYTHON, "-I", "-S", str(SCRIPT)],
        input=stdin,
        env={"FLIGHTLOG_HOME": str(home)},
        check=True,
    )
    ours = ("flock", "write", "pread64", "umask", "getrandom", "setitimer", "ftruncate")
    return {name: times for name, times in count(trace.read_text()).items() if name in ours}


def count(trace, skip=()):
    names = re.findall(r"^(\w+)\(", trace, re.MULTILINE)
    return {name: names.count(name) for name in sorted(set(names) - set(skip))}
