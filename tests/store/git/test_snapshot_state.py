"""What a snapshot holds beside the files: times, modes, empty directories and the repository."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from flightlog.model.errors import Unreadable
from flightlog.store.git.plain_files import StampTable
from flightlog.store.git.repository import find_outer_git_dir
from flightlog.store.git.snapshot_state import GitDirNote
from flightlog.store.git.worktree import SnapshotPolicy
from support.shadow import fsck, open_shadow

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
} | {
    f"GIT_{who}_{what}": f"{what}@x"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def git(folder, *words):
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENV, capture_output=True, text=True, check=True
    )
    return done.stdout


def picture(folder):
    """Everything there is: content, mode, time, directories, git's own files; not access times."""
    files = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        data, names = b"", 0 if path.is_dir() else status.st_nlink
        if path.is_symlink():
            data = str(path.readlink())
        elif path.is_file():
            data = path.read_bytes()
        files[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, data, names)
    return files


def looks(folder):
    return [
        git(folder, *words)
        for words in (
            ("log", "--all", "--format=%H %s"),
            ("--no-optional-locks", "status", "--porcelain=v2", "--branch"),
            ("stash", "list"),
            ("reflog",),
            ("branch", "-a"),
            ("for-each-ref",),
        )
    ]


@pytest.fixture
def work(tmp_path):
    """A repository with two commits, a stash, a staged and an unstaged change."""
    folder = tmp_path / "work"
    (folder / "src" / "empty").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "b.txt").write_text("b\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "b.txt").write_text("stashed\n")
    git(folder, "stash")
    (folder / "b.txt").write_text("staged\n")
    git(folder, "add", "b.txt")
    (folder / "src" / "a.py").write_text("a = 2\n")
    os.utime(folder / "src" / "a.py", ns=(1, 1_600_000_000_123_456_789))
    (folder / "src" / "a.py").chmod(0o640)
    return folder


def meddle(folder):
    """What an agent may do to files and history."""
    git(folder, "commit", "-qam", "FUTURE")
    git(folder, "branch", "other")
    git(folder, "stash", "drop")
    git(folder, "tag", "v1")
    (folder / "new.txt").write_text("new\n")
    git(folder, "add", "new.txt")
    (folder / "src" / "a.py").unlink()
    (folder / "made" / "deep").mkdir(parents=True)
    (folder / "src" / "empty").rmdir()
    git(folder, "gc", "-q", "--prune=now")


def test_a_restore_brings_back_repository_times_and_directories(work):
    trees = open_shadow(work)
    trees.save_snapshot("baseline")
    before, seen = picture(work), looks(work)
    meddle(work)
    assert looks(work) != seen
    trees.save_snapshot("later")
    later = picture(work)

    trees.restore_snapshot("baseline")
    assert picture(work) == before
    assert looks(work) == seen
    trees.restore_snapshot("later")

    assert picture(work) == later
    fsck(work)


def test_an_empty_directory_gets_the_whole_repository(work, tmp_path):
    trees = open_shadow(work)
    trees.save_snapshot("baseline")
    before, seen = picture(work), looks(work)
    shutil.rmtree(work)
    work.mkdir()

    open_shadow(work, line="again").restore_snapshot("baseline")

    assert looks(work) == seen
    assert picture(work) == before


def test_a_repository_made_after_the_snapshot_goes(tmp_path):
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "x").write_text("x\n")
    trees = open_shadow(work)
    trees.save_snapshot("baseline")
    before = picture(work)
    for folder in (work, work / "sub"):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "mine")
    trees.save_snapshot("later")

    trees.restore_snapshot("baseline")
    assert picture(work) == before
    trees.restore_snapshot("later")

    assert git(work / "sub", "log", "--format=%s") == "mine\n"


def test_the_outer_repository_of_a_linked_work_tree_is_restored(work, tmp_path):
    linked = tmp_path / "linked"
    git(work, "stash", "-q")
    git(work, "worktree", "add", "-q", str(linked))
    outer = find_outer_git_dir(linked)
    assert outer == work / ".git"
    assert find_outer_git_dir(work / "src") == work / ".git"
    assert find_outer_git_dir(work) is None
    trees = open_shadow(linked, outer=outer)
    trees.save_snapshot("baseline")
    seen, before = looks(linked), picture(outer)
    (linked / "b.txt").write_text("committed\n")
    git(linked, "commit", "-qam", "FUTURE")

    trees.restore_snapshot("baseline")

    assert looks(linked) == seen
    assert picture(outer) == before


def test_an_unchanged_repository_is_not_read_again(work):
    trees = open_shadow(work)
    first = trees.save_snapshot("one")
    objects = sum(
        1 for path in (work.parent / ".shadow_git" / "objects").rglob("*") if path.is_file()
    )
    second = trees.save_snapshot("two")
    trees.keep_tables()
    third = open_shadow(work).save_snapshot("three")

    assert first.state == second.state == third.state
    assert objects == sum(
        1 for path in (work.parent / ".shadow_git" / "objects").rglob("*") if path.is_file()
    )
    git(work, "branch", "only-a-ref")
    changed = trees.save_snapshot("four")
    assert changed.tree == first.tree
    assert changed.state != first.state
    assert len(trees.read_state(changed).repository) == len(trees.read_state(first).repository) + 2


def test_a_lock_of_a_running_git_is_not_restored(work):
    trees = open_shadow(work)
    (work / ".git" / "index.lock").write_text("")
    trees.save_snapshot("baseline")
    (work / ".git" / "index.lock").unlink()

    trees.restore_snapshot("baseline")

    assert not Path(work / ".git" / "index.lock").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("echo 1 > h1; ln h1 h2; ln h1 src/h3", "echo 2 >> h1; rm h2"),
        ("echo 1 > h1; echo 1 > h2", "rm h2; ln h1 h2; echo 3 >> h1"),
        ("mkdir only; mkfifo -m 640 only/pipe", "rm -r only; mkfifo new; mkdir d; mkfifo d/p"),
        ("mkfifo -m 640 pipe; ln -s no l1; ln l1 l2", "chmod 600 pipe; touch pipe; rm l2"),
        ("mv .git ../elsewhere; ln -s ../elsewhere .git", "rm .git; git init -q"),
        ("true", "rm -r .git; echo gitdir: /none > .git"),
        ("mkdir node_modules; echo 1 > node_modules/m", "echo 2 > node_modules/m; mkdir .venv"),
        ("touch .git/old.lock", "touch .git/index.lock .git/objects/pack/tmp_pack_1"),
        ("head -c 34000000 /dev/zero > large", "echo 1 > large"),
        ("git branch side", "git branch -D side; git branch side/one; git gc -q --prune=now"),
        ("git branch side/one", "git branch -D side/one; git branch side"),
        (
            "true",
            "mv .git/hooks ../kept; ln -s ../../kept .git/hooks; mv .git/info ../i; touch .git/info",
        ),
        ("git init -q sub; echo 1 > sub/s", "mv sub ../sub; ln -s ../sub sub"),
        ("echo 1 > src/no; chmod 0 src/no; chmod 555 src", "chmod 755 src; rm -f src/no"),
    ],
)
def test_what_an_agent_does_to_unusual_files_is_undone(work, before, after):
    subprocess.run(["sh", "-ec", before], cwd=work, env=ENV, check=True)
    initial = picture(work)
    trees = open_shadow(work, SnapshotPolicy(heavy=(), file_bytes_max=1 << 30))
    trees.save_snapshot("original")
    subprocess.run(["sh", "-ec", after], cwd=work, env=ENV, check=True)
    assert picture(work) != initial

    trees.restore_snapshot("original")

    assert picture(work) == initial
    trees.save_snapshot("again")
    assert trees.diff_snapshots("original", "again") == []


@pytest.mark.parametrize(
    "between",
    [
        "rm -r src; echo 1 > src",
        "rm -r src; ln -s nowhere src",
        "chmod 700 src/empty",
        "chmod 600 src/a.py",
        "rm src/n2; ln src/a.py n4",
        "rm n1; echo 1 > n1",
        # Git sees a change within a second of the last one; what is gone later, it only lists.
        "sleep 1.1; rm -r src; echo 1 > src; echo 2 >> n1; ln n1 n4",
    ],
)
def test_a_change_of_kind_or_mode_between_snapshots_is_restored(work, between):
    subprocess.run(["sh", "-ec", "echo 1 > n1; ln n1 src/n2; ln n1 n3"], cwd=work, check=True)
    trees = open_shadow(work)
    trees.save_snapshot("one")
    first = picture(work)
    subprocess.run(["sh", "-ec", between], cwd=work, env=ENV, check=True)
    trees.save_snapshot("two")
    second = picture(work)
    assert second != first

    trees.restore_snapshot("one")
    assert picture(work) == first
    trees.restore_snapshot("two")

    assert picture(work) == second


def test_a_linked_work_tree_of_a_copy_is_restored(work, tmp_path):
    git(work, "worktree", "add", "-q", "sub/linked")
    copy = tmp_path / "copy"
    shutil.copytree(work, copy, symlinks=True)
    shutil.rmtree(work)  # the copy's links name it, as those of a run's private copy do
    trees = open_shadow(copy)
    first = trees.save_snapshot("one")
    before = picture(copy)
    assert trees.save_snapshot("two").state == first.state
    link = (copy / "sub" / "linked" / ".git").read_bytes()
    shutil.rmtree(copy / "sub")

    trees.restore_snapshot("one")

    assert (copy / "sub" / "linked" / ".git").read_bytes() == link
    assert picture(copy) == before


def test_a_restore_writes_nothing_through_a_link(work):
    other = work.parent / "other"
    for folder in (work / "sub", other):
        git(work, "init", "-q", str(folder))
    trees = open_shadow(work)
    trees.save_snapshot("one")
    (work / "sub").rename(work / "was")
    (work / "sub").symlink_to(other)
    trees.save_snapshot("two")
    git(other, "branch", "-M", "theirs")
    before = picture(other)

    for name in ("one", "two"):
        trees.restore_snapshot(name)

    assert picture(other) == before


def test_a_snapshot_that_leads_out_of_its_directory_is_refused(work):
    (work / "out").symlink_to("..")
    trees = open_shadow(work)
    saved = trees.save_snapshot("one")
    dirs = (GitDirNote("../x", *msgspec.structs.astuple(saved.state.git_dirs[0])[1:]),)
    outside = [{"links": {"../x": "gitdir: y"}}, {"git_dirs": dirs}, {"specials": {"/x/p": (1, 1)}}]
    outside += [{"links": {"out/x": "gitdir: y"}}, {"hard_links": (("b.txt", "../x/b"),)}]
    outside.append({"stamps": StampTable(saved.state.stamps.base, {"../x/": (1, 0o777)})})

    for fields in outside:
        state = msgspec.structs.replace(saved.state, **fields)
        with pytest.raises(Unreadable):
            trees.restore_snapshot(msgspec.structs.replace(saved, state=state))

    assert not (work.parent / "x").exists()


def test_a_left_out_file_may_have_a_name_that_is_not_utf8(work):
    path = work / os.fsdecode(b"large-\xff")
    path.write_bytes(bytes(2000))

    saved = open_shadow(work, SnapshotPolicy(file_bytes_max=1000)).save_snapshot("one")

    assert [skipped.path for skipped in saved.omitted_files] == [path.name]
    assert open_shadow(work).find_snapshot("one").omitted_files == saved.omitted_files


def test_a_file_that_a_snapshot_left_out_is_not_deleted_by_a_restore(work):
    (work / "large").write_bytes(bytes(2000))
    trees = open_shadow(work, SnapshotPolicy(file_bytes_max=1000))
    trees.save_snapshot("original")
    (work / "large").write_bytes(b"small now")

    trees.restore_snapshot("original")

    assert (work / "large").read_bytes() == b"small now"
