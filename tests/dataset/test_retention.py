"""Rows that are too old go by tombstones, as planned, and no merge brings them back."""

from flightlog.dataset.compact import compact_dataset
from flightlog.dataset.layout import write_shard
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.retention import rows_due
from flightlog.dataset.tombstones import make_tombstone

DAY_MS = 86_400_000
NOW = 1_793_700_000_000


def chat(name, at):
    return {"kind": "chat", "id": f"chat-{name}", "timestamp": at, "uuid": name, "rev": 1}


def test_rows_older_than_730_days_are_removed_for_good(ground):
    ground.on()
    rows = [
        chat("old", "2023-01-01T00:00:00Z"),
        chat("new", "2026-10-01T00:00:00Z"),
        chat("undated", ""),
    ]
    shard = write_shard(ground.place, "s", rows, 0, ground.kit().redactor)
    body = shard.read_bytes()

    moves = rows_due(ground.book, 730, NOW)
    marks = [make_tombstone("old", NOW, row_id=move.item.name) for move in moves]
    write_shard(ground.place, "gone", marks, 1, ground.kit().redactor)

    assert [move.item.name for move in moves] == ["chat:chat-old:old"]
    assert {row["uuid"] for row in ground.rows("chat")} == {"new", "undated"}
    compact_dataset(ground.place, ground.kit().redactor, default="main")
    assert b"chat-old" not in (ground.place.tracked_dir / "chats.jsonl").read_bytes()
    shard.write_bytes(body)  # a merge brings the shard back
    assert {row["uuid"] for row in read_dataset(ground.place.tracked_dir).rows_of_kind("chat")} == {
        "new",
        "undated",
    }
    assert rows_due(ground.book, 730, NOW) == ()
