"""Snapshots: what they hold, and how two differ."""

import os
import random
import shutil
import stat
import subprocess
from itertools import pairwise

import pytest

from flightlog.model.errors import Conflict, Invalid, NotFound, Unavailable
from flightlog.store.git.repository import ShadowRepository
from support.shadow import PROGRAMS, check_out, content, fsck, kinds, names, open_shadow


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_snapshot_holds_every_kind_of_file_and_says_how_two_differ(work):
    trees = open_shadow(work)
    (work / "kept.txt").write_text("same\n")
    (work / "old name.py").write_text("".join(f"line {at}\n" for at in range(50)))
    (work / "gone.bin").write_bytes(bytes(range(256)))
    (work / "run.sh").write_text("#!/bin/sh\n")
    before = trees.save_snapshot("baseline")
    (work / "old name.py").rename(work / "new\nname é.py")
    (work / "gone.bin").unlink()
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("/etc/passwd")
    (work / "data.bin").write_bytes(b"\0\1\2")
    (work / "deep/er").mkdir(parents=True)
    (work / "deep/er/a").write_text("one\ntwo\n")

    after = trees.save_snapshot("_step_1_1")

    changes = {change.path: change for change in trees.diff_snapshots(before, after)}
    assert {path: change.kind for path, change in changes.items()} == {
        "new\nname é.py": "renamed",
        "gone.bin": "deleted",
        "run.sh": "modified",
        "link": "added",
        "data.bin": "added",
        "deep/er/a": "added",
    }
    assert (changes["deep/er/a"].added, changes["deep/er/a"].removed) == (2, 0)
    assert (changes["data.bin"].added, changes["run.sh"].mode, changes["link"].mode) == (
        None,
        "100755",
        "120000",
    )
    assert changes["new\nname é.py"].old_path == "old name.py"
    assert (before.has_changes, after.has_changes, trees.find_snapshot("_step_1_1")) == (
        True,
        True,
        after,
    )
    assert names(trees.work_tree) == ["baseline", "_step_1_1"]
    assert trees.diff_snapshots(None, before)[0].kind == "added"


def test_patches_applied_in_order_give_the_final_tree_byte_for_byte(work, tmp_path):
    chance = random.Random(7)
    trees = open_shadow(work)
    for number in range(12):
        (work / f"f{number}").write_bytes(
            chance.randbytes(200) if number % 3 else b"text\r\nlines\n" * number
        )
    snapshots = [trees.save_snapshot("baseline")]
    for step in range(25):
        for _ in range(chance.randrange(1, 4)):
            change_at_random(work, chance)
        snapshots.append(trees.save_snapshot(f"_step_1_{step}"))
    other = check_out(trees, "baseline", tmp_path / "other", "other").work_tree

    for before, after in pairwise(snapshots):
        patch = trees.patch_between(before, after)
        if patch:
            subprocess.run(
                ["git", "apply", "--whitespace=nowarn", "-"], cwd=other, input=patch, check=True
            )

    assert content(other) == content(work)
    assert content(
        check_out(trees, snapshots[-1], tmp_path / "third", "third").work_tree
    ) == content(work)
    fsck(work)


def change_at_random(work, chance):
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
                new.write_bytes(
                    chance.choice([b"", b"no end of line", b"a\r\nb\n", chance.randbytes(5000)])
                )


def test_a_tree_that_did_not_change_gets_a_name_and_no_commit(work):
    trees = open_shadow(work)
    (work / "a").write_text("a")
    first = trees.save_snapshot("baseline")

    again = trees.save_snapshot("again")
    os.utime(work / "a", (1, 1))
    touched = trees.save_snapshot("touched")

    assert (again.commit, again.has_changes) == (first.commit, False)
    assert (touched.tree, touched.has_changes) == (first.tree, False)
    assert trees.read_state(touched).times["a"][0] == 1_000_000_000
    assert names(trees.work_tree) == ["again", "baseline", "touched"]


def test_an_empty_tree_can_be_snapshotted(work):
    trees = open_shadow(work)

    assert trees.diff_snapshots(None, trees.save_snapshot("baseline")) == []


def test_snapshot_name_cannot_be_used_twice(work):
    trees = open_shadow(work)
    first = trees.save_snapshot("baseline")
    (work / "a").write_text("a")

    with pytest.raises(Conflict):
        trees.save_snapshot("baseline")

    assert trees.find_snapshot("baseline") == first
    assert trees.save_snapshot("next").has_changes


def test_another_recorder_on_the_same_line_is_followed_not_overwritten(work):
    ours, theirs = open_shadow(work), open_shadow(work)
    ours.save_snapshot("baseline")
    (work / "a").write_text("a")
    theirs.save_snapshot("theirs")
    same = ours.save_snapshot("same")
    (work / "b").write_text("b")

    assert (same.commit, same.has_changes) == (theirs.find_snapshot("theirs").commit, False)
    assert kinds(ours, "theirs", ours.save_snapshot("ours")) == {"b": "added"}
    assert kinds(ours, "ours", theirs.save_snapshot("last")) == {}


@pytest.mark.parametrize(
    "name", ["", "a b", "../a", "a..b", "a.lock", "-a", "a/b", "é", "x" * 200, "a.", "a\n"]
)
def test_a_name_git_would_trip_over_is_refused(work, name):
    with pytest.raises(Invalid):
        open_shadow(work).save_snapshot(name)


def test_an_unknown_snapshot_is_not_found(work):
    trees = open_shadow(work)

    for ask in (
        trees.find_snapshot,
        trees.restore_snapshot,
        lambda name: trees.diff_snapshots(None, name),
    ):
        with pytest.raises(NotFound):
            ask("never-taken")


def test_restore_gives_the_tree_back_and_the_line_goes_on_from_there(work):
    (work / "a").write_text("a")
    (work / "sub").mkdir()
    (work / "sub/b").write_text("b")
    trees = open_shadow(work)
    trees.save_snapshot("baseline")
    was = content(work)
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a/new").write_text("new")
    shutil.rmtree(work / "sub")
    (work / "sub").symlink_to("a")
    later = trees.save_snapshot("later")
    (work / "unsaved").write_text("unsaved")

    trees.restore_snapshot("baseline")

    assert content(work) == was
    (work / "c").write_text("c")
    assert kinds(trees, "baseline", trees.save_snapshot("other-way")) == {"c": "added"}
    assert trees.find_snapshot("later") == later


def test_lines_share_the_repository_and_nothing_else(work, tmp_path):
    (work / "a").write_text("a")
    trees = open_shadow(work)
    trees.save_snapshot("baseline")

    one, two = (check_out(trees, "baseline", tmp_path / name, name) for name in ("one", "two"))
    (one.work_tree / "a").write_text("one")
    (two.work_tree / "b").write_text("two")

    assert kinds(one, "baseline", one.save_snapshot("one_1")) == {"a": "modified"}
    assert kinds(two, "baseline", two.save_snapshot("two_1")) == {"b": "added"}
    assert not trees.save_snapshot("main_1").has_changes


def test_a_torn_index_is_rebuilt(work):
    trees = open_shadow(work)
    (work / "a").write_text("a")
    trees.save_snapshot("baseline")
    (work.parent / ".shadow_git/lines/main/index").write_bytes(b"\0" * 100)
    (work / "b").write_text("b")

    assert kinds(trees, "baseline", trees.save_snapshot("next")) == {"b": "added"}


def test_an_unreadable_message_loses_only_its_own_words(work):
    trees = open_shadow(work)
    snapshot = trees.save_snapshot("baseline")
    repository = ShadowRepository(work.parent / ".shadow_git", PROGRAMS)
    commit = (
        repository.run_git(["commit-tree", snapshot.tree], stdin=b"strange\n{not json")
        .decode()
        .strip()
    )
    repository.run_git(["update-ref", "refs/tags/strange", commit])

    assert trees.find_snapshot("strange").omitted_files == ()


def test_without_git_the_error_says_so(work, tmp_path):
    with pytest.raises(Unavailable, match="git"):
        open_shadow(work, programs=str(tmp_path / "empty"))


def test_nothing_in_the_repository_is_for_others_to_read(work):
    open_shadow(work).save_snapshot("baseline")

    assert stat.S_IMODE((work.parent / ".shadow_git").stat().st_mode) == 0o700
