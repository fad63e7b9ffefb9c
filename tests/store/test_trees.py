"""Snapshots: what they hold, and how two differ."""

import os
import random
import shutil
import stat
import subprocess
from itertools import pairwise

import pytest

from flightlog.model.errors import Conflict, Invalid, NotFound, Unavailable
from flightlog.store.git import Repository
from shadow import PROGRAMS, content, fsck, kinds, opened


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_snapshot_holds_every_kind_of_file_and_says_how_two_differ(work):
    trees = opened(work)
    (work / "kept.txt").write_text("same\n")
    (work / "old name.py").write_text("".join(f"line {at}\n" for at in range(50)))
    (work / "gone.bin").write_bytes(bytes(range(256)))
    (work / "run.sh").write_text("#!/bin/sh\n")
    before = trees.snapshot("baseline")
    (work / "old name.py").rename(work / "new\nname é.py")
    (work / "gone.bin").unlink()
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("/etc/passwd")
    (work / "data.bin").write_bytes(b"\0\1\2")
    (work / "deep/er").mkdir(parents=True)
    (work / "deep/er/a").write_text("one\ntwo\n")

    after = trees.snapshot("_step_1_1")

    found = {change.path: change for change in trees.diff(before, after)}
    assert {path: change.kind for path, change in found.items()} == {
        "new\nname é.py": "renamed",
        "gone.bin": "deleted",
        "run.sh": "modified",
        "link": "added",
        "data.bin": "added",
        "deep/er/a": "added",
    }
    assert (found["deep/er/a"].added, found["deep/er/a"].removed) == (2, 0)
    assert (found["data.bin"].added, found["run.sh"].mode, found["link"].mode) == (None, "100755", "120000")
    assert found["new\nname é.py"].old_path == "old name.py"
    assert (before.changed, after.changed, trees.find("_step_1_1")) == (True, True, after)
    assert trees.names() == ["baseline", "_step_1_1"]
    assert trees.diff(None, before)[0].kind == "added"


def test_patches_applied_in_order_give_the_final_tree_byte_for_byte(work, tmp_path):
    chance = random.Random(7)
    trees = opened(work)
    for number in range(12):
        (work / f"f{number}").write_bytes(chance.randbytes(200) if number % 3 else b"text\r\nlines\n" * number)
    snapshots = [trees.snapshot("baseline")]
    for step in range(25):
        for _ in range(chance.randrange(1, 4)):
            changed_at_random(work, chance)
        snapshots.append(trees.snapshot(f"_step_1_{step}"))
    other = trees.checkout("baseline", tmp_path / "other", "other").work_tree

    for before, after in pairwise(snapshots):
        patch = trees.patch(before, after)
        if patch:
            subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=other, input=patch, check=True)

    assert content(other) == content(work)
    assert content(trees.checkout(snapshots[-1], tmp_path / "third", "third").work_tree) == content(work)
    fsck(work)


def changed_at_random(work, chance):
    """Do one of the things agents do to a tree."""
    paths = [path for path in sorted(work.rglob("*")) if path.is_symlink() or path.is_file()]
    path = chance.choice(paths) if paths else work / "f"
    new = work / chance.choice(["", "sub", "sub/deep"]) / f"n{chance.randrange(30)}"
    match chance.randrange(8):
        case 0 if not path.is_symlink() and path.exists():
            path.write_bytes(path.read_bytes() + b"more\n")
        case 1:
            path.unlink(missing_ok=True)
        case 2 if not new.exists() and not new.is_symlink():
            new.parent.mkdir(parents=True, exist_ok=True)
            path.rename(new) if path.is_symlink() or path.exists() else new.write_text("x")
        case 3 if not path.is_symlink() and path.exists():
            path.chmod(chance.choice([0o644, 0o755]))
        case 4 if not new.exists() and not new.is_symlink():
            new.parent.mkdir(parents=True, exist_ok=True)
            new.symlink_to(chance.choice(["f1", "/nowhere", "../.."]))
        case 5:
            path.unlink(missing_ok=True)
            (path / "inside").mkdir(parents=True)
            (path / "inside" / "file").write_bytes(chance.randbytes(50))
        case 6:
            shutil.rmtree(work / "sub", ignore_errors=True)
            (work / "sub").unlink(missing_ok=True)
        case _:
            new.parent.mkdir(parents=True, exist_ok=True)
            if not new.is_dir():
                new.unlink(missing_ok=True)
                new.write_bytes(chance.choice([b"", b"no end of line", b"a\r\nb\n", chance.randbytes(5000)]))


def test_a_tree_that_did_not_change_gets_a_name_and_no_commit(work):
    trees = opened(work)
    (work / "a").write_text("a")
    first = trees.snapshot("baseline")
    os.utime(work / "a", (1, 1))

    again = trees.snapshot("again")

    assert (again.commit, again.changed) == (first.commit, False)
    assert trees.names() == ["again", "baseline"]


def test_an_empty_tree_can_be_snapshotted(work):
    trees = opened(work)

    assert trees.diff(None, trees.snapshot("baseline")) == []


def test_a_name_is_given_once(work):
    trees = opened(work)
    first = trees.snapshot("baseline")
    (work / "a").write_text("a")

    with pytest.raises(Conflict):
        trees.snapshot("baseline")

    assert trees.find("baseline") == first
    assert trees.snapshot("next").changed


def test_another_recorder_on_the_same_line_is_followed_not_overwritten(work):
    ours, theirs = opened(work), opened(work)
    ours.snapshot("baseline")
    (work / "a").write_text("a")
    theirs.snapshot("theirs")
    same = ours.snapshot("same")
    (work / "b").write_text("b")

    assert (same.commit, same.changed) == (theirs.find("theirs").commit, False)
    assert kinds(ours, "theirs", ours.snapshot("ours")) == {"b": "added"}
    assert kinds(ours, "ours", theirs.snapshot("last")) == {}


@pytest.mark.parametrize("name", ["", "a b", "../a", "a..b", "a.lock", "-a", "a/b", "é", "x" * 200, "a.", "a\n"])
def test_a_name_git_would_trip_over_is_refused(work, name):
    with pytest.raises(Invalid):
        opened(work).snapshot(name)


def test_an_unknown_snapshot_is_not_found(work):
    trees = opened(work)

    for ask in (trees.find, trees.restore, lambda name: trees.diff(None, name)):
        with pytest.raises(NotFound):
            ask("never-taken")


def test_restore_gives_the_tree_back_and_the_line_goes_on_from_there(work):
    (work / "a").write_text("a")
    (work / "sub").mkdir()
    (work / "sub/b").write_text("b")
    trees = opened(work)
    trees.snapshot("baseline")
    was = content(work)
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a/new").write_text("new")
    shutil.rmtree(work / "sub")
    (work / "sub").symlink_to("a")
    later = trees.snapshot("later")
    (work / "unsaved").write_text("unsaved")

    trees.restore("baseline")

    assert content(work) == was
    (work / "c").write_text("c")
    assert kinds(trees, "baseline", trees.snapshot("other-way")) == {"c": "added"}
    assert trees.find("later") == later


def test_lines_share_the_repository_and_nothing_else(work, tmp_path):
    (work / "a").write_text("a")
    trees = opened(work)
    trees.snapshot("baseline")

    one, two = (trees.checkout("baseline", tmp_path / name, name) for name in ("one", "two"))
    (one.work_tree / "a").write_text("one")
    (two.work_tree / "b").write_text("two")

    assert kinds(one, "baseline", one.snapshot("one_1")) == {"a": "modified"}
    assert kinds(two, "baseline", two.snapshot("two_1")) == {"b": "added"}
    assert not trees.snapshot("main_1").changed
    with pytest.raises(Invalid, match="empty"):
        trees.checkout("baseline", tmp_path / "one", "again")
    with pytest.raises(Conflict):
        trees.checkout("baseline", tmp_path / "fourth", "one")


def test_a_torn_index_is_made_anew(work):
    trees = opened(work)
    (work / "a").write_text("a")
    trees.snapshot("baseline")
    (work.parent / ".shadow_git/lines/main/index").write_bytes(b"\0" * 100)
    (work / "b").write_text("b")

    assert kinds(trees, "baseline", trees.snapshot("next")) == {"b": "added"}


def test_a_message_nobody_can_read_costs_only_what_it_said(work):
    trees = opened(work)
    snapshot = trees.snapshot("baseline")
    repository = Repository(work.parent / ".shadow_git", PROGRAMS)
    commit = repository.run(["commit-tree", snapshot.tree], stdin=b"strange\n{not json").decode().strip()
    repository.run(["update-ref", "refs/tags/strange", commit])

    assert trees.find("strange").left_out == ()


def test_without_git_the_error_says_so(work, tmp_path):
    with pytest.raises(Unavailable, match="git"):
        opened(work, programs=str(tmp_path / "empty"))


def test_nothing_in_the_repository_is_for_others_to_read(work):
    opened(work).snapshot("baseline")

    assert stat.S_IMODE((work.parent / ".shadow_git").stat().st_mode) == 0o700
