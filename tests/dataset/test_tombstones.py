"""What is forgotten is in no file of the work tree, and no merge, sync, pull or compaction brings it back."""

import json
import time

import pytest

from dataset.test_cli import run
from flightlog.dataset.check import check_dataset
from flightlog.dataset.compact import compact_and_commit, compact_dataset
from flightlog.dataset.exports import export_dataset
from flightlog.dataset.extract.commits import judgment_rows
from flightlog.dataset.extract.extract import capture_session
from flightlog.dataset.extract.sync import iter_own_sessions, sync_dataset
from flightlog.dataset.layout import write_shard
from flightlog.dataset.remote import pull_rows, push_shards
from flightlog.dataset.retention import (
    apply_tombstones,
    tombstones_for_rows,
    tombstones_for_text,
    tombstones_for_time,
    tombstones_for_words,
)
from flightlog.dataset.rows import to_dict
from flightlog.dataset.tombstones import TombstoneRules, make_tombstone
from flightlog.model.errors import Invalid, NotFound
from flightlog.store import files
from support.dataset_ground import turn

NOW = 1_793_700_000_000
SESSION = "eeee3183-1111-4111-8111-111111111111"
OTHER = "13a84f73-1111-4111-8111-111111111111"
SECRET = "my divorce lawyer is Ottilie Quenneville"
GONE_ID = "2026-11-02_eeee3183"


def write_history(ground, *, compacted=False):
    """Two sessions with words, committed: one of three turns with tools and a subagent, one that is to stay."""
    tools = (("Bash", {"command": f"echo {SECRET}"}, SECRET), ("Read", {"file_path": "a.py"}, "z"))
    ground.write(
        SESSION,
        *turn(1, SECRET, "so", *tools),
        *turn(2, "and?", SECRET, *tools),
        *turn(3, "bye for now"),
    )
    ground.write(
        SESSION, *turn(7, SECRET, "So.", ("Bash", {"command": SECRET}, "x")), subagent="abc"
    )
    ground.write(
        OTHER, *turn(1, "keep this sentence", "kept", ("Bash", {"command": "make all of it"}, "x"))
    )
    sync(ground)
    if compacted:
        compact_dataset(ground.place, ground.kit().redactor, default="main")
    ground.commit("rows")
    return ground


def sync(ground, *, words=True):
    kit = ground.kit(words=words, local_cache=True)
    return sync_dataset(kit, iter_own_sessions(kit.archive, ground.place), "main")


def forget(ground, *names, text="", times=(), dry_run=False):
    book = ground.book
    marks = tombstones_for_rows(book, names, NOW)
    marks += tombstones_for_text(book, text, NOW) if text else []
    marks += tombstones_for_time(book, *times, NOW) if times else []
    return apply_tombstones(ground.place, ground.kit().redactor, marks, "main", dry_run=dry_run)


def words_in(folder, text=SECRET):
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and text in path.read_text(errors="replace")
    ]


def kinds(ground):
    return {kind: len(ground.rows(kind)) for kind in ("session", "chat", "action", "orchestration")}


def test_forgetting_a_session_removes_its_rows_and_their_copies(ground):
    write_history(ground, compacted=True)
    export_dataset(ground.book, "sft", ground.place.root / "rows.jsonl")
    files.set_aside(ground.place.tracked_dir / "chats.jsonl", ground.place.root / "damaged")
    assert len(words_in(ground.place.root)) > 5

    shown = forget(ground, GONE_ID, dry_run=True)
    before = kinds(ground)
    done = forget(ground, GONE_ID)

    assert (shown.is_done, shown.deleted_rows, before["chat"]) == (False, done.deleted_rows, 4)
    assert done.deleted_by_kind == {"session": 1, "chat": 3, "action": 5, "orchestration": 1}
    assert kinds(ground) == {"session": 1, "chat": 1, "action": 1, "orchestration": 0}
    assert words_in(ground.place.root) == words_in(ground.place.state_dir) == []
    assert not (ground.place.root / "rows.jsonl").exists()
    assert words_in(ground.place.root / "chats", "keep this sentence")
    assert check_dataset(ground.place) == []


@pytest.mark.parametrize("name", ["2026-11-02_e", "eeee3183", "eeee", SESSION])
def test_a_session_is_named_by_any_unique_prefix(ground, name):
    write_history(ground)

    (row,) = tombstones_for_rows(ground.book, [name], NOW)

    assert (row["session"], row["is_whole_session"], len(row["chats"])) == (SESSION, True, 3)


def test_an_ambiguous_or_unknown_name_is_refused(ground):
    write_history(ground)

    with pytest.raises(NotFound):
        tombstones_for_rows(ground.book, ["zzz"], NOW)
    for name in ("chat-", "2026-"):
        with pytest.raises(Invalid):
            tombstones_for_rows(ground.book, [name], NOW)


def test_a_forgotten_session_does_not_come_back(ground):
    write_history(ground)
    branch = ground.git("rev-parse", "HEAD").strip()
    forget(ground, "eeee")

    ground.write(SESSION, *turn(1, SECRET), *turn(2, SECRET), *turn(3, SECRET), *turn(4, SECRET))
    assert capture_session(ground.kit(local_cache=True), ground.recording(SESSION)).rows == 0
    sync(ground)
    assert words_in(ground.place.root) == words_in(ground.place.state_dir) == []
    ground.commit("forget")
    ground.git("checkout", "-q", "-b", "colleague", branch)
    capture_session(ground.kit(), ground.recording(SESSION))
    ground.commit("a later turn of the forgotten session")
    assert words_in(ground.place.root)
    ground.git("checkout", "-q", "main")
    ground.git("merge", "-q", "--no-edit", "colleague")

    assert kinds(ground)["chat"] == 1
    compact_and_commit(ground.place, ground.kit().redactor, default="main")
    assert words_in(ground.place.root) == []
    assert kinds(ground) == {"session": 1, "chat": 1, "action": 1, "orchestration": 0}


def test_forgetting_a_chat_removes_its_actions_and_the_summary(ground):
    write_history(ground)
    (chat,) = [row["id"] for row in ground.rows("chat") if row["input"] == SECRET]
    assert SECRET in [row["summary"] for row in ground.rows("session")]
    (key,) = [key for key, row in ground.book.rows.items() if row.get("id") == chat]
    write_shard(
        ground.place,
        "judged",
        [to_dict(row) for row in judgment_rows(key, {"task": SECRET}, 5)],
        1,
        ground.kit().redactor,
    )

    done = forget(ground, chat)

    assert done.deleted_by_kind == {"chat": 1, "action": 2, "update": 1}
    assert SECRET not in [row["summary"] for row in ground.rows("session")]
    assert len(ground.rows("session")) == 2
    assert check_dataset(ground.place) == []


def test_forgetting_a_text_removes_the_rows_that_contain_it(ground):
    write_history(ground)

    done = forget(ground, text="DIVORCE  lawyer")

    assert (done.deleted_by_kind["chat"], kinds(ground)["session"]) == (2, 2)
    assert words_in(ground.place.root) == []
    assert check_dataset(ground.place) == []


def test_forgetting_by_time_also_removes_rows_that_arrive_later(ground):
    write_history(ground)
    times = sorted(
        row["timestamp"] for row in ground.rows("chat") if row["session_id"] == "eeee3183"
    )

    done = forget(ground, times=(times[1], times[2]))
    late = {
        "kind": "chat",
        "id": "chat-late",
        "uuid": "u",
        "timestamp": times[1],
        "session_id": "x",
        "rev": 1,
    }
    write_shard(ground.place, "late", [late], 3, ground.kit().redactor)

    assert done.deleted_by_kind == {"chat": 1, "action": 2}
    left = [
        row["timestamp"] for row in ground.rows("chat") if row["session_id"] in ("eeee3183", "x")
    ]
    assert left == [times[0], times[2]]


def test_history_is_named_with_the_command_that_removes_it(ground):
    write_history(ground)
    done = forget(ground, "eeee")
    compact_and_commit(ground.place, ground.kit().redactor, default="main")

    blobs = (ground.top / ".git/flightlog/dataset/forgotten-blobs").read_text().split()

    assert done.versions_in_history == len(blobs) > 0
    assert done.commands[1] == (
        "git filter-repo --force --strip-blobs-with-ids .git/flightlog/dataset/forgotten-blobs"
    )
    head = {line.split()[2] for line in ground.git("ls-tree", "-r", "HEAD").splitlines()}
    assert head.isdisjoint(blobs), "the last commit holds none of them"
    pairs = [
        line.split(" ", 1) for line in ground.git("rev-list", "--objects", "--all").splitlines()
    ]
    rows = [pair[0] for pair in pairs if pair[-1].endswith(".jsonl")]
    saying = [blob for blob in rows if SECRET in ground.git("cat-file", "blob", blob)]
    assert saying
    assert set(saying) <= set(blobs)


def test_on_a_branch_shards_are_rewritten_and_base_files_named(ground):
    write_history(ground, compacted=True)
    ground.git("checkout", "-q", "-b", "work")
    more = "5eee3183-1111-4111-8111-111111111111"
    ground.write(more, *turn(1, "a zebra runs over the hill"), *turn(2, "another sentence of it"))
    capture_session(ground.kit(), ground.recording(more))
    ground.commit("work")

    done = forget(ground, "5eee", "eeee")

    assert done.deleted_by_kind["chat"] == 5
    assert words_in(ground.place.pending_dir, "zebra") == []
    assert ".git-ml/tracked/chats.jsonl" in done.remaining_files
    assert kinds(ground)["chat"] == 1
    ground.commit("forget")
    ground.git("checkout", "-q", "main")
    ground.git("merge", "-q", "--no-edit", "work")
    compact_dataset(ground.place, ground.kit().redactor, default="main")
    assert words_in(ground.place.root) == []


def test_words_are_removed_for_good_after_consent_is_withdrawn(ground):
    write_history(ground)
    branch = ground.git("rev-parse", "HEAD").strip()
    before = kinds(ground)

    now = int(time.time() * 1000) + 5000  # after the commit that was just made
    done = apply_tombstones(
        ground.place, ground.kit().redactor, tombstones_for_words(now), "main", dry_run=False
    )

    assert (done.deleted_rows, len(done.stripped_rows) > 8, kinds(ground)) == ((), True, before)
    assert {row["input"] for row in ground.rows("chat")} == {None}
    assert {
        row["words"] for kind in ("chat", "session", "commit") for row in ground.rows(kind)
    } == {"withheld"}
    assert {row["target"] for row in ground.rows("action")} == {None, "a.py"}
    assert all(row["input_chars"] for row in ground.rows("chat"))
    assert words_in(ground.place.root) == words_in(ground.place.root, "keep this sentence") == []
    assert check_dataset(ground.place) == []
    ground.commit("strip")
    ground.git("checkout", "-q", "-b", "colleague", branch)
    more = "5eee3183-1111-4111-8111-111111111111"
    ground.write(more, *turn(1, "a zebra runs over the hill"))
    capture_session(ground.kit(), ground.recording(more))
    ground.commit("words of a time before")
    ground.git("checkout", "-q", "main")
    ground.git("merge", "-q", "--no-edit", "colleague")
    assert {row["input"] for row in ground.rows("chat")} == {None}
    compact_dataset(ground.place, ground.kit().redactor, default="main")
    assert words_in(ground.place.root) == words_in(ground.place.root, "zebra") == []
    sync(ground)
    assert words_in(ground.place.root) == []


def test_a_pull_brings_no_forgotten_row_back(ground):
    write_history(ground)
    bare = ground.root / "server.git"
    ground.git("init", "-q", "--bare", str(bare))
    push_shards(ground.place, str(bare), NOW)
    done = forget(ground, "eeee")
    assert "--delete refs/flightlog/dataset/cafe0123" in done.commands[-1]

    pull_rows(ground.place, str(bare), ground.kit().redactor)
    assert kinds(ground)["chat"] == 1
    apply_tombstones(
        ground.place, ground.kit().redactor, tombstones_for_words(NOW), "main", dry_run=False
    )
    (ground.place.tracked_dir / "chats.jsonl").unlink()
    pull_rows(ground.place, str(bare), ground.kit().redactor)

    assert kinds(ground)["chat"] == 1
    assert words_in(ground.place.root) == words_in(ground.place.root, "keep this sentence") == []


def test_commands_confirm_show_act_and_name_the_next_step(ground):
    write_history(ground)

    asked = run(ground, "dataset", "forget", "eeee")
    shown = run(
        ground, "dataset", "forget", "--text", "divorce", "--since", "2026-01-01", "--dry-run"
    )
    nothing = run(ground, "dataset", "forget")
    assert kinds(ground)["chat"] == 4
    done = run(ground, "dataset", "forget", "eeee", "--yes")
    silent = run(ground, "dataset", "strip-words", "--yes", "--json")
    revoked = run(ground, "trust", "--revoke")

    assert (asked.code, shown.code, nothing.code, done.code, silent.code) == (1, 0, 2, 0, 0)
    assert "3 chats" in asked.out
    assert "add --yes" in asked.err
    assert "  git filter-repo --force" in done.out
    assert json.loads(silent.out)["stripped_rows"]
    assert {row["input"] for row in ground.rows("chat")} == {None}
    assert "flightlog dataset strip-words --yes" in revoked.err
    assert run(ground, "dataset", "check").code == 0


def test_a_rule_of_the_wrong_type_is_left_out():
    rules = TombstoneRules()
    for row in (
        {"chats": 3},
        {"session": ["x"], "is_whole_session": "yes"},
        {"subagents": [1, None]},
        {"before": {}},
    ):
        rules.add_tombstone({"kind": "tombstone", **row})

    assert not rules.covers_row({"kind": "chat", "id": ["a"], "session_id": {}, "timestamp": 3})
    assert rules.strip_row({"kind": "commit", "related_chats": 7}) == {
        "kind": "commit",
        "related_chats": 7,
    }


def test_the_same_rule_has_the_same_id():
    assert (
        make_tombstone("x", 1, session="a", is_whole_session=True)["id"]
        == make_tombstone("x", 2, session="a", is_whole_session=True)["id"]
    )
