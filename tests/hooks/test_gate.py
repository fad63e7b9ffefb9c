import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flightlog.hooks import settle_gate
from flightlog.setup.install import SCRIPT, build_hook_command
from support.dataset_ground import Ground, turn
from support.hooking import payload, read_events, run_hook
from support.real_agent import new_session
from support.transcripts import user, write
from support.waiting import alive, command_line, processes, until

PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture
def counter(tmp_path):
    """A settle that takes a while and notes when it began and ended, and in which surroundings."""
    script = tmp_path / "settle.sh"
    script.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\necho "begin $$" >>log\nenv >environment\nps -o sid= -p $$ >sid\nsleep 0.4\n'
        'echo "end $$" >>log\n'
    )
    script.chmod(0o755)
    (tmp_path / "session").mkdir()
    return script


def ask(counter, wait_s=0.0, limit_s=120.0):
    """What the hook does at the end of a turn, with another program to run."""
    run = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parents[2])!r})\n"
        f"from flightlog.hooks import settle_gate\nsettle_gate.LIMIT_S = {limit_s}\n"
        f"settle_gate.run_settle_once({str(counter.parent / 'session')!r}, [{str(counter)!r}], {wait_s})"
    )
    subprocess.run(
        [PYTHON, "-I", "-S", "-c", run],
        env={**os.environ, "ANTHROPIC_API_KEY": "k"},
        check=True,
        timeout=20,
    )


def log(counter):
    path = counter.parent / "log"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def wait_until_settled(counter):
    """Wait until nobody settles any more and nothing is due, and return the log."""
    until(lambda: log(counter) and log(counter)[-1].startswith("end") and is_free(counter))
    return log(counter)


def is_free(counter):
    done = subprocess.run(
        ["flock", "-n", counter.parent / "session/settle.lock", "true"], check=False
    )
    return done.returncode == 0 and not (counter.parent / "session/settle.again").exists()


def test_one_request_starts_one_settle_and_the_hook_does_not_wait(counter):
    started = time.monotonic()
    ask(counter)
    waited = time.monotonic() - started

    assert [line.split()[0] for line in wait_until_settled(counter)] == ["begin", "end"]
    assert waited < 0.4


def test_many_requests_run_one_settle_at_a_time(counter):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ask(counter), range(24)))

    words = [line.split()[0] for line in wait_until_settled(counter)]
    assert words == ["begin", "end"] * (len(words) // 2)
    assert len(words) // 2 <= 6


def test_request_during_a_settle_starts_another_after_it(counter):
    ask(counter)
    until(lambda: log(counter))
    ask(counter)

    assert [line.split()[0] for line in wait_until_settled(counter)] == [
        "begin",
        "end",
        "begin",
        "end",
    ]


def test_a_killed_settle_blocks_no_other(counter):
    ask(counter)
    (begin,) = until(lambda: log(counter))
    group = os.getpgid(int(begin.split()[1]))
    os.killpg(group, signal.SIGKILL)
    # Dying takes a moment; who asks meanwhile leaves a mark that the next ask settles.
    until(lambda: not any(alive(pid) for pid in processes() if _group(pid) == group))

    ask(counter)

    assert [line.split()[0] for line in wait_until_settled(counter)] == ["begin", "begin", "end"]


def test_settle_that_hangs_is_killed_and_the_next_one_runs(counter):
    sound = counter.read_text()
    counter.write_text('#!/bin/sh\ncd "$(dirname "$0")"\necho "begin $$" >>log\nsleep 300\n')
    ask(counter, limit_s=1.0)
    (begin,) = until(lambda: log(counter))
    group = os.getpgid(int(begin.split()[1]))

    try:
        until(
            lambda: not any(alive(pid) for pid in processes() if _group(pid) == group), limit_s=10
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(
                group, signal.SIGKILL
            )  # where the limit does not work, nothing may be left of this test
    counter.write_text(sound)
    ask(counter)

    assert [line.split()[0] for line in wait_until_settled(counter)] == ["begin", "begin", "end"]


def _group(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def test_the_settle_has_its_own_session_and_no_key(counter):
    ask(counter)
    wait_until_settled(counter)

    names = {
        line.partition("=")[0] for line in (counter.parent / "environment").read_text().splitlines()
    }
    assert "ANTHROPIC_API_KEY" not in names
    assert int((counter.parent / "sid").read_text()) != os.getsid(0)


def test_inline_waits_for_the_settle(counter):
    ask(counter, wait_s=8)

    assert [line.split()[0] for line in log(counter)] == ["begin", "end"]


def test_inline_waits_no_longer_than_its_limit(counter):
    counter.write_text("#!/bin/sh\nsleep 3\n")
    started = time.monotonic()

    ask(counter, wait_s=0.5)

    assert time.monotonic() - started < 2.5


@pytest.mark.parametrize(
    ("event", "times"), [("PreToolUse", 0), ("Stop", 1), ("SessionEnd", 1), ("PreCompact", 1)]
)
def test_the_events_that_end_something_start_the_settle_of_their_session(tmp_path, event, times):
    session, trace = new_session(), tmp_path / "trace"
    subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=execve",
            "-s",
            "200",
            "-o",
            trace,
            sys.executable,
            "-I",
            "-S",
            str(SCRIPT),
        ],
        input=payload(event, session),
        env={"FLIGHTLOG_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        check=True,
        timeout=30,
    )

    started = [
        line for line in trace.read_text().splitlines() if '"settle"' in line and "execve" in line
    ]
    assert len(started) == times
    assert all(
        json.dumps(session) in line and '"-P", "-m", "flightlog"' in line for line in started
    )


@pytest.fixture
def collecting(tmp_path):
    """A session in a repository that collects rows, and the surroundings of its hook."""
    ground, session = Ground(tmp_path / "ground").on(), new_session()
    ground.write(session, *turn(1))
    given = {"CLAUDE_CONFIG_DIR": str(ground.config), "FLIGHTLOG_HOME": str(ground.root / "home")}
    return ground, session, given


def test_a_session_end_where_rows_are_collected_waits_for_them(collecting):
    ground, session, given = collecting

    run_hook(ground.root, payload("SessionEnd", session, cwd=str(ground.top)), **given)

    assert len(ground.rows("chat")) == 1


def test_nothing_is_collected_while_the_switch_is_off(collecting):
    ground, session, given = collecting
    given |= {"ML_COLLECTION_ENABLED": "off"}

    run_hook(ground.root, payload("SessionEnd", session, cwd=str(ground.top)), **given)
    recording = ground.root / "home/sessions/claude-code" / session
    until((recording / "transcript.jsonl").exists)
    until(
        lambda: (
            subprocess.run(
                ["flock", "-n", recording / "settle.lock", "true"], check=False
            ).returncode
            == 0
        )
    )

    assert ground.rows("chat") == []


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit"])
def test_a_hook_does_not_wait_for_a_settle_that_takes_long(collecting, event):
    ground, session, given = collecting
    recording = ground.root / "home/sessions/claude-code" / session
    recording.mkdir(parents=True)
    with subprocess.Popen(["flock", recording / "settle.lock", "sleep", "60"]) as holder:
        until((recording / "settle.lock").exists)
        time.sleep(0.2)
        began = time.monotonic()
        run_hook(ground.root, payload(event, session, cwd=str(ground.top)), **given)
        waited = time.monotonic() - began
        subprocess.run(["pkill", "-P", str(holder.pid)], check=True)

    assert waited < 3  # half a second on an idle machine, where the lock would take a minute


def test_no_process_outlives_its_work(tmp_path):
    session, config, home = new_session(), str(tmp_path / "config"), tmp_path / "home"
    home.mkdir()
    write(tmp_path / "config", session, user("hello", sessionId=session))
    inline = build_hook_command(Path(sys.executable), flags=["--inline"])
    run_hook(home, payload("Stop", session), run=inline, CLAUDE_CONFIG_DIR=config)
    run_hook(home, payload("SessionEnd", session), CLAUDE_CONFIG_DIR=config)

    until((home / "sessions" / "claude-code" / session / "transcript.jsonl").exists)
    until(lambda: not [pid for pid in processes() if alive(pid) and session in command_line(pid)])
    assert [event["event"] for event in read_events(home, session)] == ["Stop", "SessionEnd"]


def test_the_innermost_tracked_directory_is_saved_after_a_tool_call(tmp_path):
    outer, home = tmp_path / "work", tmp_path / "home"
    inner = outer / "inner"
    (inner / "deep").mkdir(parents=True)
    (tmp_path / "work-not-tracked").mkdir()
    (inner / "notes.txt").write_text("first\n")
    home.mkdir()
    (home / "tracked").write_text(f"{outer}\n{inner}\n")

    for number, folder in enumerate((inner / "deep", outer, tmp_path / "work-not-tracked")):
        call = payload("PostToolUse", cwd=str(folder), tool_use_id=f"call_{number}")
        run_hook(home, call)

    lines = (home / "sessions/claude-code/session-1/snapshots.jsonl").read_text().splitlines()
    saved = [(line["root"], line["tool_call_id"]) for line in map(json.loads, lines)]
    assert saved == [(str(inner), "call_0"), (str(outer), "call_1")]


def test_the_list_of_tracked_directories_may_be_missing_or_unreadable(tmp_path):
    assert settle_gate.find_tracked_root(str(tmp_path), "/work") == ""

    (tmp_path / "tracked").symlink_to("tracked")

    assert settle_gate.find_tracked_root(str(tmp_path), "/work") == ""


def test_a_directory_on_the_path_is_not_taken_for_the_program(tmp_path, monkeypatch):
    (tmp_path / "other" / "flightlog").mkdir(parents=True)
    program = tmp_path / "flightlog"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:.:{tmp_path}")

    assert settle_gate.find_command(is_installed=False) == [str(program)]
