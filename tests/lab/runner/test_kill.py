"""A run whose process is killed at any moment: always inspectable, taken up again, nothing lost, nobody left behind."""

import hashlib
import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from support.cli_runs import FLIGHTLOG
from support.labs import again, environment, rewrite_config
from support.waiting import command_line, processes, until

SCENARIO = """
  rules:
    - when: {prompt: "number (\\\\d+)"}
      replies:
        - blocks:
            - {tool: Bash, input: {command: "cat next >> log; n=$(cat next); echo $n > f$n; echo $((n+1)) > next"}}
        - text: done
"""


def write_config(root: Path, sessions: int) -> Path:
    (root / "work").mkdir(parents=True)
    (root / "work" / "next").write_text("1\n")
    listed = "\n".join(
        f"  - {{session_index: {n}, prompt: number {n}}}" for n in range(1, sessions + 1)
    )
    head = f"model: claude-opus-5-5\nengine: scripted\nwork_dir: {root / 'work'}\nin_place: keep\n"
    text = f"{head}scenario:{SCENARIO}sessions:\n{listed}\nmemory_file: null\n"
    (root / "run.yaml").write_text(text)
    return root / "run.yaml"


def harness(root, *words):
    command = [str(FLIGHTLOG), "lab", *words, "--runs-dir", str(root / "runs")]
    # A shell that starts tests in the background lets them ignore interrupts, and so would what they start.
    return subprocess.Popen(
        command,
        env=environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )


def inspect_run(root):
    shown = harness(root, "inspect", "run", "--json")
    out, err = shown.communicate(timeout=60)
    assert shown.returncode == 0, err
    return json.loads(out)


def hash_completed_sessions(root, meta):
    """What is on record of the sessions that completed: the bytes of their transcripts and exchanges."""
    done = [
        session["session_dir"]
        for session in meta["sessions"]
        if session["stop_reason"] == "completed"
    ]
    files = {name: root / "runs" / "run" / name / "transcript.jsonl" for name in done}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def players(root):
    """The agents of this run that are alive."""
    return [
        pid
        for pid in processes()
        if "scripted.play" in command_line(pid) and str(root) in environ_of(pid)
    ]


def environ_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def kill_until_done(root, sessions, kills, chance):
    """Run, kill, look, take up again; return how often it was killed before it was done."""
    config = write_config(root, sessions)
    running = harness(root, "run", str(config), "--run-name", "run")
    before: dict[str, str] = {}
    killed = 0
    while True:
        try:
            _, err = running.communicate(
                timeout=chance.uniform(0.5, 3.0) if killed < kills else 600
            )
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.communicate()
            killed += 1
            until(lambda: not players(root))
            if not (root / "runs" / "run" / "config.yaml").exists():
                running = harness(root, "run", str(config), "--run-name", "run")
                continue
            meta = inspect_run(root)
            now = hash_completed_sessions(root, meta)
            assert {name: now.get(name) for name in before} == before, (
                "what was finished stays as it was"
            )
            before = now
            running = harness(root, "run", "--resume", "run", "--again")
            continue
        assert running.returncode == 0, err
        return killed


def check_run(root, sessions):
    meta = inspect_run(root)
    state = again(root).state
    assert [session["stop_reason"] for session in meta["sessions"]] == ["completed"] * sessions
    assert (root / "work" / "log").read_text().split() == [str(n) for n in range(1, sessions + 1)]
    assert [(root / "work" / f"f{n}").read_text().strip() for n in range(1, sessions + 1)] == [
        str(n) for n in range(1, sessions + 1)
    ]
    tries = [attempt for attempts in state.attempts.values() for attempt in attempts]
    assert all(attempt.end for attempt in tries), "every attempt has an end on record"
    assert {attempt.stop_reason for attempt in tries} <= {"completed", "interrupted"}
    assert not (root / "runs" / ".work-run").exists()
    return sum(attempt.stop_reason == "interrupted" for attempt in tries)


def test_a_run_killed_at_random_points_loses_nothing(tmp_path):
    killed = kill_until_done(tmp_path, 4, 3, random.Random(4))

    check_run(tmp_path, 4)
    assert killed


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_sessions_killed_a_hundred_times_lose_nothing(tmp_path):
    chance = random.Random(50)
    killed = interrupted = rounds = 0
    while killed < 100:
        rounds += 1
        root = tmp_path / f"round-{rounds}"
        root.mkdir()
        killed += kill_until_done(root, 50, 100 - killed, chance)
        interrupted += check_run(root, 50)
        print(
            f"{killed} kills, {interrupted} in the middle of a session, {rounds} runs of 50 sessions"
        )


def test_what_was_in_flight_is_marked_and_not_run_again_unless_asked(tmp_path):
    config = write_config(tmp_path, 3)
    config.write_text(
        config.read_text().replace("cat next >> log;", "touch began; sleep 30; cat next >> log;", 1)
    )
    running = harness(tmp_path, "run", str(config), "--run-name", "run")
    until((tmp_path / "work" / "began").exists)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    text = (tmp_path / "runs" / "run" / "config.yaml").read_text()
    rewrite_config(tmp_path / "runs" / "run", text.replace("sleep 30; ", ""))

    resumed = harness(tmp_path, "run", "--resume", "run")
    _, errors = resumed.communicate(timeout=120)
    meta = inspect_run(tmp_path)

    assert resumed.returncode == 1, errors
    assert [session["stop_reason"] for session in meta["sessions"]] == [
        "interrupted",
        "completed",
        "completed",
    ]
    assert (tmp_path / "work" / "log").read_text().split() == ["1", "2"]

    asked = harness(tmp_path, "run", "--resume", "run", "--again")
    asked.communicate(timeout=120)
    meta = inspect_run(tmp_path)
    assert [session["stop_reason"] for session in meta["sessions"]] == ["completed"] * 3
    assert [session["attempts"] for session in meta["sessions"]] == [2, 1, 1]
    assert (tmp_path / "runs/run/.attempts/session_01_a1/session_01/transcript.jsonl").exists()


def test_a_run_that_is_being_carried_out_is_not_taken_up_by_another(tmp_path):
    config = write_config(tmp_path, 1)
    config.write_text(config.read_text().replace("cat next >> log;", "touch began; sleep 30;", 1))
    running = harness(tmp_path, "run", str(config), "--run-name", "run")
    until((tmp_path / "work" / "began").exists)

    second = harness(tmp_path, "run", "--resume", "run")
    _, errors = second.communicate(timeout=60)
    running.send_signal(signal.SIGINT)
    _, errors_of_first = running.communicate(timeout=60)

    assert second.returncode == 75, errors
    assert running.returncode == 130, errors_of_first
    assert inspect_run(tmp_path)["stop_reason"] == "interrupted"
    until(lambda: not players(tmp_path))


def test_death_in_parallel_sessions_leaves_the_work_directory_unchanged(tmp_path):
    config = write_config(tmp_path, 2)
    slow = f"touch began$(cat next); test $(cat next) = 1 -o -e {tmp_path}/go || sleep 30; cat next >> log;"
    text = config.read_text().replace("cat next >> log;", slow, 1)
    config.write_text(text.replace("prompt: number 2}", "prompt: number 2, count: 3}"))
    running = harness(tmp_path, "run", str(config), "--run-name", "run")
    trees = tmp_path / "runs" / ".work-run" / "trees"
    until(lambda: len(list(trees.glob("session_02_r0?/began2"))) == 3)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    until(lambda: not players(tmp_path))

    assert (tmp_path / "work" / "log").read_text().split() == ["1"], (
        "only what was finished is in the directory"
    )

    (tmp_path / "go").touch()
    resumed = harness(tmp_path, "run", "--resume", "run", "--again")
    _, errors = resumed.communicate(timeout=120)

    assert resumed.returncode == 0, errors
    state = again(tmp_path).state
    for name in ("session_02_r01", "session_02_r02", "session_02_r03"):
        assert [attempt.stop_reason for attempt in state.attempts[name]] == [
            "interrupted",
            "completed",
        ]
    assert (tmp_path / "work" / "log").read_text().split() == ["1", "2"]
    assert not trees.exists()
