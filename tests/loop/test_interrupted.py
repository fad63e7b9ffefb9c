"""Sessions that are disturbed: a second runner, signals, a pause, kills at any instant, a person at the terminal."""

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from flightlog.loop.directories import open_loop_session
from loop.loops import (
    RALPH,
    TWO,
    environment,
    final,
    journal,
    kinds,
    project,
    ralph,
    read_answer,
    session_of,
    start,
    twenty,
    wait_for_exit,
)
from support.waiting import alive, environ, processes, until


def test_a_second_runner_is_refused_and_a_zombie_is_fenced(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: slow
        tasks:
          - {task_id: a, name: x, run: {command: "echo a >> ran.txt; while [ ! -e go ]; do sleep 0.05; done"}}
          - {task_id: b, name: y, run: {command: "echo b >> ran.txt"}, dependencies: [a]}
        """,
    )
    first = start(root, "run", "--plan", "plan.yaml", "--autonomous")
    until((root / "ran.txt").exists)

    refused = ralph(root, "resume", "--session", "session-001")
    os.kill(first.pid, signal.SIGSTOP)
    (root / "go").touch()
    took = ralph(root, "resume", "--session", "session-001", "--steal")
    written = (session_of(root) / "journal.jsonl").read_bytes()
    os.kill(first.pid, signal.SIGCONT)
    _, errors = first.communicate(timeout=30)

    assert refused.returncode == 75
    assert "held by" in refused.stderr
    assert took.returncode == 0, took.stderr
    assert first.returncode == 75, errors
    assert (session_of(root) / "journal.jsonl").read_bytes() == written
    assert [
        event["epoch"] for event in journal(session_of(root)) if event["kind"] == "runner_took"
    ] == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_stopping_leaves_no_orphan_and_no_lock(tmp_path, number):
    root = project(
        tmp_path / "p",
        """
        plan: family
        tasks:
          - {task_id: a, name: x, run: {command: "sleep 300 & (setsid sleep 301 &) ; touch up; sleep 302"}}
        """,
    )
    runner = start(root, "run", "--plan", "plan.yaml", "--autonomous")
    until((root / "up").exists)
    mark = f"FLIGHTLOG_LOOP={open_loop_session(session_of(root)).state.marker}".encode()

    def find_marked_processes():
        pids = [pid for pid in processes() if mark in environ(pid).split(b"\0")]
        return pids if len(pids) >= 4 else []

    family = until(find_marked_processes)

    os.kill(runner.pid, number)
    runner.communicate(timeout=30)

    until(lambda: not [pid for pid in family if alive(pid)])
    resumed = start(root, "resume", "--session", "session-001")
    until(lambda: kinds(session_of(root)).count("runner_took") == 2)
    resumed.terminate()
    resumed.communicate(timeout=30)
    if number is not signal.SIGKILL:
        assert runner.returncode == 130
        assert "runtime_stopped" in kinds(session_of(root))


def test_pause_waits_for_the_task_and_stop_does_not(tmp_path):
    plan = """
    plan: slow
    tasks:
      - {task_id: a, name: x, run: {command: "touch up; while [ ! -e go ]; do sleep 0.05; done; touch a"}}
      - {task_id: b, name: y, run: {command: "touch b"}, dependencies: [a]}
    """
    paused, stopped = project(tmp_path / "paused", plan), project(tmp_path / "stopped", plan)
    for root, word in ((paused, "pause"), (stopped, "stop")):
        runner = start(root, "run", "--plan", "plan.yaml", "--autonomous")
        until(lambda root=root: (root / "up").exists())
        asked = ralph(root, word, "--session", "session-001", "--json")
        (root / "go").touch() if word == "pause" else None
        runner.communicate(timeout=30)
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout) == {"session": "session-001", "request": word}
        assert open_loop_session(session_of(root)).state.status == "paused"

    assert (paused / "a").exists()
    assert not (paused / "b").exists()
    assert not (stopped / "a").exists()
    assert ralph(paused, "resume", "--session", "session-001").returncode == 0
    (stopped / "go").touch()
    assert ralph(stopped, "resume", "--session", "session-001").returncode == 0
    assert kinds(session_of(paused)).count("task_complete") == 2
    assert ralph(paused, "stop", "--session", "session-001").returncode == 75


def while_stopped(runner, look):
    """Look while the runner stands still, between two of its system calls: a reader beside a writer may see both."""
    os.kill(runner.pid, signal.SIGSTOP)
    try:
        while (
            Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ"
        ):
            time.sleep(0)
        return look()
    finally:
        os.kill(runner.pid, signal.SIGCONT)


def test_the_log_is_whole_at_every_moment(tmp_path):
    root = twenty(tmp_path / "p")
    runner = start(root, "run", "--plan", "plan.yaml", "--autonomous")
    seen = 0
    until(lambda: list((root / "ralph-loop-sessions").glob("session-001-*/execution-log.json")))
    page = session_of(root) / "execution-log.json"

    while runner.poll() is None:
        time.sleep(0.01)
        seen = max(seen, len(while_stopped(runner, lambda: json.loads(page.read_text())["events"])))

    assert wait_for_exit(runner) == 0
    assert seen > 20


def kill_at_random(root, chance, whole_s, option=""):
    """Run the twenty tasks with kills in between until they are done; return how many kills there were."""
    deaths = 0
    began = False
    options = [option] if option else []
    while True:
        words = (
            ("resume", "--session", "session-001")
            if began
            else ("run", "--plan", "plan.yaml", "--autonomous")
        )
        runner = start(root, *words, *options)
        ended_early = _end_within(root, runner, chance.uniform(0.0, whole_s), option)
        if not ended_early:
            deaths += 1
        elif _is_completed(root):
            return deaths
        began = bool(list((root / "ralph-loop-sessions").glob("session-001-*/journal.jsonl")))


def _end_within(root, runner, seconds, option):
    """Wait for the runner, in the background where it detached; kill it if it takes longer."""
    pid = runner.pid
    if option == "--detach":
        errors = runner.communicate(timeout=60)[1]
        match = re.search(r"as process (\d+)", errors)
        if not match:  # it was completed when it was killed
            assert "is completed" in errors, errors
            return True
        pid = int(match[1])
    end = time.monotonic() + seconds
    while time.monotonic() < end and alive(pid):
        time.sleep(0.005)
    was_alive = alive(pid)
    if was_alive:
        _check_nothing_repeated(root, lambda: os.kill(pid, signal.SIGKILL))
        until(lambda: not alive(pid))
    _, errors = runner.communicate(timeout=60)
    # Killed after its last event: there is nothing left to carry on, and `resume` says so.
    if not was_alive and option != "--detach":
        assert runner.returncode == (2 if "is completed" in errors else 0), errors
    return not was_alive


def _is_completed(root):
    return open_loop_session(session_of(root)).state.status == "completed"


def _check_nothing_repeated(root, kill):
    """Kill, and see that what was completed by then is not run again, ever."""
    kill()
    done = [event["task"] for path in (root / "ralph-loop-sessions").glob("session-001-*")
            for event in journal(path) if event["kind"] == "task_complete"]  # fmt: skip
    ran = (root / "ran.txt").read_text().split() if (root / "ran.txt").exists() else []
    for task in done:
        (root / f"runs-{task}").write_text(str(ran.count(task))) if not (
            root / f"runs-{task}"
        ).exists() else None


def check_final(root, undisturbed):
    """The same final state as undisturbed, no completed task and no keyed effect repeated."""
    assert final(session_of(root)) == undisturbed
    effects = sorted(path.name.partition("-")[0] for path in (root / "effects").iterdir())
    assert effects == [f"{number:03}" for number in range(1, 21)], (
        "an effect under two keys, or none"
    )
    ran = (root / "ran.txt").read_text().split()
    for note in root.glob("runs-*"):
        assert ran.count(note.name.removeprefix("runs-")) == int(note.read_text()), note.name
    completed = [
        event["task"] for event in journal(session_of(root)) if event["kind"] == "task_complete"
    ]
    assert len(completed) == len(set(completed)) == 20
    assert kinds(session_of(root)).count("run_start") == kinds(session_of(root)).count(
        "attempt_end"
    ), "each run has its end on record, also one that a kill ended"
    logged = json.loads((session_of(root) / "execution-log.json").read_text())["events"]
    assert len(logged) == len(journal(session_of(root)))


def kill_runs(tmp_path, kills, seed, option=""):
    chance = random.Random(seed)
    plain = twenty(tmp_path / "plain")
    began = time.monotonic()
    assert ralph(plain, "run", "--plan", "plan.yaml", "--autonomous").returncode == 0
    took = time.monotonic() - began
    deaths = number = 0
    while deaths < kills:
        number += 1
        root = twenty(tmp_path / f"run-{number}")
        deaths += kill_at_random(root, chance, took * 0.9, option)
        check_final(root, final(session_of(plain)))
    return deaths


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--live", "--detach"])
def test_plan_killed_at_random_instants_comes_to_the_same_end(tmp_path, option):
    assert kill_runs(tmp_path, 2, seed=1, option=option) >= 2


@pytest.mark.soak
@pytest.mark.parametrize(("option", "kills"), [("", 500), ("--live", 100), ("--detach", 100)])
def test_plan_killed_at_500_random_instants_comes_to_the_same_end(tmp_path, option, kills):
    assert kill_runs(tmp_path, kills, seed=2, option=option) >= kills


def test_resume_after_a_kill_at_the_end_restores_the_final_report(tmp_path):
    root = project(tmp_path / "p", TWO)
    assert ralph(root, "run", "--plan", "plan.yaml", "--autonomous").returncode == 0
    directory = session_of(root)
    report = directory / "final-report.md"
    text, events = report.read_text(), kinds(directory)
    report.rename(directory / f".final-report.md.{2**22 + 1}-1-{'0' * 12}-{2**22 + 1}.tmp")

    ran = ralph(root, "resume", "--session", "session-001")

    assert "is completed" in ran.stderr
    assert report.read_text() == text
    assert not list(directory.glob(".*.tmp"))
    assert kinds(directory) == events


@pytest.mark.parametrize("by_file", [False, True], ids=["by-command", "by-file"])
def test_an_answer_given_while_no_runner_lives_counts_when_it_resumes(tmp_path, by_file):
    root = project(
        tmp_path / "p",
        """
        plan: asks
        config: {human_intervention: on_error, answer_timeout_seconds: 60}
        tasks:
          - {task_id: a, name: x, run: {command: "test -e tried || { touch tried; exit 1; }"}, max_retries: 0}
        """,
    )
    runner = start(root, "run", "--plan", "plan.yaml", "--autonomous")
    pages = lambda: root.glob("ralph-loop-sessions/session-001*/question.yaml")  # noqa: E731
    page = until(lambda: next((page for page in pages() if "answer:" in page.read_text()), None))
    runner.kill()
    wait_for_exit(runner)

    if by_file:
        page.write_text(page.read_text().replace('answer: ""', "answer: retry"))
    else:
        assert ralph(root, "answer", "--session", "session-001", "retry").returncode == 0
    resumed = ralph(root, "resume", "--session", "session-001")

    assert (resumed.returncode, read_answer(root)) == (0, ("retry", "person")), resumed.stderr


def test_a_person_at_the_terminal_is_asked_and_answers(tmp_path):
    root = project(tmp_path / "p", TWO + "config: {answer_timeout_seconds: 60}\n")
    ours, theirs = os.openpty()
    runner = subprocess.Popen([RALPH, "run", "--plan", "plan.yaml"], cwd=root, env=environment(root), stdin=theirs,
                              stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True)  # fmt: skip
    os.close(theirs)
    screen = b""
    while b"[pause]" not in screen:
        screen += os.read(ours, 1000)

    os.write(ours, b"perhaps\ngo\n")

    assert runner.wait(60) == 0
    os.close(ours)
    assert "2 tasks?" in screen.decode()
    assert read_answer(root) == ("go", "person")
