"""What is checked out, read from git's own files: the same as git says, or nothing."""

import pytest

from flightlog.store.git import repository
from flightlog.store.git.history import head_commit
from flightlog.store.git.repository import current_branch, open_repository, read_branch, read_tip
from support.dataset_ground import Ground


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def read_head(folder):
    repository = open_repository(folder)
    return read_branch(repository.top), read_tip(repository.top, repository.common)


def test_a_branch_and_its_commit_are_what_git_says(ground):
    ground.git("checkout", "-q", "-b", "deep/er")
    last = ground.commit("second")

    assert read_head(ground.top) == ("deep/er", last)


def test_packed_refs_are_read_and_a_loose_one_counts_for_more(ground):
    ground.git("branch", "main-2")
    first = ground.git("rev-parse", "HEAD").strip()
    ground.git("pack-refs", "--all")

    assert read_head(ground.top) == ("main", first)
    last = ground.commit("second")
    assert read_head(ground.top) == ("main", last)


def test_another_work_tree_has_a_head_of_its_own(ground, tmp_path):
    first = ground.git("rev-parse", "HEAD").strip()
    ground.git("worktree", "add", "-q", str(tmp_path / "second"), "-b", "second")
    ground.commit("second")

    assert read_head(tmp_path / "second") == ("second", first)


def test_without_a_branch_there_is_a_commit_alone(ground):
    first = ground.git("rev-parse", "HEAD").strip()
    ground.git("checkout", "-q", "--detach")

    assert read_head(ground.top) == ("", first)


def test_unclear_head_is_left_to_git(ground, tmp_path):
    ground.git("symbolic-ref", "refs/heads/other", "refs/heads/main")
    ground.git("symbolic-ref", "HEAD", "refs/heads/other")
    assert repository.read_tip(ground.top, ground.place.repository.common) is None
    assert head_commit(ground.place.repository) == ground.git("rev-parse", "main").strip()

    ground.git("symbolic-ref", "HEAD", "refs/heads/unborn")
    assert read_head(ground.top) == ("unborn", None)
    assert head_commit(ground.place.repository) == ""

    (ground.top / ".git" / "HEAD").write_text(
        "ref: refs/heads/.invalid\n"
    )  # as where refs are kept in tables
    assert read_head(ground.top) == (None, None)
    assert repository.read_branch(tmp_path / "nowhere") is None
    assert repository.read_tip(tmp_path / "nowhere", tmp_path) is None
    (ground.top / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert current_branch(ground.place.repository) == "main"
