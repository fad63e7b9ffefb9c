"""The guard in real repositories: what it stops before a commit and before a push, and what it lets through."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.model.errors import NotFound
from flightlog.privacy import git_guard, tiers
from flightlog.store.git.command import PersonGit
from privacy import labelled
from support.cli_runs import environment

WHO = {
    f"GIT_{who}_{what}": "x@example.com"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}
TOKEN = "gh" + "p_" + "a8Kd93jFk20dkEjf83kdLQ0zP1mN5vB7xC2s"
PROGRAMS = str(Path(sys.executable).parent)
FLIGHTLOG = f"{PROGRAMS}/flightlog"


def git(folder, *words, check=True, path="", **more):
    env = environment(
        Path(os.fspath(folder)).parent / "config", GIT_CONFIG_GLOBAL=os.devnull, **WHO, **more
    )
    env["PATH"] = f"{path}:{env['PATH']}" if path else env["PATH"]
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=check, env=env
    )


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


@pytest.fixture
def pushing(repository):
    """A repository with one pushed commit, a bare remote and the guard before pushes."""
    git(repository, "init", "-q", "--bare", "../there.git")
    git(repository, "remote", "add", "origin", "../there.git")
    commit(repository, "a.txt", b"a\n")
    git(repository, "push", "-q", "origin", "main")
    git_guard.install_guard(PersonGit(repository), command=FLIGHTLOG)
    return repository


def put(folder, name, text="{}\n"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def commit(folder, name, body, message="x"):
    put(folder, name, body)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-verify", "-m", message)


def push(folder, *words, **more):
    ran = git(folder, "push", "-q", "origin", *(words or ("main",)), check=False, **more)
    return ran.returncode, ran.stderr


def verdicts_of(folder, *lines, remote="origin"):
    return git_guard.check_push(PersonGit(folder), remote, lines)


def sha(folder, name="HEAD"):
    return git(folder, "rev-parse", name).stdout.strip()


ZERO = "0" * 40


def test_each_file_of_ours_is_named_with_its_rule(repository):
    put(repository, ".chat-retro-runtime/logs/metrics.jsonl")
    put(repository, ".chat-retro-runtime/logs/debug.jsonl")
    put(repository, "src/main.py")
    git(repository, "add", "-A")

    verdicts = {
        verdict.path.rsplit("/", 1)[1]: verdict
        for verdict in git_guard.check_repository(PersonGit(repository))
    }

    assert verdicts["metrics.jsonl"].is_allowed
    assert not verdicts["debug.jsonl"].is_allowed
    assert "debug" in verdicts["debug.jsonl"].rule
    assert "main.py" not in verdicts


def test_what_would_be_added_is_reported_before_it_is(repository):
    put(repository, ".chat-retro-runtime/state/analysis.json")

    (verdict,) = git_guard.check_repository(PersonGit(repository))

    assert (verdict.state, verdict.is_allowed) == ("addable", False)

    (repository / ".gitignore").write_text(tiers.render_gitignore(tiers.layout_of("retro")))
    assert git_guard.check_repository(PersonGit(repository)) == []


def test_a_staged_secret_is_found_and_only_shown_masked(repository):
    one = next(iter(labelled.tool_style()))
    put(repository, "notes.txt", f"{one.text}\n")
    git(repository, "add", "-A")

    (verdict,) = git_guard.check_repository(PersonGit(repository))

    assert not verdict.is_allowed
    assert one.secret not in verdict.reason


def test_a_folder_without_git_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        git_guard.check_repository(PersonGit(tmp_path))


CASES = {
    "after 4.4 MB": ("big.txt", b"some words\n" * 400_000 + f"token {TOKEN}\n".encode()),
    "beside a NUL": ("data.bin", b"\0\1\2head\0" + TOKEN.encode() + b"\0tail"),
    "UTF-16 with a mark": ("wide.txt", f"token {TOKEN}\n".encode("utf-16")),
    "UTF-16 over a border": (
        "wide.txt",
        ("x" * ((1 << 19) - 20) + f" token {TOKEN}\n").encode("utf-16-le"),
    ),
    "UTF-16, big end first": ("wide.txt", f"token {TOKEN}\n".encode("utf-16-be")),
    "UTF-32": ("wide.txt", f"token {TOKEN}\n".encode("utf-32")),
    "a word after PASSWORD": ("settings", b"PASSWORD=" + b"hunter2xyz\n"),
    "a file name": (f"backup-{TOKEN}.txt", b"nothing\n"),
    "an odd file name": (f'a "b"\n{TOKEN}.txt', b"nothing\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_secret_is_found_staged_and_in_what_is_pushed(name, repository):
    file, body = CASES[name]
    put(repository, file, body)
    git(repository, "add", "-A")
    staged = git_guard.check_repository(PersonGit(repository))
    git(repository, "commit", "-q", "-m", "x")

    leaving = verdicts_of(repository, f"refs/heads/main {sha(repository)} refs/heads/main {ZERO}")

    assert [verdict.is_allowed for verdict in (*staged, *leaving)] == [False, False]
    assert TOKEN not in str([staged, leaving])


def test_a_push_of_a_secret_removed_again_is_stopped(pushing):
    commit(pushing, "key.txt", TOKEN.encode())
    git(pushing, "rm", "-q", "key.txt")
    git(pushing, "commit", "-q", "-m", "remove it")

    code, output = push(pushing)

    assert code == 1
    assert "key.txt" in output
    assert "git push --no-verify" in output
    assert TOKEN not in output
    assert sha(pushing, "origin/main") != sha(pushing)


def test_a_push_of_a_secret_in_a_message_or_tag_is_stopped(pushing):
    git(pushing, "commit", "-q", "--allow-empty", "-m", f"use {TOKEN}")
    by_commit = push(pushing)
    git(pushing, "reset", "-q", "--hard", "origin/main")
    git(pushing, "tag", "-a", "v1", "-m", f"made with {TOKEN}")
    by_tag = push(pushing, "v1")

    assert (by_commit[0], by_tag[0]) == (1, 1)
    assert "commit " in by_commit[1]
    assert "v1" in by_tag[1]


def test_only_what_is_new_to_the_remote_is_looked_at(pushing, tmp_path):
    commit(pushing, "old.txt", TOKEN.encode())
    git(pushing, "push", "-q", "--no-verify", "origin", "main")
    old = sha(pushing)
    commit(pushing, "new.txt", b"new\n")
    new = sha(pushing)
    git(pushing, "clone", "-q", "--depth=1", f"file://{tmp_path}/there.git", "../shallow")
    shallow = tmp_path / "shallow"
    commit(shallow, "more.txt", b"more\n")

    assert verdicts_of(pushing, f"refs/heads/main {new} refs/heads/main {old}") == []
    assert verdicts_of(pushing, f"refs/heads/side {new} refs/heads/side {ZERO}") == []
    assert verdicts_of(pushing, f"refs/heads/main {new} refs/heads/main {'1' * 40}") == []
    assert verdicts_of(pushing, f"(delete) {ZERO} refs/heads/main {old}") == []
    assert verdicts_of(shallow, f"refs/heads/main {sha(shallow)} refs/heads/main {ZERO}") == []
    assert (
        len(
            verdicts_of(
                pushing, f"refs/heads/main {new} refs/heads/main {ZERO}", remote="elsewhere"
            )
        )
        == 1
    )


def test_ordinary_pushes_pass_also_forced_from_a_work_tree_or_deleting(pushing, tmp_path):
    commit(pushing, "b.txt", b"b\n")
    codes = [push(pushing)]
    git(pushing, "commit", "-q", "--amend", "-m", "again")
    codes.append(push(pushing, "+main"))
    git(pushing, "worktree", "add", "-q", "../second", "-b", "second")
    commit(tmp_path / "second", "c.txt", b"c\n")
    codes.append(push(tmp_path / "second", "second"))
    codes.append(push(pushing, ":second"))

    assert codes == [(0, "")] * 4


def test_a_private_file_of_ours_does_not_leave_with_a_push(pushing):
    commit(pushing, ".chat-retro-runtime/state/analysis.json", b"{}\n")
    git(pushing, "rm", "-q", "-r", ".chat-retro-runtime")
    git(pushing, "commit", "-q", "-m", "remove it")

    (verdict,) = verdicts_of(
        pushing, f"refs/heads/main {sha(pushing)} refs/heads/main {sha(pushing, 'origin/main')}"
    )

    assert "do not belong in git" in verdict.reason


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 3\n", "#!/bin/sh\nkill -9 $$\n"])
def test_a_push_stops_when_the_guard_cannot_run_and_says_how_to_go_on(pushing, tmp_path, program):
    if program:
        put(tmp_path, "flightlog", program)
        (tmp_path / "flightlog").chmod(0o755)
    git_guard.install_guard(PersonGit(pushing), command=str(tmp_path / "flightlog"))
    commit(pushing, "b.txt", b"b\n")

    stopped, output = push(pushing)
    committed = git(pushing, "commit", "-q", "--allow-empty", "-m", "y", check=False)
    allowed, _ = push(pushing, FLIGHTLOG_GUARD="0")

    assert (stopped, allowed) == (1, 0)
    assert "could not run" in output
    assert "git push --no-verify" in output
    assert committed.returncode == 0
    assert "NOT CHECKED" in committed.stderr


def test_a_hook_that_was_there_before_runs_first_with_all_that_git_says(repository, tmp_path):
    put(tmp_path, "flightlog", '#!/bin/sh\ncat > "$0.given"\nexit $(cat answer)\n')
    (tmp_path / "flightlog").chmod(0o755)
    for name in git_guard.HOOKS:
        put(
            repository,
            f".git/hooks/{name}",
            f"#!/bin/sh\ncat >> {name}.ran\necho ran >> {name}.ran\n",
        )
        (repository / ".git/hooks" / name).chmod(0o755)
    git_guard.install_guard(PersonGit(repository), command=str(tmp_path / "flightlog"))
    git_guard.install_guard(PersonGit(repository), command=str(tmp_path / "flightlog"))
    git(repository, "init", "-q", "--bare", "../there.git")
    git(repository, "remote", "add", "origin", "../there.git")

    put(repository, "answer", "1")
    git(repository, "add", "answer")
    stopped = git(repository, "commit", "-qm", "1", check=False).returncode
    put(repository, "answer", "0")
    git(repository, "commit", "-qm", "0")
    line = f"refs/heads/main {sha(repository)} refs/heads/main {ZERO}\n"

    assert (stopped, push(repository)[0]) == (1, 0)
    assert (repository / "pre-commit.ran").read_text() == "ran\nran\n"
    assert (repository / "pre-push.ran").read_text() == f"{line}ran\n"
    assert (tmp_path / "flightlog.given").read_text() == line


def test_the_guard_looks_at_the_index_that_git_names(pushing):
    put(pushing, "key.txt", TOKEN)
    put(pushing, "fine.txt", "fine\n")
    git(pushing, "add", "-A")

    one = git(pushing, "commit", "-q", "-m", "one file alone", "--", "fine.txt", check=False)
    both = git(pushing, "commit", "-q", "-m", "both", check=False)

    assert (one.returncode, both.returncode) == (0, 1)


def test_memory_stays_flat_over_a_large_file(repository):
    commit(repository, "a.bin", b"\0some words of no interest\n" * 50_000)
    commit(repository, "big.bin", b"\0some words of no interest\n" * 1_000_000)
    line = f"refs/heads/main {sha(repository)} refs/heads/main {ZERO}"
    program = (
        "import resource, sys; from pathlib import Path; from flightlog.privacy import git_guard; "
        "from flightlog.store.git.command import PersonGit; run = lambda line: git_guard.check_push("
        "PersonGit(Path(sys.argv[1])), 'origin', [line]); run(sys.argv[2]); size = lambda: "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; first = size(); run(sys.argv[3]); print(size() - first)"
    )

    small = f"refs/heads/main {sha(repository, 'HEAD~1')} refs/heads/main {ZERO}"
    ran = subprocess.run(
        [sys.executable, "-c", program, repository, small, line],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(ran.stdout) < 16 << 10  # of the 27 MB of the file
