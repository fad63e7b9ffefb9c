import os
import random
import re
import shutil
import stat
import subprocess
import sys
import time
from itertools import count, pairwise
from pathlib import Path

import pytest

from flightlog.model.errors import Conflict, Invalid, NotFound, Unavailable
from flightlog.store.git import GitFailed, Repository
from flightlog.store.trees import LeftOut, Place, Policy, open_trees
from waiting import until

PROGRAMS = os.environ["PATH"]


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def opened(work, policy=None, programs=PROGRAMS, **options):
    seconds = count(1_700_000_000)
    place = Place(work.parent / ".shadow_git", work, Path("/home/nobody-here"), programs)
    return open_trees(place, policy, now=lambda: next(seconds), **options)


def content(folder):
    """Every file of a tree but git's own: kind, mode bit, bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".git" in path.relative_to(folder).parts or (path.is_dir() and not path.is_symlink()):
            continue
        status = path.lstat()
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(folder))] = (path.is_symlink(), bool(status.st_mode & stat.S_IXUSR), data)
    return found


def kinds(trees, before, after):
    return {change.path: change.kind for change in trees.diff(before, after)}


def fsck(work):
    done = subprocess.run(
        ["git", "--git-dir", work.parent / ".shadow_git", "fsck", "--strict"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


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


def test_the_projects_own_repository_is_not_touched_and_its_settings_do_not_count(work):
    (work / "a.txt").write_bytes(b"one\r\ntwo\n")
    (work / ".gitattributes").write_text("*.txt text eol=crlf working-tree-encoding=UTF-16\n*.md filter=evil ident\n")
    (work / "b.md").write_text("$Id$\n")
    git = ["git", "-c", "user.name=p", "-c", "user.email=p@localhost"]
    subprocess.run([*git, "init", "-q"], cwd=work, check=True)
    subprocess.run([*git, "config", "filter.evil.clean", "touch evil; cat"], cwd=work, check=True)
    subprocess.run([*git, "add", "b.md"], cwd=work, check=True)
    (work / "evil").unlink(missing_ok=True)
    (work / ".git/hooks").mkdir(exist_ok=True)
    before = {path: path.read_bytes() for path in (work / ".git").rglob("*") if path.is_file()}
    trees = opened(work)

    trees.snapshot("baseline")
    (work / "a.txt").write_bytes(b"changed\r\n")
    trees.snapshot("next")
    trees.restore("baseline")

    assert (work / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert (work / "b.md").read_text() == "$Id$\n"
    assert {path: path.read_bytes() for path in (work / ".git").rglob("*") if path.is_file()} == before
    assert not (work / "evil").exists()


def test_a_caller_inside_another_repository_or_hook_does_not_lead_us_astray(work, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    (work / "a").write_text("a")

    assert kinds(opened(work), None, opened(work).snapshot("baseline")) == {"a": "added"}


def test_repositories_inside_are_plain_files_and_said_so(work):
    for folder in ("lib", "lib/inner"):
        (work / folder).mkdir()
        subprocess.run(["git", "init", "-q"], cwd=work / folder, check=True)
        (work / folder / "f").write_text(folder)
    trees = opened(work)

    before = trees.snapshot("baseline")
    (work / "lib/inner/f").write_text("changed")
    (work / "lib/new").write_text("new")
    after = trees.snapshot("next")

    assert before.nested == after.nested == ("lib", "lib/inner")
    assert kinds(trees, None, before) == {"lib/f": "added", "lib/inner/f": "added"}
    assert kinds(trees, before, after) == {"lib/inner/f": "modified", "lib/new": "added"}


def test_repositories_inside_are_refused_where_that_is_the_policy(work):
    (work / "lib").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work / "lib", check=True)

    with pytest.raises(Invalid, match="lib"):
        opened(work, Policy(nested="refuse")).snapshot("baseline")


@pytest.mark.parametrize("home", ["work", "work/home", "."])
def test_a_home_directory_is_refused(tmp_path, work, home):
    tree = tmp_path if home == "." else work

    with pytest.raises(Invalid):
        open_trees(Place(tmp_path.parent / "shadow", tree, tmp_path / home, PROGRAMS), now=time.time)


def test_a_directory_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        opened(tmp_path / "nothing")


def test_a_file_that_is_too_large_or_not_a_file_is_left_out_and_named(work):
    trees = opened(work, Policy(file_bytes_max=1000))
    (work / "grows").write_bytes(b"1" * 1000)
    (work / "large").write_bytes(b"1" * 1001)
    os.mkfifo(work / "pipe")
    before = trees.snapshot("baseline")
    (work / "grows").write_bytes(b"1" * 1001)
    after = trees.snapshot("next")

    assert set(kinds(trees, None, before)) == {"grows"}
    assert before.left_out == (LeftOut("large", "larger than 1000 bytes"),)
    assert {each.path for each in after.left_out} == {"grows", "large"}
    assert kinds(trees, before, after) == {"grows": "deleted"}
    assert trees.find("next").left_out == after.left_out
    trees.restore(after)
    assert (work / "grows").stat().st_size == 1001


def test_all_snapshots_together_have_a_limit(work):
    trees = opened(work, Policy(total_bytes_max=20_000))
    (work / "a").write_bytes(random.Random(1).randbytes(9_000))
    trees.snapshot("baseline")
    (work / "b").write_bytes(random.Random(2).randbytes(30_000))

    with pytest.raises(Unavailable, match="20000"):
        trees.snapshot("next")

    (work / "b").unlink()
    trees.snapshot("later")


def test_ignored_files_are_kept_or_left_by_policy_and_one_asked_for_by_name_is_seen(work):
    (work / ".gitignore").write_text("*.log\n")
    (work / "a.log").write_text("a")
    (work / "node_modules/x").mkdir(parents=True)
    (work / "node_modules/x/index.js").write_text("1")
    keeps = opened(work, line="keeps")
    leaves = opened(work, Policy(ignored="leave"), line="leaves")

    kept, left = keeps.snapshot("kept"), leaves.snapshot("left")
    (work / "node_modules/x/index.js").write_text("2")
    seen = leaves.snapshot("seen", also=["node_modules/x/index.js", "a.log", "../out", "/etc/passwd", ".git/config"])

    assert set(kinds(keeps, None, kept)) == {".gitignore", "a.log"}
    assert kept.left_out == (LeftOut("node_modules", "not watched"),)
    assert set(kinds(leaves, None, left)) == {".gitignore"}
    assert kinds(leaves, left, seen) == {"a.log": "added", "node_modules/x/index.js": "added"}
    leaves.restore(left)
    assert (work / "node_modules/x/index.js").read_text() == "2", "what was not watched is not removed"


def test_a_shadow_inside_its_own_work_tree_leaves_itself_out(work):
    (work / "a").write_text("a")
    place = Place(work / "runs/[1] one/.shadow_git", work, Path("/home/nobody-here"), PROGRAMS)
    trees = open_trees(place, Policy(leave_out=("/out/",)), now=time.time)
    (work / "out").mkdir()
    (work / "out/b").write_text("b")

    assert set(kinds(trees, None, trees.snapshot("baseline"))) == {"a"}
    assert set(kinds(trees, None, trees.snapshot("again"))) == {"a"}


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


STEPS = ("update-index", "write-tree", "commit-tree", "update-ref")
CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,ftruncate"


def wrapped(folder, command, action):
    """A git that does something else for one of its commands."""
    folder.mkdir()
    real = shutil.which("git")
    script = (
        f'#!/bin/sh\nfor word in "$@"; do\n  if [ "$word" = {command} ]; then {action} ; fi\ndone\nexec {real} "$@"\n'
    )
    (folder / "git").write_text(script.replace("GIT", str(real)))
    (folder / "git").chmod(0o755)
    return f"{folder}:{PROGRAMS}"


def writing_points(trace):
    """The calls of a traced git that change something, as strace counts them."""
    seen, found = {}, []
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(r"(?:\d+\s+)?(\w+)\(", line)
        if call:
            seen[call[1]] = seen.get(call[1], 0) + 1
            if call[1] != "openat" or "O_CREAT" in line:
                found.append((call[1], seen[call[1]]))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("command", STEPS)
def test_git_killed_at_any_call_that_writes_leaves_the_shadow_sound(tmp_path, command):
    killed(tmp_path, command, every=1)


@pytest.mark.slow
@pytest.mark.parametrize("command", STEPS)
def test_git_killed_at_one_call_in_five_that_writes_leaves_the_shadow_sound(tmp_path, command):
    killed(tmp_path, command, every=5)


def killed(tmp_path, command, every):
    def prepared(name):
        work = tmp_path / name / "work"
        work.mkdir(parents=True)
        (work / "a").write_text("a")
        (work / "sub").mkdir()
        (work / "sub/b").write_text("b")
        trees = opened(work)
        trees.snapshot("baseline")
        (work / "a").write_text("changed")
        (work / "sub/c").write_text("c")
        return work

    work = prepared("traced")
    trace = tmp_path / "trace"
    programs = wrapped(tmp_path / "bin", command, f'exec strace -qq -o {trace} -e trace={CALLS} GIT "$@"')
    opened(work, programs=programs).snapshot("next")
    points = writing_points(trace)
    assert len(points) >= 3

    for call, number in points[::every]:
        name = f"{call}-{number}"
        work = prepared(name)
        kill = f'exec strace -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={number} GIT "$@"'
        with pytest.raises((GitFailed, Conflict)):
            opened(work, programs=wrapped(tmp_path / name / "bin", command, kill)).snapshot("next")
        trees = opened(work)
        fsck(work)
        assert kinds(trees, None, "baseline") == {"a": "added", "sub/b": "added"}
        if "next" not in trees.names():
            trees.snapshot("next")
        assert kinds(trees, "baseline", "next") == {"a": "modified", "sub/c": "added"}
        assert trees.diff("next", trees.snapshot("after")) == []


def test_an_orphaned_git_keeps_the_line_until_it_ends(work, tmp_path):
    (work / "a").write_text("a")
    opened(work).snapshot("baseline")
    (work / "a").write_text("b")
    programs = wrapped(tmp_path / "bin", "write-tree", f"touch {tmp_path}/started; sleep 1.5; touch {tmp_path}/ended")
    code = (
        "import sys, time; from pathlib import Path; from flightlog.store.trees import Place, open_trees\n"
        f"place = Place(Path({str(work.parent / '.shadow_git')!r}), Path({str(work)!r}), Path('/none'), {programs!r})\n"
        "open_trees(place, now=time.time).snapshot('killed')"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    until((tmp_path / "started").exists)
    child.kill()
    child.wait()

    snapshot = opened(work).snapshot("next")

    assert (tmp_path / "ended").exists()
    assert kinds(opened(work), "baseline", snapshot) == {"a": "modified"}


def test_a_step_costs_a_fixed_number_of_git_calls(work, tmp_path):
    for number in range(300):
        (work / f"f{number}").write_text(str(number))
    log = tmp_path / "log"
    trees = opened(work, programs=wrapped(tmp_path / "bin", "never", f"true; fi; if true; then echo $1 >> {log}"))
    (tmp_path / "bin/git").write_text(f'#!/bin/sh\necho "$1" >> {log}\nexec {shutil.which("git")} "$@"\n')
    trees.snapshot("baseline")

    def calls(act):
        log.write_text("")
        act()
        return sorted(log.read_text().split())

    (work / "f7").write_text("changed")
    changed = calls(lambda: trees.snapshot("one"))
    same = calls(lambda: trees.snapshot("two"))

    assert changed == sorted(["diff-files", "ls-files", "update-index", "write-tree", "commit-tree", "update-ref"])
    assert same == sorted(["diff-files", "ls-files", "update-ref"])
