"""Starting git: nothing of a repository's own configuration runs, the person's own does, every call ends."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.store.git.command import GitError, PersonGit, find_hooks_folder
from flightlog.store.git.history import iter_commits
from flightlog.store.git.refs import fetch_refs, push_ref
from flightlog.store.git.repository import Repository as PersonRepository
from flightlog.store.git.repository import (
    ShadowRepository,
    find_repository,
    open_repository,
    tree_files,
)
from support.git_traps import bare, clone, git

GIT = shutil.which("git")
READS = (
    *(
        ("status", "--porcelain=v2"),
        ("diff",),
        ("diff", "HEAD"),
        ("log", "-p", "-3"),
        ("show",),
        ("ls-files", "-m"),
    ),
    *(
        ("blame", "--", "a.txt"),
        ("diff-tree", "-p", "HEAD"),
        ("cat-file", "blob", "HEAD:a.txt"),
        ("rev-parse", "HEAD"),
    ),
)
CHANGES = (
    *(
        ("fetch", "--", "origin"),
        ("push", "--", "origin", "main"),
        ("update-index", "--add", "a.txt"),
    ),
    *(("update-ref", "refs/x/y", "HEAD"), ("read-tree", "HEAD"), ("hash-object", "-w", "a.txt")),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of one's own, and a plain repository with one commit."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    git(tmp_path, "init", "-q", "-b", "main", "plain")
    (tmp_path / "plain" / "a.txt").write_text("one\n")
    git(tmp_path / "plain", "add", "-A")
    git(tmp_path / "plain", "commit", "-q", "-m", "first")
    return tmp_path


def fake_git(folder, body, monkeypatch):
    """Put a program named git in front of the real one."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    return folder / "calls"


def test_no_command_runs_what_the_repository_configures(home):
    top, marker = clone(home)

    for words in (*READS, *CHANGES):
        PersonGit(top).run_git(*words)

        assert not marker.exists(), (words, marker.read_text())
    assert PersonGit(top).run_git("status", "--porcelain=v2").exit_code == 0


def test_a_directory_that_looks_like_a_repository_is_none(home):
    folder, marker = bare(home)

    answer = PersonGit(folder).run_git("status")

    assert (answer.exit_code, marker.exists()) == (128, False)
    assert find_repository(folder) is None


@pytest.mark.parametrize("name", ["uploadpack", "receivepack", "vcs"])
def test_a_remote_of_the_repository_starts_no_program(home, name):
    top, marker = home / "plain", home / "PWNED"
    git(top, "clone", "-q", "--bare", str(top), str(home / "there.git"))
    git(top, "remote", "add", "origin", str(home / "there.git"))
    (home / "trap").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (home / "trap").chmod(0o755)
    git(top, "config", f"remote.origin.{name}", str(home / "trap"))

    for words in (
        ("fetch", "--quiet", "--", "origin"),
        ("push", "--quiet", "--", "origin", "HEAD:refs/heads/new"),
    ):
        assert (PersonGit(top).run_git(*words).exit_code == 0) == (name != "vcs")
        assert not marker.exists()


def test_reading_a_partial_clone_fetches_nothing(home):
    git(home / "plain", "config", "uploadpack.allowFilter", "true")
    git(
        home,
        "clone",
        "-q",
        "--no-checkout",
        "--filter=blob:none",
        f"file://{home}/plain",
        "partial",
    )
    (home / "trap").write_text(f"#!/bin/sh\ntouch {home}/PWNED\n")
    (home / "trap").chmod(0o755)
    git(home / "partial", "config", "remote.origin.uploadpack", str(home / "trap"))

    answer = PersonGit(home / "partial").run_git("cat-file", "blob", "HEAD:a.txt")

    assert answer.exit_code == 128
    assert not (home / "PWNED").exists()


def test_a_trusted_push_runs_the_hooks_and_a_read_runs_none(home):
    top, ran = home / "plain", home / "ran"
    git(top, "clone", "-q", "--bare", str(top), str(home / "there.git"))
    git(top, "remote", "add", "origin", str(home / "there.git"))
    for name in ("pre-push", "post-index-change"):
        (top / ".git/hooks" / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (top / ".git/hooks" / name).chmod(0o755)
    os.utime(top / "a.txt", (1, 1))

    PersonGit(top).run_git("status").require_success()
    was_run = ran.exists()
    PersonGit(top, is_trusted=True).run_git(
        "push", "--quiet", "--", "origin", "HEAD:refs/heads/new"
    ).require_success()

    assert not was_run
    assert ran.read_text() == "pre-push\n"


def test_a_filter_of_the_person_runs_and_the_repositorys_own_does_not(home):
    top = home / "plain"
    for name in ("own", "theirs"):
        (home / name).write_text(f"#!/bin/sh\ntouch {home}/{name}.ran\ncat\n")
        (home / name).chmod(0o755)
    (top / ".git/info/attributes").write_text("* filter=lfs\n")
    git(top, "config", "--file", str(home / ".gitconfig"), "filter.lfs.clean", str(home / "own"))
    git(top, "config", "filter.lfs.clean", str(home / "theirs"))
    git(top, "config", "filter.lfs.required", "true")
    (top / "a.txt").write_text("two\n")

    assert PersonGit(top).run_git("status", "--porcelain").require_success() == b" M a.txt\n"
    assert (home / "own.ran").exists()
    assert not (home / "theirs.ran").exists()


def test_a_plain_repository_costs_no_second_process(home, monkeypatch):
    git(home / "plain", "worktree", "add", "-q", "../second", "-b", "second")
    calls = fake_git(home, f'exec {GIT} "$@"', monkeypatch)

    for folder in ("plain", "second", "plain"):
        PersonGit(home / folder).run_git("status").require_success()

    assert [line.split()[-1] for line in calls.read_text().splitlines()] == [
        *(
            "version",
            "--ignore-submodules=all",
            "--ignore-submodules=all",
            "--ignore-submodules=all",
        )
    ]


def test_an_old_git_runs_in_a_trusted_project_alone(home, monkeypatch):
    calls = fake_git(
        home, f'[ "$1" = version ] && echo git version 2.30.2 || exec {GIT} "$@"', monkeypatch
    )
    top = home / "plain"

    with pytest.raises(
        GitError, match=r"git 2\.30 may run what a repository configures"
    ) as refused:
        PersonGit(top).run_git("status")
    with pytest.raises(GitError):
        open_repository(top)
    before = calls.read_text()

    assert "flightlog trust --yes" in refused.value.hint
    assert find_repository(top) is None
    assert before == "version\n"
    assert open_repository(top, trusted=True) == PersonRepository(
        top, top / ".git", is_trusted=True
    )


def test_a_git_that_hangs_is_killed_and_a_missing_one_is_reported(home, monkeypatch):
    fake_git(home, f'[ "$1" = version ] && exec {GIT} version; exec sleep 60', monkeypatch)
    began = time.monotonic()

    with pytest.raises(GitError, match="git status did not finish within"):
        PersonGit(home / "plain").start_git("status", limit_s=0.2).wait_for_answer()
    monkeypatch.setenv("PATH", f"{home}/nowhere")
    with pytest.raises(GitError, match="git cannot be run here"):
        PersonGit(home / "plain").run_git("status")

    assert time.monotonic() - began < 10


def test_a_streamed_command_ends_at_its_limit_and_says_so(home, monkeypatch):
    fake_git(home, f'[ "$1" = version ] && exec {GIT} version; exec sleep 60', monkeypatch)
    running = PersonGit(home / "plain").start_git("cat-file", "--batch", limit_s=0.2)

    read = running.open_streams()[1].read()

    assert read == b""
    with pytest.raises(GitError, match="git cat-file did not finish within"):
        running.finish_command()


def test_variables_that_steer_git_are_cleared_and_a_push_keeps_sign_in(home, monkeypatch):
    fake_git(home, f'[ "$1" = version ] && exec {GIT} version; env', monkeypatch)
    for name in ("GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_TRACE", "GIT_SSH_COMMAND", "GIT_ASKPASS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SSH_AUTH_SOCK", "agent")

    def names(*words):
        listed = (
            PersonGit(home / "plain", variables={"GIT_INDEX_FILE": "i"})
            .run_git(*words)
            .stdout.decode()
            .splitlines()
        )
        return {line.partition("=")[0] for line in listed}

    mine = {"GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_TRACE", "GIT_SSH_COMMAND", "GIT_ASKPASS"}
    assert names("status") & mine == set()
    assert names("push") & mine == {"GIT_SSH_COMMAND", "GIT_ASKPASS"}
    assert {"SSH_AUTH_SOCK", "GIT_INDEX_FILE"} <= names("push")


def test_a_relative_search_path_does_not_lead_into_the_clone(home, monkeypatch):
    (home / "plain" / "git").write_text(f"#!/bin/sh\ntouch {home}/PWNED\n")
    (home / "plain" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")

    PersonGit(home / "plain").run_git("status").require_success()

    assert not (home / "PWNED").exists()


@pytest.mark.parametrize("name", ["--output=x", "--upload-pack=touch PWNED"])
def test_a_name_like_an_option_is_refused(home, name):
    repository = open_repository(home / "plain")

    for ask in (
        lambda: tree_files(repository, name),
        lambda: list(iter_commits(repository, [name])),
        lambda: fetch_refs(repository, name, "refs/a", "refs/b"),
        lambda: push_ref(repository, name, "HEAD"),
    ):
        with pytest.raises(Invalid, match="for an option"):
            ask()
    assert sorted(path.name for path in (home / "plain").iterdir()) == [".git", "a.txt"]


def test_hooks_that_the_repository_puts_elsewhere_are_refused(home):
    top = home / "plain"
    usual = find_hooks_folder(PersonGit(top))
    git(top, "config", "core.hooksPath", ".husky")
    inside = find_hooks_folder(PersonGit(top))
    git(top, "config", "core.hooksPath", str(home / "elsewhere"))

    assert (usual, inside) == (top / ".git" / "hooks", top / ".husky")
    with pytest.raises(Invalid, match="puts hooks outside of it"):
        find_hooks_folder(PersonGit(top))
    with pytest.raises(NotFound):
        find_hooks_folder(PersonGit(home))


def test_snapshots_whose_settings_were_changed_are_not_read(tmp_path):
    repository = ShadowRepository(tmp_path / "shadow", os.environ["PATH"])
    repository.create_if_missing()
    (tmp_path / "work").mkdir()
    place = {"GIT_WORK_TREE": str(tmp_path / "work")}
    repository.run_git(["status"], more=place)
    config = tmp_path / "shadow" / "config"
    config.write_text(config.read_text() + f"[core]\n\tfsmonitor = touch {tmp_path}/PWNED\n")

    with pytest.raises(Unreadable, match="settings of these snapshots were changed"):
        repository.run_git(["status"], more=place)

    config.write_text(config.read_text().partition("[core]\n\tfsmonitor")[0])
    (tmp_path / "shadow" / "commondir").write_text("../other")
    assert (
        subprocess.run(["cp", "-r", tmp_path / "shadow", tmp_path / "other"], check=True).returncode
        == 0
    )
    (tmp_path / "other" / "config").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/PWNED\n")
    repository.run_git(["status"], more=place)
    assert not Path(tmp_path / "PWNED").exists()
