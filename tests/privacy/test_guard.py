import os
import subprocess

import pytest

from flightlog.model.errors import NotFound
from flightlog.privacy import guard, tiers
from privacy import labelled


def git(folder, *words, check=True, path=None):
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    return subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words],
                          cwd=folder, capture_output=True, text=True, check=check, env=environment)  # fmt: skip


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    return tmp_path


def put(folder, name, text="{}\n"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_each_file_of_ours_is_named_with_its_rule(repository):
    put(repository, ".chat-retro-runtime/logs/metrics.jsonl")
    put(repository, ".chat-retro-runtime/logs/debug.jsonl")
    put(repository, "src/main.py")
    git(repository, "add", "-A")

    verdicts = {verdict.path.rsplit("/", 1)[1]: verdict for verdict in guard.check(repository)}

    assert verdicts["metrics.jsonl"].fine
    assert not verdicts["debug.jsonl"].fine
    assert "debug" in verdicts["debug.jsonl"].rule
    assert "main.py" not in verdicts


def test_what_would_be_added_is_told_before_it_is(repository):
    put(repository, ".chat-retro-runtime/state/analysis.json")

    (verdict,) = guard.check(repository)

    assert (verdict.state, verdict.fine) == ("addable", False)

    (repository / ".gitignore").write_text(tiers.gitignore(tiers.layout("retro")))
    assert guard.check(repository) == []


def test_a_staged_secret_is_found_and_only_shown_masked(repository):
    one = next(iter(labelled.tool_style()))
    put(repository, "notes.txt", f"{one.text}\n")
    git(repository, "add", "-A")

    (verdict,) = guard.check(repository)

    assert not verdict.fine
    assert one.secret not in verdict.why


def test_a_folder_without_git_is_told(tmp_path):
    with pytest.raises(NotFound):
        guard.check(tmp_path)


def test_the_guard_stops_a_commit_runs_other_hooks_first_and_lets_go_when_it_cannot_ask(repository, tmp_path):
    tools = tmp_path / "tools"
    put(tools, "flightlog", "#!/bin/sh\nexit $(cat answer)\n")
    (tools / "flightlog").chmod(0o755)
    hook = repository / ".git/hooks/pre-commit"
    put(repository, ".git/hooks/pre-commit", "#!/bin/sh\necho theirs >> ran\n")
    hook.chmod(0o755)

    guard.install_guard(repository)
    guard.install_guard(repository)

    answers = {}
    for answer in ("1", "0", "3"):
        put(repository, "answer", answer)
        git(repository, "add", "answer")
        answers[answer] = git(repository, "commit", "-qm", answer, check=False, path=tools).returncode
    put(repository, "answer", "9")
    git(repository, "add", "answer")
    answers["missing"] = git(repository, "commit", "-qm", "x", check=False).returncode
    assert {name: bool(code) for name, code in answers.items()} == {"1": True, "0": False, "3": False, "missing": False}
    assert (repository / "ran").read_text().count("theirs") == 4
