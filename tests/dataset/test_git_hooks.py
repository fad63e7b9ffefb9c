"""What is put into a repository: the document's entry points work, others' hooks stay, git never waits."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.dataset import git_hooks
from flightlog.dataset.state import is_off
from support.cli_runs import environment
from support.dataset_ground import turn
from support.waiting import until

SESSION = "13a84f73-1111-4111-8111-111111111111"
PYTHON = Path(sys.executable)


def env(ground, **more):
    bin_first = {
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
        "FLIGHTLOG_HOME": str(ground.root / "home"),
    }
    return environment(ground.config, **bin_first, **more) | {"GIT_CONFIG_GLOBAL": os.devnull}


def run(ground, *words, **more):
    return subprocess.run(
        words, cwd=ground.top, env=env(ground, **more), capture_output=True, check=False, timeout=60
    )


def flightlog(ground, *words, **more):
    ran = run(ground, PYTHON.with_name("flightlog"), "dataset", *words, **more)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


def commit(ground, name):
    (ground.top / name).write_text(name)
    who = {
        "GIT_AUTHOR_NAME": "x",
        "GIT_AUTHOR_EMAIL": "x@e",
        "GIT_COMMITTER_NAME": "x",
        "GIT_COMMITTER_EMAIL": "x@e",
    }
    assert run(ground, "git", "add", name).returncode == 0
    began = time.perf_counter()
    assert run(ground, "git", "commit", "-q", "-m", name, **who).returncode == 0
    return time.perf_counter() - began


def test_the_documents_own_commands_work_as_written(ground):
    ground.write(SESSION, *turn(1), *turn(2))
    flightlog(ground, "install-hooks")

    synced = run(ground, "python", "scripts/ml_data_collector.py", "session", "sync-to-jsonl")
    compacted = run(ground, "python", "scripts/ml_data_collector.py", "tracked", "compact")

    assert (synced.returncode, compacted.returncode) == (0, 0), synced.stderr + compacted.stderr
    assert b"words are left out" in synced.stderr
    lines = (ground.place.tracked_dir / "chats.jsonl").read_text().splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == ["13a84f73", "13a84f73"]
    assert len((ground.top / "scripts" / "ml_data_collector.py").read_text().splitlines()) == 5
    assert json.loads(flightlog(ground, "stats", "--json"))["counts"]["chats"] == 2


def test_installing_twice_changes_nothing_and_removing_leaves_no_trace(ground):
    hook = ground.top / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\ntouch ran-first\n")
    hook.chmod(0o755)
    before = hook.read_bytes(), ground.git("config", "--local", "--list")
    flightlog(ground, "install-hooks")
    assert json.loads(flightlog(ground, "install-hooks", "--json"))["changes"] == []
    commit(ground, "x.txt")
    assert (ground.top / "ran-first").exists()

    flightlog(ground, "install-hooks", "--remove")

    assert (hook.read_bytes(), ground.git("config", "--local", "--list")) == before
    assert not (ground.top / "scripts").exists()
    assert not (ground.top / ".claude").exists()
    assert git_hooks.plan_removal(ground.place.repository) == []


def test_a_hook_whose_stdin_is_closed_syncs_the_repository(ground):
    ground.write(SESSION, *turn(1))
    flightlog(ground, "install-hooks")

    done = run(ground, "sh", "-c", "flightlog dataset session sync-to-jsonl --hook <&-")

    assert (done.returncode, len(ground.rows("chat"))) == (0, 1), done.stderr


def test_a_dry_run_writes_nothing(ground):
    report = json.loads(flightlog(ground, "install-hooks", "--dry-run", "--json"))

    assert len(report["changes"]) == 5
    assert not (ground.top / "scripts").exists()


def test_after_a_commit_its_row_is_there_and_git_did_not_wait(ground):
    flightlog(ground, "install-hooks")
    flightlog(ground, "session", "sync-to-jsonl")
    plain = min(commit(ground, f"plain-{number}") for number in range(3))

    until(lambda: {"plain-0", "plain-1", "plain-2"} <= {name for row in ground.rows("commit")
                                                      for name in row["files_changed"]})  # fmt: skip
    assert plain < 5


def test_a_commit_of_rows_alone_writes_no_row(ground):
    flightlog(ground, "session", "sync-to-jsonl")
    before = sorted(path.name for path in ground.place.tracked_dir.rglob("*.jsonl"))

    ground.git("add", ".git-ml")
    ground.git("commit", "-q", "-m", "rows")
    flightlog(ground, "session", "sync-to-jsonl", "--commits")
    after_rows = sorted(path.name for path in ground.place.tracked_dir.rglob("*.jsonl"))
    commit(ground, "plain.txt")
    flightlog(ground, "session", "sync-to-jsonl", "--commits")

    assert after_rows == before
    assert len(list(ground.place.tracked_dir.rglob("*.jsonl"))) == len(before) + 1


def test_the_merge_driver_is_git_s_own_choice_for_the_base_files(ground):
    flightlog(ground, "install-hooks")
    (ground.place.tracked_dir / ".gitignore").unlink()
    ground.commit("dataset")
    base = ground.place.tracked_dir / "chats.jsonl"
    for branch, name in (("one", "a"), ("two", "b")):
        ground.git("checkout", "-q", "-b", branch, "main")
        base.write_text(json.dumps({"kind": "chat", "id": name, "uuid": name, "rev": 1}) + "\n")
        ground.commit(branch)

    merged = run(ground, "git", "merge", "-q", "--no-edit", "one", GIT_AUTHOR_NAME="x", GIT_AUTHOR_EMAIL="x@e",
                 GIT_COMMITTER_NAME="x", GIT_COMMITTER_EMAIL="x@e")  # fmt: skip

    assert merged.returncode == 0, merged.stderr
    assert [json.loads(line)["id"] for line in base.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize("name", ["append_chat_to_jsonl", "save_chat_entry"])
def test_the_documents_functions_write_rows(ground, name):
    entry = {
        "id": "chat-20251216-150332-abc123", "timestamp": "2025-12-16T15:03:32Z", "session_id": "13a84f73",
        "input": "why", "output": "because", "tools": ["Read", "Edit"], "files": ["cortical/processor.py"],
    }  # fmt: skip
    program = f"""
import json, sys
import ml_data_collector as collector
entry = json.loads(sys.argv[1])
for _ in range(2):
    collector.{name}(entry)
    collector.end_session({{"id": "2025-12-16_13a84f73", "started_at": "2025-12-16T15:00:00Z",
                            "ended_at": "2025-12-16T16:00:00Z", "commits": []}}, "a summary")
collector.append_to_tracked_jsonl("actions.jsonl", {{"id": "action-1", "timestamp": "t", "session_id": "13a84f73"}})
"""
    ran = run(ground, PYTHON, "-c", program, json.dumps(entry))

    assert ran.returncode == 0, ran.stderr
    (chat,), (session,) = ground.rows("chat"), ground.rows("session")
    assert (chat["id"], chat["tools"], chat["input"], chat["input_chars"]) == (
        entry["id"],
        ["Read", "Edit"],
        None,
        3,
    )
    assert (session["id"], session["summary"], session["summary_chars"]) == (
        "2025-12-16_13a84f73",
        None,
        9,
    )
    assert len(ground.shards) == 3
    assert {".gitignore", ".gitattributes"} <= {path.name for path in ground.place.root.iterdir()}
    assert (ground.place.root / "chats/2025-12-16" / f"{entry['id']}.json").exists() is (
        name == "save_chat_entry"
    )


WRITERS = """
import ml_data_collector as collector
chat = {"id": "chat-20251216-150332-abc123", "timestamp": "2025-12-16T15:03:32Z", "session_id": "13a84f73"}
made = [collector.append_chat_to_jsonl(chat), collector.save_chat_entry(chat), collector.end_session(chat)]
assert made == [None, None, None]
"""


def test_collection_is_off_for_four_values_of_the_switch(monkeypatch):
    switches = {}
    for value in ("0", "False", "no", " OFF ", "1", "", "true"):
        monkeypatch.setenv("ML_COLLECTION_ENABLED", value)
        switches[value] = is_off(open_runtime())

    assert [value for value, off in switches.items() if off] == ["0", "False", "no", " OFF "]


def test_nothing_writes_a_row_while_collection_is_off(ground):
    ground.on().write(SESSION, *turn(1))
    flightlog(ground, "install-hooks")
    before = sorted(path for path in ground.place.root.rglob("*"))
    program, off = PYTHON.with_name("flightlog"), {"ML_COLLECTION_ENABLED": "0"}

    ran = [
        run(ground, program, "dataset", "session", "sync-to-jsonl", **off),
        run(ground, program, "dataset", "session", "sync-to-jsonl", "--compact", "--json", **off),
        run(ground, program, "dataset", "session", "sync-to-jsonl", "--commits", **off),
        run(ground, program, "dataset", "pull", **off),
        run(ground, PYTHON, "-c", WRITERS, **off),
        run(ground, "sh", "scripts/ml-session-capture-hook.sh", **off),
        run(ground, ".git/hooks/post-commit", **off),
    ]
    settled = run(ground, program, "settle", SESSION, "--json", **off)
    time.sleep(2)  # the two hooks work in the background

    assert [process.returncode for process in (*ran, settled)] == [0] * 8
    assert all(b"collection is off" in process.stderr for process in ran[:5])
    assert json.loads(settled.stdout)["dataset_rows"] == 0
    assert list((ground.root / "home").rglob(f"*{SESSION}*")), "the archive is not affected"
    assert sorted(path for path in ground.place.root.rglob("*")) == before
    assert run(ground, program, "dataset", "session", "sync-to-jsonl").returncode == 0
    assert len(ground.rows("chat")) == 1
