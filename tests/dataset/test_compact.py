"""Compaction: each row once, sorted, the same whatever the order; killed anywhere, nothing is lost."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.dataset.compact import compact_dataset, is_generation, merge_base_files
from flightlog.dataset.layout import DatasetDirs, prepare_dataset, write_shard
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.rows import key_of
from flightlog.dataset.tombstones import make_tombstone
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.git.repository import Repository
from support.dataset_ground import Ground
from support.strace_points import kill_everywhere


def chat(name, rev=1, **more):
    row = {"kind": "chat", "id": f"chat-{name}", "timestamp": f"2026-11-0{1 + int(name, 36) % 9}T12:00:00Z",
           "session_id": "s", "input": f"ask {name}", "output": "x" * rev, "uuid": name, "rev": rev}  # fmt: skip
    return {**row, **more}


def put(ground, *rows, number=0):
    return write_shard(ground.place, "s", list(rows), number, ground.kit().redactor)


def base(ground):
    return {path.name: path.read_bytes() for path in ground.place.tracked_dir.glob("*.jsonl")}


def compact(ground, **more):
    return compact_dataset(ground.place, ground.kit().redactor, default="main", **more)


def test_shards_go_into_the_base_files_and_readers_see_the_same(ground):
    ground.on()
    put(ground, chat("a"), {"kind": "session", "id": "s", "session": "s", "rev": 1})
    put(ground, chat("a", 2), chat("b"), number=1)
    before = dict(ground.book.rows)

    done = compact(ground)

    assert ground.shards == []
    assert (done.target, done.shards, done.rows, done.superseded_rows) == (
        "base",
        2,
        {"chat": 2, "session": 1},
        1,
    )
    assert ground.book.rows == before
    assert [row["output"] for row in ground.rows("chat")] == ["xx", "x"]
    assert is_generation(ground.place)
    assert done.bytes_after == sum(
        len(body) for name, body in base(ground).items() if name != "generation.jsonl"
    )


def test_a_dry_run_says_the_same_and_does_nothing(ground):
    ground.on()
    put(ground, chat("a"), chat("b"))
    before = base(ground), ground.shards

    dry = compact(ground, dry_run=True)

    assert (base(ground), ground.shards) == before
    real = compact(ground)
    assert (dry.rows, dry.bytes_after, dry.shards) == (real.rows, real.bytes_after, real.shards)


names = st.sampled_from("abcdefgh")
versions = st.lists(st.tuples(names, st.integers(1, 4)), min_size=1, max_size=12)


@settings(max_examples=12)
@given(written=versions, gone=st.sets(names, max_size=3), seed=st.integers(0, 9))
def test_the_base_files_depend_on_the_rows_alone(tmp_path_factory, written, gone, seed):
    one, other = (Ground(tmp_path_factory.mktemp("ground")).on() for _ in range(2))
    rows = [chat(name, rev) for name, rev in written]
    rows += [make_tombstone("asked for", 1, row_id=key_of(chat(name))) for name in gone]
    put(one, *rows)
    compact(one)
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    for number, row in enumerate(shuffled):
        put(other, row, number=number)
        if number % 3 == seed % 3:
            compact(other)
    compact(other)

    assert base(one) == base(other)
    assert {row["id"] for row in one.rows("chat")} == {f"chat-{name}" for name, _ in written} - {
        f"chat-{name}" for name in gone
    }


def test_on_another_branch_shards_become_one_shard_and_the_base_files_stay(ground):
    ground.on()
    ground.commit("dataset")
    ground.git("checkout", "-q", "-b", "work")
    for number, name in enumerate("abcde"):
        put(ground, chat(name), number=number)
    before, rows = base(ground), ground.book.rows

    done = [compact(ground) for _ in range(2)]

    assert (done[0].target, done[0].shards, done[1].shards) == ("shard", 5, 0)
    assert base(ground) == before
    assert len(ground.shards) == 1
    assert ground.book.rows == rows


def test_shards_of_the_default_branch_are_left_to_it(ground):
    ground.on()
    for number, name in enumerate("abcde"):
        put(ground, chat(name), number=number)
    ground.commit("rows")
    ground.git("checkout", "-q", "-b", "work")

    assert compact(ground).shards == 0


def test_row_lost_by_a_revert_returns_but_a_forgotten_row_does_not(ground):
    ground.on()
    ground.commit("dataset")
    put(ground, chat("a"))
    ground.commit("rows")
    put(ground, chat("b"), number=1)
    ground.commit("more rows")
    ground.git("revert", "--no-edit", "HEAD")
    ground.git("revert", "--no-edit", "HEAD~2")
    put(ground, make_tombstone("asked for", 1, row_id=key_of(chat("b"))), number=2)
    assert ground.rows("chat") == []

    done = compact(ground)

    assert done.restored_rows == 2
    assert [row["id"] for row in ground.rows("chat")] == ["chat-a"]


def test_unreadable_data_is_copied_aside_before_a_file_is_replaced(ground):
    ground.on()
    put(ground, chat("a"))
    torn = b'<<<<<<< HEAD\n{"kind":"chat","id":"chat-q","uuid":"q","rev":1}\n=======\nnot json {\n'
    (ground.place.tracked_dir / "chats.jsonl").write_bytes(torn)

    done = compact(ground)

    assert {row["id"] for row in ground.rows("chat")} == {"chat-a", "chat-q"}
    (aside,) = done.quarantined_files
    assert Path(aside).read_bytes() == torn
    assert ground.book.damage == []


def test_rows_of_the_tool_the_document_describes_are_taken_as_they_are(ground):
    ground.on()
    old = b'{"hash": "abc123", "message": "Fix", "insertions": 3}\n' * 3
    (ground.place.tracked_dir / "commits.jsonl").write_bytes(old)

    compact(ground)

    (row,) = ground.rows("commit")
    assert (row["kind"], row["hash"], row["insertions"]) == ("commit", "abc123", 3)


def test_the_merge_driver_keeps_every_row_once():
    ours = b'{"id":"b","rev":1}\n{"id":"a","rev":2}\n<<<<<<< x\n'
    theirs = b'{"id":"a","rev":1}\n{"id":"c","rev":1}\n'

    assert merge_base_files("chats.jsonl", [ours, theirs]) == merge_base_files(
        "chats.jsonl", [theirs, ours]
    )
    assert (
        merge_base_files("chats.jsonl", [ours, theirs])
        == b'{"id":"a","rev":2}\n{"id":"b","rev":1}\n{"id":"c","rev":1}\n'
    )


SCENARIO = """
sys.path[:0] = ["{source}"]
from flightlog.dataset.layout import DatasetDirs
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.git.repository import Repository
from flightlog.dataset.reader import base_files, read_files, shard_files
from flightlog.dataset.compact import base_texts, fold_shards
RECORDS = JsonRedactor(Redactor(b"k" * 32))
RECORDS.redact_to_clean([b'{{"kind":"chat"}}'])
place = DatasetDirs(Repository(root, root / ".git"))
begin()
shards = shard_files(place.tracked_dir)
book = read_files([*base_files(place.tracked_dir), *shards])
texts = {{name: RECORDS.redact_to_clean(each) for name, each in base_texts(book).items()}}
fold_shards(place, book, texts, RECORDS, shards)
end()
"""
RECORDS = JsonRedactor(Redactor(b"k" * 32))
ROWS = [chat(name) for name in "abc"]


def bare(root):
    return DatasetDirs(Repository(root, root / ".git"))


@pytest.mark.slow
def test_killed_at_any_point_a_compaction_loses_no_row(tmp_path):
    def begin(root):
        prepare_dataset(bare(root), RECORDS)
        write_shard(bare(root), "s", ROWS[:2], 0, RECORDS)
        write_shard(bare(root), "s", ROWS[2:], 1, RECORDS)

    def check(root, _):
        seen = read_dataset(bare(root).tracked_dir)
        assert list(seen.rows_of_kind("chat")) == ROWS
        assert seen.damage == []

    scenario = SCENARIO.format(source=Path(__file__).parents[2] / "src")
    named = kill_everywhere(scenario, tmp_path, begin, check)

    assert {"unlink", "rename", "fsync"} <= {call for call, _ in named}
