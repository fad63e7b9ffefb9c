"""A canary placed anywhere is in no byte that may leave, whatever was run.

One law for every room: the places a secret can come in by, and the commands whose output or
pages may be shared. A room that writes something new adds its command to `SHARED`.
"""

import base64
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from cli_runs import FLIGHTLOG, environment
from transcripts import SESSION, assistant, user, write

CANARY = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
KNOWN = "correct-horse-battery-9"

# What a person may hand to others: standard output, unless it names files.
SHARED = {
    "export md": ("session", "export", SESSION, "--redact"),
    "export html": ("session", "export", SESSION, "--redact", "--format", "html"),
    "export json": ("session", "export", SESSION, "--redact", "--format", "json"),
    "export to a file": ("session", "export", SESSION, "--redact", "--output", "shared.md"),
    "export of a trajectory": ("session", "export", SESSION, "--redact", "--atif"),
    "export of a trajectory to files": ("session", "export", SESSION, "--redact", "--atif", "--output", "shared.atif"),
    "share": ("share", SESSION),
    "share to a file": ("share", SESSION, "--output", "shared.html"),
    "scan": ("privacy", "scan", "."),
    "scan as JSON": ("privacy", "scan", ".", "--json"),
    "scan of a session": ("privacy", "scan", SESSION, "--json"),
    "redact": ("privacy", "redact", "notes.txt"),
    "redact lines": ("privacy", "redact", "--jsonl", "lines.jsonl"),
    "preview": ("privacy", "preview", "notes.txt"),
    "guard": ("privacy", "check", "--quiet"),
    "guard as JSON": ("privacy", "check", "--json"),
    "settle": ("settle", "--json"),
    "status": ("status", "--json"),
    "watch": ("watch", "--once"),
    "live state": ("live", "state", "--json"),
    "live profiles": ("live", "profiles", "--json"),
    "doctor": ("doctor",),
    "dataset sync": ("dataset", "session", "sync-to-jsonl", "--json"),
    "dataset rows": ("dataset", "export", "--format", "jsonl", "--output", "shared.jsonl"),
    "dataset messages": ("dataset", "export", "--format", "sft", "--output", "shared.sft.jsonl"),
    "dataset stats": ("dataset", "stats"),
    "dataset check": ("dataset", "check", "--json"),
    "loop status": ("loop", "status", "--session", "session-001", "--json"),
    "loop logs": ("loop", "logs", "--session", "session-001", "--json"),
    "loop report": ("loop", "generate-report", "--session", "session-001"),
    "loop insights": ("loop", "insights", "--session", "session-001"),
    "loop analysis": ("loop", "analyze", "--session", "session-001", "--json"),
    "loop monitor": ("loop", "monitor", "--session", "session-001", "--once"),
    "issues, processed and published": ("issue", "process", "--yes"),
    "issues as JSON": ("issue", "preview", "--json"),
    "issues, named for publishing": ("issue", "publish"),
    "clusters": ("issue", "clusters", "--json"),
    "a failure": ("--debug", "privacy", "redact", "nowhere"),
    "a damaged key": ("--debug", "privacy", "key", "import"),
}


def told(value):
    """The ways a value may be written."""
    once = json.dumps(value)[1:-1]
    return {value, once, json.dumps(once)[1:-1], quote(value, safe=""), base64.b64encode(value.encode()).decode()}


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=folder, check=True,
                   capture_output=True)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A repository and a session with the canary everywhere a secret comes in by."""
    root = tmp_path_factory.mktemp("canary")
    repository = root / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", f"fix-{CANARY}")
    (repository / "notes.txt").write_text(f"token: {CANARY}\nalso {KNOWN}\n")
    (repository / "lines.jsonl").write_text(json.dumps({"text": f"use {CANARY} and {KNOWN}"}) + "\n")
    git(repository, "commit", "-q", "--allow-empty", "-m", f"deploy with {CANARY}")
    git(repository, "add", "-A")
    where = {"cwd": f"/home/ada/{CANARY}/shop", "gitBranch": f"fix-{CANARY}"}
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": f"/srv/{CANARY}.txt"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": f"TOKEN={CANARY}\n{KNOWN}\ncommit: add {CANARY}"}
    records = (
        user(f"deploy with {CANARY} and {KNOWN}", 1, **where | {"cwd": str(repository)}),
        assistant("m1", 2, {"type": "text", "text": f"I use \x1b[32m{CANARY}\x1b[0m"}, call, **where),
        user([result], 3, **where),
    )
    write(root / "config", SESSION, *records)
    loop(root)
    return root


def loop(root):
    """A loop session with the canary in its plan, in what its tasks say and in what they report."""
    told = {"feature": {"feature_id": "F1", "name": CANARY, "purpose": KNOWN}}
    (root / "repository" / "told.jsonl").write_text(f"{json.dumps(told)}\n{json.dumps({'artifact': CANARY})}\n")
    report = 'cat told.jsonl >> "$FLIGHTLOG_REPORT"'
    tasks = [
        {"task_id": "a", "name": f"deploy with {CANARY}", "description": KNOWN, "run": {"command": report}},
        {"task_id": "b", "name": "fails", "run": {"command": f"echo token {CANARY} {KNOWN} is refused; exit 1"}},
    ]
    settings = {"human_intervention": "never", "max_retries": 0}
    gates = [{"name": f"gate {CANARY}", "metric": "m", "threshold": 1}]
    plan = {"plan": f"use {CANARY}", "tasks": tasks, "config": settings, "quality_gates": gates}
    (root / "repository" / "plan.yaml").write_text(json.dumps(plan))
    shared(root, "loop", "run", "--plan", "plan.yaml", "--autonomous")


def shared(place, *words):
    secrets = {"MY_SECRET_TOKEN": KNOWN, "GITHUB_TOKEN": CANARY}
    env = environment(place / "config", FLIGHTLOG_DATASET_TRACK_WORDS="true", **secrets)
    done = subprocess.run([FLIGHTLOG, *words], env=env, cwd=place / "repository", capture_output=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL)  # fmt: skip
    said = done.stdout + done.stderr
    pages = [Path(place / "repository" / name) for name in words if name.startswith("shared.")]
    files = [file for page in pages for file in ([page] if page.is_file() else page.rglob("*")) if file.is_file()]
    return said + b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("command", SHARED)
def test_the_canary_is_in_nothing_that_may_leave(place, command):
    said = shared(place, *SHARED[command]).decode("utf-8", "replace")

    assert said or command == "guard"
    for value in (CANARY, KNOWN):
        assert not [way for way in told(value) if way in said], command


def test_the_canary_is_in_no_page_of_a_loop_session(place):
    (session,) = (place / "repository" / "ralph-loop-sessions").glob("session-001-*")
    # The plan is the person's own file, kept as it is; a report is what the task itself wrote.
    pages = [path for path in session.iterdir() if path.is_file() and path.name != "plan.yaml"]

    assert len(pages) > 10
    for page in pages:
        said = page.read_bytes().decode("utf-8", "replace")
        assert not [way for value in (CANARY, KNOWN) for way in told(value) if way in said], page.name
    assert CANARY[5:].lower() not in session.name
    assert "<secret:" in (session / "errors-and-retries.json").read_text()


def test_the_canary_was_there_to_be_found(place):
    plain = shared(place, "session", "export", SESSION).decode()

    assert CANARY in plain
    assert os.sep in plain


def test_the_pages_with_the_canary_taken_out_say_so(place):
    assert b"<secret:" in shared(place, *SHARED["redact"])
    assert b"secret:" in shared(place, *SHARED["export html"])


def test_git_is_given_nothing_of_a_run_that_holds_the_canary(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "work").mkdir()
    command = f"echo {CANARY} > found.txt; env"
    script = {"rules": [{"replies": [{"blocks": [{"tool": "Bash", "input": {"command": command}}]}, {"text": CANARY}]}]}
    given = {"model": "claude-opus-5-5", "engine": "scripted", "work_dir": "work", "scenario": script,
             "sessions": [{"session_index": 1, "prompt": f"deploy with {CANARY}"}]}  # fmt: skip
    config = tmp_path.parent / f"{tmp_path.name}.yaml"
    config.write_text(json.dumps(given))
    env = environment(tmp_path / "config", ANTHROPIC_API_KEY=KNOWN)
    ran = subprocess.run([FLIGHTLOG, "lab", "run", config, "--run-name", "r"], cwd=tmp_path, env=env, check=True,
                         capture_output=True, timeout=120)  # fmt: skip

    git(tmp_path, "add", "-A", "runs")
    staged = subprocess.run(["git", "diff", "--cached"], cwd=tmp_path, check=True, capture_output=True).stdout

    assert b".gitignore" in staged
    everything = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())
    assert CANARY.encode() in everything, "the run itself holds what was said"
    assert not [way for way in told(KNOWN) if way.encode() in everything], "but not the key the agent was given"
    assert len((tmp_path / "runs/r/session_01/api_captures.jsonl").read_bytes().splitlines()) == 2
    for value in (CANARY, KNOWN):
        assert not [way for way in told(value) if way.encode() in staged + ran.stdout + ran.stderr]


def test_what_git_would_track_of_the_issues_holds_no_secret_no_name_and_no_home(place):
    (place / "repository" / "conversations.json").write_text(
        json.dumps(
            [{"uuid": "c1", "name": CANARY, "chat_messages": [{"sender": "human", "text": f"{CANARY} {KNOWN}"}]}]
        )
    )
    said = f"at /home/ada/{CANARY}/x.py: {KNOWN}, mail grace.hopper@navy-ships.net\nuser: use {CANARY}"
    shared(place, "retro", "analyze", "conversations.json")
    shared(place, "issue", "report-bug", "--title", f"Login with {CANARY} fails", "--description", said)
    shared(place, "issue", "process", "--yes")
    name = next((place / "repository").rglob("issue_*.json")).stem.removeprefix("issue_")
    published = shared(place, "issue", "preview")
    shared(place, "issue", "resolve", name, "--notes", f"No longer uses {CANARY} of grace.hopper@navy-ships.net")
    listed = subprocess.run(["git", "ls-files", "--others", "--exclude-standard", ".chat-retro-runtime"],
                            cwd=place / "repository", capture_output=True, text=True, check=True).stdout  # fmt: skip
    tracked = b"".join((place / "repository" / each).read_bytes() for each in listed.split())

    assert b"<secret:" in published
    assert b"No longer uses" in tracked
    for value in (CANARY, KNOWN, "grace.hopper", "/home/ada"):
        assert not [way for way in told(value) if way.encode() in published + tracked], value


def test_what_git_would_track_of_the_rows_says_that_something_was_taken_out(place):
    shared(place, *SHARED["dataset sync"])
    rows = b"".join(path.read_bytes() for path in (place / "repository" / ".git-ml").rglob("*.jsonl"))

    assert b"<secret:" in rows
    assert b"deploy with" in rows
    assert not [way for value in (CANARY, KNOWN) for way in told(value) if way.encode() in rows]
