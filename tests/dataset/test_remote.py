"""Rows on refs of their own: many writers at once, nothing of the user's touched, all of it gathered."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flightlog.dataset.layout import DatasetDirs, write_shard
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.remote import measure_safety, pull_rows, push_shards
from flightlog.dataset.state import writer_name
from flightlog.model.errors import Unavailable
from flightlog.store.git.repository import open_repository
from support.cli_runs import environment
from support.dataset_ground import Ground

FLIGHTLOG = Path(sys.executable).with_name("flightlog")


def chat(name):
    return {
        "kind": "chat",
        "id": f"chat-{name}",
        "timestamp": "2026-11-02T12:00:00Z",
        "uuid": name,
        "rev": 5,
    }


def put(ground, name, rev=5):
    session = {"kind": "session", "id": f"2026-11-02_{name}", "session": name, "rev": rev}
    write_shard(ground.place, name, [chat(name), session], 0, ground.kit().redactor)


@pytest.fixture
def origin(ground):
    ground.on()
    ground.commit("dataset")
    bare = ground.root / "origin.git"
    ground.git("clone", "-q", "--bare", str(ground.top), str(bare))
    ground.git("remote", "add", "origin", str(bare))
    ground.git("fetch", "-q", "origin")
    ground.git("branch", "-q", "--set-upstream-to=origin/main")
    return bare


def clone_of(origin, root, name):
    made = Ground.__new__(Ground)
    made.root, made.top, made.config = root, root / name, root / "claude"
    subprocess.run(
        ["git", "clone", "-q", str(origin), str(made.top)], check=True, env={**environment(root)}
    )
    made.place = DatasetDirs(open_repository(made.top))
    writer_name(made.place.state_dir, f"writer-{name}")
    return made


def test_a_push_touches_nothing_of_the_users_and_another_clone_gathers_it(ground, origin, tmp_path):
    (ground.top / "staged.txt").write_text("mine\n")
    ground.git("add", "staged.txt")
    put(ground, "a")
    before = (
        ground.git("status", "--porcelain"),
        ground.git("rev-parse", "HEAD"),
        ground.git("branch", "-a"),
    )

    done = push_shards(ground.place, "origin", 1000)

    assert (
        ground.git("status", "--porcelain"),
        ground.git("rev-parse", "HEAD"),
        ground.git("branch", "-a"),
    ) == before
    assert done.ref == "refs/flightlog/dataset/cafe0123"
    assert not list(ground.place.state_dir.glob("index-*"))
    other = clone_of(origin, tmp_path, "other")
    assert pull_rows(other.place, "origin", other.kit().redactor).rows == 2
    assert other.rows("chat") == [chat("a")]
    assert pull_rows(other.place, "origin", other.kit().redactor).rows == 0


def test_pulled_rows_do_not_block_a_merge_that_brings_them_too(ground, origin, tmp_path):
    put(ground, "a")
    push_shards(ground.place, "origin", 1000)
    one, two = (clone_of(origin, tmp_path, name) for name in ("one", "two"))
    for clone in (one, two):
        pull_rows(clone.place, "origin", clone.kit().redactor)
    one.commit("gathered")
    one.git("push", "-q", "origin", "main")

    two.git("pull", "-q", "--no-rebase", "origin", "main")

    assert two.rows("chat") == [chat("a")]


def test_pushing_again_with_nothing_new_makes_no_commit(ground, origin):
    put(ground, "a")

    assert (
        push_shards(ground.place, "origin", 1).commit
        == push_shards(ground.place, "origin", 2).commit
    )


@pytest.mark.slow
def test_eight_pushers_at_once_all_land_from_one_clone_and_from_eight(ground, origin, tmp_path):
    clones = [clone_of(origin, tmp_path, f"clone-{number}") for number in range(4)]
    writers = [ground] * 4 + clones
    for number, writer in enumerate(writers):
        put(writer, f"{number:04}")

    def run(writer):
        words = [FLIGHTLOG, "dataset", "push", "--json"]
        return subprocess.run(
            words, cwd=writer.top, env=environment(tmp_path), capture_output=True, check=False
        )

    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(run, writers))

    assert [process.returncode for process in ran] == [0] * 8, [process.stderr for process in ran]
    last = clone_of(origin, tmp_path, "last")
    pull_rows(last.place, "origin", last.kit().redactor)
    assert {row["uuid"] for row in last.rows("chat")} == {f"{number:04}" for number in range(8)}
    assert ground.git("fsck", "--no-dangling") == ""


def test_safety_says_what_would_be_lost(ground, origin):
    put(ground, "a")
    first = measure_safety(ground.place)
    push_shards(ground.place, "origin", 1000)
    second = measure_safety(ground.place)
    put(ground, "b")
    third = measure_safety(ground.place)
    ground.commit("rows")
    ground.git("push", "-q", "origin", "main")
    ground.git("fetch", "-q")

    assert (first.last_row_ms, first.last_pushed_ms, first.unpushed_shards) == (5, 0, 1)
    assert (second.last_pushed_ms, second.unpushed_shards) == (5, 0)
    assert third.unpushed_shards == 1
    assert measure_safety(ground.place).unpushed_shards == 0


def test_unsent_rows_are_not_safe_until_they_are_pushed(ground, origin):
    put(ground, "a")
    push_shards(ground.place, "origin", 1000)
    where = ground.git("remote", "get-url", "origin").strip()
    ground.git("remote", "set-url", "origin", "/nowhere/at/all")
    put(ground, "b", rev=9)
    with pytest.raises(Unavailable, match="does not appear to be a git repository"):
        push_shards(ground.place, "origin", 2000)
    away = measure_safety(ground.place)
    ground.git("remote", "set-url", "origin", where)

    push_shards(ground.place, "origin", 3000)

    assert (away.last_pushed_ms, away.unpushed_shards) == (5, 1)
    back = measure_safety(ground.place)
    assert (back.last_pushed_ms, back.last_row_ms, back.unpushed_shards) == (9, 9, 0)


def test_unreachable_remote_is_reported_and_loses_no_row(ground):
    ground.on()
    put(ground, "a")
    ground.git("remote", "add", "origin", "/nowhere/at/all")

    with pytest.raises(Unavailable, match="git push failed"):
        push_shards(ground.place, "origin", 1)

    assert len(read_dataset(ground.place.tracked_dir).rows) == 2
