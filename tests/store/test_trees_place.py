"""Snapshots: what they leave alone, leave out and refuse."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SkippedPath, SnapshotDirs, SnapshotPolicy
from support.shadow import PROGRAMS, kinds, open_shadow


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_the_projects_own_repository_and_its_settings_are_not_used(work):
    (work / "a.txt").write_bytes(b"one\r\ntwo\n")
    (work / ".gitattributes").write_text(
        "*.txt text eol=crlf working-tree-encoding=UTF-16\n*.md filter=evil ident\n"
    )
    (work / "b.md").write_text("$Id$\n")
    git = ["git", "-c", "user.name=p", "-c", "user.email=p@localhost"]
    subprocess.run([*git, "init", "-q"], cwd=work, check=True)
    subprocess.run([*git, "config", "filter.evil.clean", "touch evil; cat"], cwd=work, check=True)
    subprocess.run([*git, "add", "b.md"], cwd=work, check=True)
    (work / "evil").unlink(missing_ok=True)
    (work / ".git/hooks").mkdir(exist_ok=True)
    before = {path: path.read_bytes() for path in (work / ".git").rglob("*") if path.is_file()}
    trees = open_shadow(work)

    trees.save_snapshot("baseline")
    (work / "a.txt").write_bytes(b"changed\r\n")
    trees.save_snapshot("next")
    trees.restore_snapshot("baseline")

    assert (work / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert (work / "b.md").read_text() == "$Id$\n"
    assert {
        path: path.read_bytes() for path in (work / ".git").rglob("*") if path.is_file()
    } == before
    assert not (work / "evil").exists()


def test_git_variables_of_the_caller_do_not_change_the_repository(work, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    (work / "a").write_text("a")

    assert kinds(open_shadow(work), None, open_shadow(work).save_snapshot("baseline")) == {
        "a": "added"
    }


def test_repositories_inside_are_plain_files_and_said_so(work):
    for folder in ("lib", "lib/inner"):
        (work / folder).mkdir()
        subprocess.run(["git", "init", "-q"], cwd=work / folder, check=True)
        (work / folder / "f").write_text(folder)
    trees = open_shadow(work)

    before = trees.save_snapshot("baseline")
    (work / "lib/inner/f").write_text("changed")
    (work / "lib/new").write_text("new")
    after = trees.save_snapshot("next")

    assert before.nested_repositories == after.nested_repositories == ("lib", "lib/inner")
    assert kinds(trees, None, before) == {"lib/f": "added", "lib/inner/f": "added"}
    assert kinds(trees, before, after) == {"lib/inner/f": "modified", "lib/new": "added"}


def test_repositories_inside_are_refused_where_that_is_the_policy(work):
    (work / "lib").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work / "lib", check=True)

    with pytest.raises(Invalid, match="lib"):
        open_shadow(work, SnapshotPolicy(nested="refuse")).save_snapshot("baseline")


@pytest.mark.parametrize("home", ["work", "work/home", "."])
def test_a_home_directory_is_refused(tmp_path, work, home):
    tree = tmp_path if home == "." else work

    with pytest.raises(Invalid):
        open_trees(
            SnapshotDirs(tmp_path.parent / "shadow", tree, tmp_path / home, PROGRAMS), now=time.time
        )


def test_a_directory_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        open_shadow(tmp_path / "nothing")


def test_a_file_that_is_too_large_or_not_a_file_is_left_out_and_named(work):
    trees = open_shadow(work, SnapshotPolicy(file_bytes_max=1000))
    (work / "grows").write_bytes(b"1" * 1000)
    (work / "large").write_bytes(b"1" * 1001)
    os.mkfifo(work / "pipe")
    before = trees.save_snapshot("baseline")
    (work / "grows").write_bytes(b"1" * 1001)
    after = trees.save_snapshot("next")

    assert set(kinds(trees, None, before)) == {"grows"}
    assert before.omitted_files == (SkippedPath("large", "larger than 1000 bytes"),)
    assert {skipped.path for skipped in after.omitted_files} == {"grows", "large"}
    assert kinds(trees, before, after) == {"grows": "deleted"}
    assert trees.find_snapshot("next").omitted_files == after.omitted_files
    trees.restore_snapshot(after)
    assert (work / "grows").stat().st_size == 1001


def test_all_snapshots_together_have_a_limit(work):
    trees = open_shadow(work, SnapshotPolicy(total_bytes_max=20_000))
    (work / "a").write_bytes(random.Random(1).randbytes(9_000))
    trees.save_snapshot("baseline")
    (work / "b").write_bytes(random.Random(2).randbytes(30_000))

    with pytest.raises(Unavailable, match="20000"):
        trees.save_snapshot("next")

    (work / "b").unlink()
    trees.save_snapshot("later")


def test_policy_decides_on_ignored_files_except_those_given_by_name(work):
    (work / ".gitignore").write_text("*.log\n")
    (work / "a.log").write_text("a")
    (work / "node_modules/x").mkdir(parents=True)
    (work / "node_modules/x/index.js").write_text("1")
    keeps = open_shadow(work, line="keeps")
    leaves = open_shadow(work, SnapshotPolicy(ignored="leave"), line="leaves")

    watched, left = keeps.save_snapshot("kept"), leaves.save_snapshot("left")
    (work / "node_modules/x/index.js").write_text("2")
    seen = leaves.save_snapshot(
        "seen", also=["node_modules/x/index.js", "a.log", "../out", "/etc/passwd", ".git/config"]
    )

    assert set(kinds(keeps, None, watched)) == {".gitignore", "a.log"}
    assert watched.omitted_files == (SkippedPath("node_modules", "not watched"),)
    assert set(kinds(leaves, None, left)) == {".gitignore"}
    assert kinds(leaves, left, seen) == {"a.log": "added", "node_modules/x/index.js": "added"}
    leaves.restore_snapshot(left)
    assert (work / "node_modules/x/index.js").read_text() == "2", (
        "what was not watched is not removed"
    )


def test_a_shadow_inside_its_own_work_tree_leaves_itself_out(work):
    (work / "a").write_text("a")
    place = SnapshotDirs(work / "runs/[1] one/.shadow_git", work, Path("/home/not-here"), PROGRAMS)
    trees = open_trees(place, SnapshotPolicy(leave_out=("/out/",)), now=time.time)
    (work / "out").mkdir()
    (work / "out/b").write_text("b")

    assert set(kinds(trees, None, trees.save_snapshot("baseline"))) == {"a"}
    assert set(kinds(trees, None, trees.save_snapshot("again"))) == {"a"}
