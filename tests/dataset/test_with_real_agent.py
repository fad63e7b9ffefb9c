"""Machines that vanish: a real agent killed in the middle of a tool, its machine deleted, a new clone elsewhere."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.dataset.reader import read_dataset
from flightlog.dataset.stats import token_counts
from support.real_agent import Bench, make_bench, new_session
from support.waiting import until

FLIGHTLOG = Path(sys.executable).with_name("flightlog")


def tool(command):
    return {"tool": "Bash", "input": {"command": command, "description": "Run a command"}}


class Machine:
    """A clone on a machine of its own, with the agent, the hook and flightlog."""

    def __init__(self, root: Path, origin: Path) -> None:
        self.bench: Bench = make_bench(root)
        self.bench.project.rmdir()
        self.git("clone", "-q", str(origin), str(self.bench.project), cwd=root)
        self.git("config", "user.name", "x")
        self.git("config", "user.email", "x@example.com")
        self.bench.install_hooks()

    @property
    def env(self):
        return self.bench.environment("http://127.0.0.1:9") | {"GIT_CONFIG_GLOBAL": os.devnull}

    def git(self, *words, cwd=None):
        ran = subprocess.run(
            ["git", *words],
            cwd=cwd or self.bench.project,
            env=self.env,
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode()

    def flightlog(self, *words):
        ran = subprocess.run(
            [FLIGHTLOG, *words],
            cwd=self.bench.project,
            env=self.env,
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode()

    @property
    def book(self):
        return read_dataset(self.bench.project / ".git-ml" / "tracked")

    def chats(self):
        return {row["input"]: row for row in self.book.rows_of_kind("chat")}

    def actions(self):
        return [row for row in self.book.rows_of_kind("action") if row.get("success") is not None]


@pytest.fixture
def origin(tmp_path):
    """A repository that collects rows, words included, and allows its clones to push."""
    made = Machine.__new__(Machine)
    made.bench = make_bench(tmp_path / "first")
    made.git("init", "-q", "-b", "main")
    made.git("config", "user.name", "x")
    made.git("config", "user.email", "x@example.com")
    (made.bench.project / "flightlog.toml").write_text(
        "[dataset]\ntrack_words = true\npush = true\n"
    )
    made.flightlog("dataset", "install-hooks")
    shutil.rmtree(made.bench.project / "scripts")
    made.git("config", "--local", "core.hooksPath", "/nowhere")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "begin")
    made.git("clone", "-q", "--bare", ".", str(tmp_path / "origin.git"))
    return tmp_path / "origin.git"


def begin(machine, *, push):
    if push:
        machine.flightlog("trust", "--yes")
    else:
        (machine.bench.project / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
        machine.flightlog("trust", "--yes")


TURNS = [
    {
        "when": {"prompt": "first"},
        "replies": [{"blocks": [tool("echo one")]}, {"text": "Did the first."}],
    },
    {
        "when": {"prompt": "second"},
        "replies": [
            {"blocks": [tool("echo two")]},
            {"blocks": [tool("python3 -c 'import time; time.sleep(60)'")]},
            {"text": "Never said."},
        ],
    },
]


def kill_in_second_turn(machine, session):
    """One whole turn, then a kill -9 while a tool of the second one runs."""
    machine.bench.run({"rules": TURNS}, "Do the first thing.", session=session)
    until(lambda: machine.chats().get("Do the first thing.", {}).get("output") == "Did the first.")
    with machine.bench.start({"rules": TURNS}, "Do the second thing.", resume=session) as (
        running,
        requests,
    ):
        until(lambda: len(requests) >= 2)
        until(lambda: len(machine.actions()) == 2)
        running.signal(signal.SIGKILL)
        running.wait(20)


def test_committed_rows_are_in_a_new_clone_after_the_machine_is_lost(tmp_path, origin):
    machine = Machine(tmp_path / "machine", origin)
    begin(machine, push=False)
    session = new_session()
    kill_in_second_turn(machine, session)
    machine.git("add", "-A", ".git-ml")
    machine.git("commit", "-q", "-m", "rows")
    machine.git("push", "-q", "origin", "main")
    shutil.rmtree(tmp_path / "machine")

    again = Machine(tmp_path / "again", origin)

    chats = again.chats()
    assert set(chats) == {"Do the first thing.", "Do the second thing."}
    assert chats["Do the first thing."]["output"] == "Did the first."
    assert sorted(row["target"] for row in again.actions()) == ["echo one", "echo two"]


def test_with_push_on_nothing_has_to_be_committed(tmp_path, origin):
    machine = Machine(tmp_path / "machine", origin)
    begin(machine, push=True)
    before = machine.git("rev-parse", "HEAD"), machine.git("ls-files", "--stage")
    session = new_session()
    kill_in_second_turn(machine, session)

    def safe():
        safety = json.loads(machine.flightlog("dataset", "stats", "--json"))["safety"]
        return safety["unpushed_shards"] == 0 and safety["last_pushed_ms"] == safety["last_row_ms"]

    until(safe)
    assert (machine.git("rev-parse", "HEAD"), machine.git("ls-files", "--stage")) == before
    counted = token_counts(machine.book)
    shutil.rmtree(tmp_path / "machine")

    again = Machine(tmp_path / "again", origin)
    assert again.chats() == {}
    again.flightlog("dataset", "pull")

    assert again.chats()["Do the first thing."]["output"] == "Did the first."
    assert sorted(row["target"] for row in again.actions()) == ["echo one", "echo two"]
    assert token_counts(again.book) == counted
    again.flightlog("dataset", "pull")
    assert len(list((again.bench.project / ".git-ml/tracked/pending").glob("*.jsonl"))) == 1
