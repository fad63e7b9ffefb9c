"""Syncing a repository: all its sessions, its commits, the older layouts; three times is once."""

import json
from pathlib import Path

import pytest

from flightlog.dataset.extract.sync import (
    is_inside,
    iter_own_sessions,
    may_prepare,
    sync_commits,
    sync_dataset,
)
from support.dataset_ground import Ground, turn

ONE, TWO = "13a84f73-1111-4111-8111-111111111111", "24b95084-1111-4111-8111-111111111111"
OLD_CHAT = {
    "id": "chat-20251216-150332-abc123", "timestamp": "2025-12-16T15:03:32.123456", "session_id": "old1",
    "query": "why?", "response": "because", "tools_used": ["Read"], "files_referenced": ["a.py"],
    "files_modified": ["b.py"], "tool_outputs": [],
}  # fmt: skip


def run(ground, **more):
    kit = ground.kit(**more)
    return sync_dataset(kit, iter_own_sessions(kit.archive, ground.place))


def read_tracked_files(ground):
    return {
        path.relative_to(ground.top): path.read_bytes()
        for path in ground.place.root.rglob("*")
        if path.is_file()
    }


def test_three_runs_are_byte_equal(ground):
    ground.write(ONE, *turn(1), *turn(2))
    ground.write(TWO, *turn(3))
    first = run(ground)
    after = read_tracked_files(ground)

    again = [run(ground).rows for _ in range(2)]

    assert (first.sessions, first.rows) == (2, 6)
    assert again == [0, 0]
    assert read_tracked_files(ground) == after


def test_sessions_of_other_directories_are_left_alone(ground, tmp_path):
    ground.write(ONE, *turn(1))
    other = Ground(tmp_path / "other")
    other.config = ground.config
    other.write(TWO, *turn(1))

    assert run(ground).sessions == 1
    assert not is_inside(str(tmp_path / "shopping"), ground.top)
    inner = ground.top / "vendor" / "inner"
    (inner / ".git").mkdir(parents=True)
    assert is_inside(str(ground.top / "vendor"), ground.top)
    assert not is_inside(str(inner / "deep"), ground.top)


def test_the_older_layout_is_taken_in_once_under_todays_names(ground):
    folder = ground.top / ".git-ml"
    files = {
        "chats/2025-12-16/chat-x.json": OLD_CHAT,
        "sessions/s.json": {"id": "2025-12-16_old1", "started_at": "2025-12-16T15:00:00", "chat_ids": ["a", "b"]},
        "actions/2025-12-16/a.json": {"id": "act-1", "timestamp": "2025-12-16T15:00:01", "session_id": "old1",
                                      "action_type": "read", "target": "a.py", "success": True},
        "chats/broken.json": "{",
    }  # fmt: skip
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body if isinstance(body, str) else json.dumps(body))

    row_counts = [run(ground).imported_rows for _ in range(2)]

    assert row_counts == [3, 0]
    (chat,), (session,), (action,) = (
        ground.rows("chat"),
        ground.rows("session"),
        ground.rows("action"),
    )
    assert (chat["id"], chat["input"], chat["output"]) == (OLD_CHAT["id"], "why?", "because")
    assert (chat["tools"], chat["files"], chat["timestamp"]) == (
        ["Read"],
        ["a.py", "b.py"],
        "2025-12-16T15:03:32Z",
    )
    assert (session["chat_count"], action["target"], action["success"]) == (2, "a.py", True)


def test_words_can_be_switched_on_later_and_reach_the_rows_that_are_there(ground):
    ground.write(ONE, *turn(1, "zebra"), *turn(2), *turn(3))
    run(ground, words=False)
    assert ground.rows("chat")[0]["input"] is None

    run(ground)

    assert ground.rows("chat")[0]["input"] == "zebra"
    assert len(ground.rows("chat")) == 3


def test_commit_rows_have_no_author_and_a_revert_is_its_own_update(ground):
    (ground.top / "b.txt").write_text("b\n")
    made = ground.commit("Add b")
    ground.git("revert", "--no-edit", "HEAD")
    ground.on()
    (ground.top / ".git-ml" / "tracked" / "chats.jsonl").write_text("")
    ground.git("add", ".git-ml")
    ground.git("commit", "-q", "-m", "only rows")

    run(ground)

    rows = {row["hash"]: row for row in ground.rows("commit")}
    assert len(rows) == 3
    assert "only rows" not in [row["message"] for row in rows.values()]
    assert rows[made]["reverted"] is True
    assert rows[made]["files_changed"] == ["b.txt"]
    assert rows[made]["seconds_since_last_commit"] >= 0
    assert b"x@example.com" not in b"".join(read_tracked_files(ground).values())


def test_new_commits_alone_are_looked_at(ground):
    ground.on()
    assert sync_commits(ground.kit()) == 1
    assert sync_commits(ground.kit()) == 0
    (ground.top / "next.txt").write_text("next\n")
    ground.commit("next")
    assert sync_commits(ground.kit()) == 1


def test_on_a_branch_without_a_dataset_only_shards_are_written(ground):
    ground.git("branch", "old")
    ground.on()
    ground.commit("dataset")
    ground.git("checkout", "-q", "old")
    ground.write(ONE, *turn(1))

    assert not may_prepare(ground.place)
    run(ground)
    seen = ground.git("status", "--porcelain", "--untracked-files=all").split()[1::2]
    assert seen
    assert {path.rpartition("/")[0] for path in seen} == {".git-ml/tracked/pending"}
    ground.git("checkout", "-q", "main")

    assert len(ground.rows("chat")) == 1


def test_cache_enabled_later_holds_every_row_and_overwrites_no_other_file(ground):
    theirs = ground.place.root / "chats" / "2025-12-16" / "chat-20251216-150332-abc123.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(json.dumps(OLD_CHAT))
    ground.write(ONE, *turn(1), *turn(2, "x", "y", ("Read", {"file_path": "a"}, "ok")))
    run(ground)
    assert not (ground.place.root / "sessions").exists()

    run(ground, local_cache=True)

    made = {
        name: len(list((ground.place.root / name).rglob("*.json")))
        for name in ("chats", "sessions", "actions")
    }
    assert made == {"chats": 3, "sessions": 1, "actions": 1}
    assert json.loads(theirs.read_text()) == OLD_CHAT
    assert (
        ground.git(
            "status", "--porcelain", "--", ".git-ml/chats", ".git-ml/sessions", ".git-ml/actions"
        )
        == ""
    )
    assert run(ground, local_cache=True).rows == 0


@pytest.mark.parametrize("name", ["chats", "sessions", "actions"])
def test_files_we_wrote_ourselves_are_not_read_back(ground, name):
    path = ground.top / ".git-ml" / name / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**OLD_CHAT, "made_by": "flightlog"}))

    assert run(ground).imported_rows == 0
    assert Path(path).exists()
