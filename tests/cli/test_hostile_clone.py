"""No command that may touch a repository runs what a hostile clone configures (`git_traps`)."""

import os
import subprocess
import time

import pytest

from support.cli_runs import FLIGHTLOG, environment, within
from support.git_traps import bare, clone
from support.pages import running
from support.transcripts import SESSION, assistant, user, write

BARE_SESSION = "22222222-2222-4222-8222-222222222222"
LAB = """
model: claude-opus-5-5
engine: scripted
work_dir: {0}
scenario: script.yaml
sessions: [{{session_index: 1, prompt: make one}}]
"""
SCRIPT = "rules: [{replies: [{blocks: [{tool: Bash, input: {command: 'date > made.txt'}}]}, {text: done}]}]\n"
PLAN = 'plan: one\ntasks: [{task_id: a, name: first, run: {command: "echo one > one.txt"}}]\n'
COMMANDS = [
    *(
        ("status",),
        ("watch", "--once"),
        ("settle",),
        ("up",),
        ("doctor",),
        ("live", "state"),
        ("session", "list"),
    ),
    *(
        ("session", "show", SESSION),
        ("share", SESSION),
        ("share", BARE_SESSION),
        ("session", "export", SESSION),
    ),
    *(
        ("session", "search", "prompt"),
        ("blame", "a.txt"),
        ("blame", "a.txt:1"),
        ("blame", "--", "--output=x:1"),
    ),
    *(
        ("trace", SESSION),
        ("trace", "HEAD"),
        ("trace", "main"),
        ("privacy", "check"),
        ("privacy", "scan", "."),
    ),
    *(
        ("dataset", "session", "sync-to-jsonl"),
        ("dataset", "session", "sync-to-jsonl", "--commits"),
    ),
    *(
        ("dataset", "stats"),
        ("dataset", "status"),
        ("dataset", "check"),
        ("dataset", "tracked", "compact"),
    ),
    *(
        ("dataset", "tracked", "compact", "--commit"),
        ("dataset", "push"),
        ("dataset", "pull"),
        ("dataset", "retain"),
    ),
    *(
        ("dataset", "export", "--output", "out.jsonl"),
        ("dataset", "install-hooks"),
        ("settle",),
        ("status",),
        ("doctor",),
    ),
    *(
        ("lab", "track", "."),
        ("lab", "list"),
        ("retro", "analyze"),
        ("issue", "list"),
        ("issue", "process"),
    ),
    *(("init", "--project", "--yes", "--dry-run"), ("trust",)),
]
PAGES = (
    "/",
    "/usage",
    "/search?q=prompt",
    "/live",
    "/privacy",
    "/dataset",
    "/doctor",
    f"/session/{SESSION}",
    "/lab",
)


@pytest.fixture(scope="module")
def trap(tmp_path_factory):
    """Two hostile places with a session running in each, and the marker files that must not appear."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "one").mkdir()
    (root / "two").mkdir()
    (top, marker), (inner, other) = clone(root / "one"), bare(root / "two")
    edit = {
        "type": "tool_use",
        "id": "t1",
        "name": "Write",
        "input": {"file_path": f"{top}/a.txt", "content": "two\n"},
    }
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    for folder, session in ((top, SESSION), (inner, BARE_SESSION)):
        place = {"cwd": str(folder), "sessionId": session, "timestamp": now}
        project = str(folder).replace("/", "-")
        records = [user("a prompt", 1, **place), assistant(f"m-{session[:2]}", 2, edit, **place)]
        write(root / "config", session, *records, project=project)
    return root / "config", (top, inner), (marker, other)


def assert_not_sprung(markers):
    assert [marker.read_text() for marker in markers if marker.exists()] == []


@pytest.mark.parametrize("place", [0, 1], ids=["clone", "bare"])
def test_no_command_runs_what_a_clone_configures(trap, place, monkeypatch):
    config, folders, markers = trap
    monkeypatch.chdir(folders[place])

    for words in COMMANDS:
        ran = within(config, *words)

        assert "Traceback" not in ran.err, (words, ran.err)
        assert [(words, marker.read_text()) for marker in markers if marker.exists()] == []


def test_no_page_runs_what_a_clone_configures(trap, monkeypatch):
    config, folders, markers = trap
    for folder in folders:
        monkeypatch.chdir(folder)
        with running(config) as server:
            for path in PAGES:
                server.ask(path)

    assert_not_sprung(markers)


def test_a_run_and_a_loop_do_not_run_what_a_clone_configures(trap, tmp_path):
    config, (top, inner), markers = trap
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "run.yaml").write_text(LAB.format(top))
    lab = (FLIGHTLOG, "lab", "run", "run.yaml", "--run-name", "try")
    loop = (FLIGHTLOG, "loop", "run", "--plan", tmp_path / "plan.yaml", "--autonomous")
    out = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    started = [
        subprocess.Popen(words, cwd=where, env=environment(config), **out)
        for words, where in ((lab, tmp_path), (loop, top), (loop, inner))
    ]
    outputs = [process.communicate(timeout=120)[0].decode() for process in started]

    assert [process.returncode for process in started] == [0, 0, 0], outputs
    assert_not_sprung(markers)


def test_plain_git_runs_what_a_clone_configures(trap):
    _, folders, markers = trap
    for folder, marker in zip(folders, markers, strict=True):
        subprocess.run(
            ["git", "status"],
            cwd=folder,
            capture_output=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )

        assert marker.exists()
        marker.unlink()
