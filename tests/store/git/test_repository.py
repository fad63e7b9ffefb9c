"""Asking git about repositories: the right one, from anywhere, whatever a hook's environment says."""

import os
import subprocess

import pytest

from flightlog.model.errors import NotFound
from flightlog.store.git import repository
from flightlog.store.git.command import GitError
from flightlog.store.git.history import commit_times, head_commit, iter_commits
from flightlog.store.git.refs import commit_to_ref
from flightlog.store.git.repository import read_blob_contents, tree_files
from support.dataset_ground import Ground


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def test_a_repository_is_found_from_inside_and_from_its_work_trees(ground, tmp_path):
    (ground.top / "deep" / "er").mkdir(parents=True)
    ground.git("worktree", "add", "-q", str(tmp_path / "second"), "-b", "second")

    inner, second = (
        repository.open_repository(ground.top / "deep" / "er"),
        repository.open_repository(tmp_path / "second"),
    )

    assert inner.top == ground.top
    assert (second.top, second.common) == (tmp_path / "second", inner.common)
    assert repository.find_repository(tmp_path) is None
    with pytest.raises(NotFound, match="not inside a git repository"):
        repository.open_repository(tmp_path)


def test_a_hooks_own_variables_do_not_lead_git_astray(ground, tmp_path, monkeypatch):
    other = Ground(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.top / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))

    assert repository.open_repository(ground.top).top == ground.top
    assert head_commit(ground.place.repository) == subprocess.run(
        ["git", "-C", str(ground.top), "rev-parse", "HEAD"], capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout.strip()  # fmt: skip


def test_default_branch_is_the_remotes_or_a_usual_name_or_the_only_one(ground, tmp_path):
    ground.git("branch", "work")
    assert repository.default_branch(ground.place.repository) == "main"
    ground.git("branch", "-m", "main", "stem")
    ground.git("branch", "-D", "work")
    assert repository.default_branch(ground.place.repository) == "stem"
    ground.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
    ground.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert repository.default_branch(ground.place.repository) == "trunk"


def test_commits_say_what_changed_and_those_known_are_left_out(ground):
    first = head_commit(ground.place.repository)
    name = 'odd "name" with\ttab é.txt'
    (ground.top / name).write_text("one\ntwo\n")
    second = ground.commit("Add two lines\n\nwith a body")

    (commit,) = iter_commits(ground.place.repository, [second], [first, "0" * 40])

    assert (commit.hash, commit.parents, commit.insertions, commit.deletions) == (
        second,
        (first,),
        2,
        0,
    )
    assert (commit.files, commit.message) == ((name,), "Add two lines\n\nwith a body")
    assert set(commit_times(ground.place.repository, [first, "0" * 40])) == {first}


def test_files_and_blobs_of_a_ref_are_read(ground, tmp_path):
    repository = ground.place.repository
    commit_to_ref(
        repository, "refs/flightlog/x", {"a/b.txt": b"one\n", "c": b""}, tmp_path / "index"
    )

    files = tree_files(repository, "refs/flightlog/x", "a")

    assert list(files) == ["a/b.txt"]
    assert read_blob_contents(repository, [*files.values(), "0" * 40]) == {
        files["a/b.txt"]: b"one\n"
    }
    assert tree_files(repository, "refs/nowhere") == {}


def test_error_holds_the_message_of_git(ground):
    with pytest.raises(GitError, match="git rev-parse failed: Needed a single revision"):
        repository.run_git(ground.place.repository, "rev-parse", "--verify", "nowhere")
