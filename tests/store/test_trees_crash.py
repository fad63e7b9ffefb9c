"""Snapshots: killed at any call, held by an orphan, at a fixed price."""

import re
import shutil
import subprocess
import sys

import pytest

from flightlog.model.errors import Conflict
from flightlog.store.git.command import GitError
from support.shadow import PROGRAMS, fsck, kinds, names, open_shadow
from support.waiting import until


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


STEPS = ("update-index", "write-tree", "update-ref")
CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,ftruncate"


def wrap_git(folder, command, action):
    """A git that does something else for one of its commands."""
    folder.mkdir()
    real = shutil.which("git")
    stop = f'if [ "$word" = {command} ]; then {action} ; fi'
    script = f'#!/bin/sh\nfor word in "$@"; do\n  {stop}\ndone\nexec {real} "$@"\n'
    (folder / "git").write_text(script.replace("GIT", str(real)))
    (folder / "git").chmod(0o755)
    return f"{folder}:{PROGRAMS}"


def writing_points(trace):
    """The calls of a traced git that change something, as strace counts them."""
    seen, points = {}, []
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(r"(?:\d+\s+)?(\w+)\(", line)
        if call:
            seen[call[1]] = seen.get(call[1], 0) + 1
            if call[1] != "openat" or "O_CREAT" in line:
                points.append((call[1], seen[call[1]]))
    return points


@pytest.mark.soak
@pytest.mark.parametrize("command", STEPS)
def test_git_killed_at_any_call_that_writes_leaves_the_shadow_sound(tmp_path, command):
    kill_at_command(tmp_path, command, every=1)


@pytest.mark.slow
@pytest.mark.parametrize("command", STEPS)
def test_killing_git_at_every_fifth_write_leaves_the_shadow_sound(tmp_path, command):
    kill_at_command(tmp_path, command, every=5)


def kill_at_command(tmp_path, command, every):
    def prepare_work(name):
        work = tmp_path / name / "work"
        work.mkdir(parents=True)
        (work / "a").write_text("a")
        (work / "sub").mkdir()
        (work / "sub/b").write_text("b")
        trees = open_shadow(work)
        trees.save_snapshot("baseline")
        (work / "a").write_text("changed")
        (work / "sub/c").write_text("c")
        return work

    work = prepare_work("traced")
    trace = tmp_path / "trace"
    programs = wrap_git(
        tmp_path / "bin", command, f'exec strace -qq -o {trace} -e trace={CALLS} GIT "$@"'
    )
    open_shadow(work, programs=programs).save_snapshot("next")
    points = writing_points(trace)
    assert len(points) >= 3

    for call, number in points[::every]:
        name = f"{call}-{number}"
        work = prepare_work(name)
        kill = f'exec strace -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={number} GIT "$@"'
        with pytest.raises((GitError, Conflict)):
            open_shadow(
                work, programs=wrap_git(tmp_path / name / "bin", command, kill)
            ).save_snapshot("next")
        trees = open_shadow(work)
        fsck(work)
        assert kinds(trees, None, "baseline") == {"a": "added", "sub/b": "added"}
        if "next" not in names(trees.work_tree):
            trees.save_snapshot("next")
        assert kinds(trees, "baseline", "next") == {"a": "modified", "sub/c": "added"}
        assert trees.diff_snapshots("next", trees.save_snapshot("after")) == []


def test_an_orphaned_git_keeps_the_line_until_it_ends(work, tmp_path):
    (work / "a").write_text("a")
    open_shadow(work).save_snapshot("baseline")
    (work / "a").write_text("b")
    programs = wrap_git(
        tmp_path / "bin",
        "write-tree",
        f"touch {tmp_path}/started; sleep 1.5; touch {tmp_path}/ended",
    )
    code = (
        "import sys, time; from pathlib import Path\n"
        "from flightlog.store.git.snapshots import open_trees\n"
        "from flightlog.store.git.worktree import SnapshotDirs\n"
        f"shadow, work = Path({str(work.parent / '.shadow_git')!r}), Path({str(work)!r})\n"
        f"place = SnapshotDirs(shadow, work, Path('/none'), {programs!r})\n"
        "open_trees(place, now=time.time).save_snapshot('killed')"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    until((tmp_path / "started").exists)
    child.kill()
    child.wait()

    snapshot = open_shadow(work).save_snapshot("next")

    assert (tmp_path / "ended").exists()
    assert kinds(open_shadow(work), "baseline", snapshot) == {"a": "modified"}


def test_a_step_costs_a_fixed_number_of_git_calls(work, tmp_path):
    for number in range(300):
        (work / f"f{number}").write_text(str(number))
    log = tmp_path / "log"
    trees = open_shadow(
        work,
        programs=wrap_git(tmp_path / "bin", "never", f"true; fi; if true; then echo $1 >> {log}"),
    )
    (tmp_path / "bin/git").write_text(
        f'#!/bin/sh\necho "$*" | sed "s/^-c [^ ]* //;s/ .*//" >> {log}\nexec {shutil.which("git")} "$@"\n'
    )
    trees.save_snapshot("baseline")

    def calls(act):
        log.write_text("")
        act()
        return sorted(log.read_text().split())

    (work / "f7").write_text("changed")
    changed = calls(lambda: trees.save_snapshot("one"))
    same = calls(lambda: trees.save_snapshot("two"))

    assert changed == sorted(["diff-files", "ls-files", "update-index", "write-tree", "update-ref"])
    assert same == sorted(["diff-files", "ls-files", "update-ref"])
