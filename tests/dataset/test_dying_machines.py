"""Machines that end with the agent: every process dies when the client exits, and the rows remain."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.dataset.reader import read_dataset
from support.real_agent import ALLOWED, Bench, make_bench, new_session
from support.waiting import until

BIN = Path(sys.executable).parent
CALL = {"tool": "Bash", "input": {"command": "echo one", "description": "Run a command"}}
SCENARIO = {"rules": [{"replies": [{"blocks": [CALL]}, {"text": "Done at last."}]}]}
SLOW = {"rules": [{"replies": [{"text": "Never said.", "delay_s": 60}]}]}


def surroundings(bench: Bench, url: str, **more: str) -> dict[str, str]:
    """The environment of a new machine: flightlog on the path, and nothing of it at home."""
    env = bench.environment(url) | {"GIT_CONFIG_GLOBAL": os.devnull} | more
    del env["FLIGHTLOG_HOME"]
    return env | {"PATH": f"{BIN}:{env['PATH']}"}


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(folder)}
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def origin(tmp_path):
    """A repository that collects rows with words, and whose own hook its clones share."""
    bench = make_bench(tmp_path / "first")
    git(bench.project, "init", "-q", "-b", "main")
    (bench.project / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    env = surroundings(bench, "http://127.0.0.1:9")
    subprocess.run(
        [BIN / "flightlog", "dataset", "install-hooks"],
        cwd=bench.project,
        env=env,
        check=True,
        capture_output=True,
    )
    git(bench.project, "add", "-A")
    git(bench.project, "commit", "-q", "--no-verify", "-m", "begin")
    return bench.project


def new_machine(root: Path, origin: Path) -> Bench:
    """A fresh clone beside an empty home."""
    bench = make_bench(root)
    bench.project.rmdir()
    git(root, "clone", "-q", str(origin), str(bench.project))
    return bench


@contextmanager
def vanishing(bench: Bench, scenario: dict, **env: str) -> Iterator[subprocess.Popen]:
    """Run the client as the first process of a namespace, whose processes all end with it."""
    client = [str(bench.client.program), "-p", "Say one.", "--session-id", new_session()]
    with (
        serve_scenario(parse_scenario(scenario)) as model,
        subprocess.Popen(
            ["unshare", "-pf", "--mount-proc", "--kill-child", *client, *ALLOWED],
            cwd=bench.project,
            env=surroundings(bench, model.url, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as running,
    ):
        try:
            yield running
        finally:
            running.kill()


def rows(bench: Bench, kind: str) -> list[dict]:
    return list(read_dataset(bench.project / ".git-ml" / "tracked").rows_of_kind(kind))


def capture_sessions(root: Path, origin: Path, count: int, **env: str) -> list[tuple]:
    """Run sessions on machines of their own; return the chats and finished actions of each."""
    captured = []
    for number in range(count):
        bench = new_machine(root / f"machine-{number}", origin)
        with vanishing(bench, SCENARIO, **env) as running:
            assert running.wait(60) == 0
        tracked = bench.project / ".git-ml" / "tracked"
        assert {path.stem for path in tracked.glob("*.jsonl")} == FIVE
        chats = tuple((row["input"], row["output"]) for row in rows(bench, "chat"))
        actions = [row for row in rows(bench, "action") if row.get("success")]
        captured.append((chats, len(actions), len(rows(bench, "session"))))
        shutil.rmtree(root / f"machine-{number}")
    return captured


FIVE = {"commits", "sessions", "chats", "orchestration", "actions"}
WHOLE = ((("Say one.", "Done at last."),), 1, 1)


def test_rows_outlive_a_machine_that_ends_with_the_agent(tmp_path, origin):
    captured = capture_sessions(tmp_path, origin, 3, FLIGHTLOG_TRUST="words")

    assert captured == [WHOLE] * 3


@pytest.mark.soak
def test_twenty_of_twenty_sessions_outlive_their_machines(tmp_path, origin):
    captured = capture_sessions(tmp_path, origin, 20, FLIGHTLOG_TRUST="words")

    assert captured == [WHOLE] * 20


def test_the_hook_of_init_keeps_rows_of_such_a_machine_too(tmp_path, origin):
    bench = new_machine(tmp_path / "machine", origin)
    shutil.rmtree(bench.project / ".claude")
    env = surroundings(bench, "http://127.0.0.1:9")
    command = [BIN / "flightlog", "init", "--project", "--yes", "--no-guard", "--no-statusline"]
    subprocess.run(command, cwd=bench.project, env=env, check=True, capture_output=True)

    with vanishing(bench, SCENARIO, FLIGHTLOG_TRUST="words") as running:
        assert running.wait(60) == 0

    assert [row["output"] for row in rows(bench, "chat")] == ["Done at last."]


def test_without_consent_to_words_the_rows_have_none(tmp_path, origin):
    captured = capture_sessions(tmp_path, origin, 1)

    assert captured == [(((None, None),), 1, 1)]


def test_the_prompt_of_a_turn_in_flight_is_captured(tmp_path, origin):
    bench = new_machine(tmp_path / "machine", origin)

    with vanishing(bench, SLOW, FLIGHTLOG_TRUST="words") as running:
        until(lambda: rows(bench, "chat"))
        running.kill()
        running.wait(20)

    assert [(row["input"], row["output"]) for row in rows(bench, "chat")] == [("Say one.", "")]


def test_a_misspelled_consent_costs_no_rows_and_is_named_at_the_start(tmp_path, origin):
    captured = capture_sessions(tmp_path, origin, 1, FLIGHTLOG_TRUST="wrods, push")

    assert captured == [(((None, None),), 1, 1)]
    notices = {}
    for value in ("wrods, push", "words push,rows", "*", ""):
        env = surroundings(make_bench(tmp_path / f"start{len(notices)}"), "http://127.0.0.1:9")
        ran = subprocess.run(
            [origin / "scripts/ml-session-capture-hook.sh", "SessionStart"],
            input=b"{}",
            env=env | {"CLAUDE_PROJECT_DIR": str(origin), "FLIGHTLOG_TRUST": value},
            capture_output=True,
            check=True,
        )
        notices[value] = json.loads(ran.stdout)["systemMessage"] if ran.stdout else ""
    only = "FLIGHTLOG_TRUST allows nothing, because it may hold only: rows, words, push"
    assert notices == {"wrods, push": only, "words push,rows": "", "*": only, "": ""}


@pytest.mark.parametrize(
    ("event", "words"), [("SessionStart", "flightlog is not on the PATH"), ("Stop", "")]
)
def test_a_hook_without_flightlog_says_so_once_and_fails_nothing(tmp_path, origin, event, words):
    path = "/usr/bin:/bin"

    ran = subprocess.run(
        [origin / "scripts/ml-session-capture-hook.sh", event],
        input=b"{}",
        env={"PATH": path, "CLAUDE_PROJECT_DIR": str(origin)},
        capture_output=True,
        check=False,
    )

    assert shutil.which("flightlog", path=path) is None
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert words in (json.loads(ran.stdout)["systemMessage"] if ran.stdout else "")
    assert bool(ran.stdout) is bool(words)
