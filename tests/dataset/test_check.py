"""Looking a dataset over: each thing that is wrong is named, and mending takes nothing away."""

import json

from flightlog.dataset.check import check_dataset, fix_dataset
from flightlog.dataset.extract.extract import capture_session
from flightlog.dataset.layout import write_shard
from support.dataset_ground import turn

SESSION = "13a84f73-1111-4111-8111-111111111111"
TOKEN = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"


def whats(ground):
    return {(one.kind, one.is_note) for one in check_dataset(ground.place)}


def start_dataset(ground):
    ground.on().write(SESSION, *turn(1, "x", "y", ("Read", {"file_path": "a.py"}, "z")))
    capture_session(ground.kit(), ground.recording(SESSION))
    return ground


def test_rows_that_capture_writes_have_no_findings(ground):
    assert check_dataset(start_dataset(ground).place) == []


def test_an_ignore_rule_that_hides_the_rows_is_found(ground):
    start_dataset(ground)
    (ground.top / ".gitignore").write_text(".git-ml/\n")

    assert ("ignored", False) in whats(ground)


def test_damage_is_copied_aside_and_the_sound_rows_stay(ground):
    start_dataset(ground)
    shard = ground.shards[0]
    rows = ground.book.rows
    shard.write_bytes(shard.read_bytes() + b'{"kind":"chat","id"\n')
    broken = shard.read_bytes()

    assert {("damage", False), ("changed", False)} <= whats(ground)
    fix_dataset(ground.place, ground.kit().redactor)

    assert check_dataset(ground.place) == []
    assert ground.book.rows == rows
    (aside,) = (ground.place.root / "damaged").iterdir()
    assert aside.read_bytes() == broken
    assert fix_dataset(ground.place, ground.kit().redactor) == []


def test_a_secret_in_a_row_is_found_masked_and_taken_out(ground):
    start_dataset(ground)
    path = ground.place.pending_dir / "2026-11-02-other-0123456789ab.jsonl"
    path.write_text(
        '{"kind":"chat","id":"chat-z","uuid":"z","input":"use ' + TOKEN + '","rev":1}\n'
    )

    (secret,) = [one for one in check_dataset(ground.place) if one.kind == "secret"]
    assert TOKEN not in secret.message
    fix_dataset(ground.place, ground.kit().redactor)

    assert not [one for one in check_dataset(ground.place) if one.kind == "secret"]
    assert not any(TOKEN in shard.read_text() for shard in ground.shards)
    assert "chat-z" in {row["id"] for row in ground.rows("chat")}


def test_check_covers_links_ids_schema_and_sizes(ground):
    ground.on()
    rows = [
        {
            "kind": "action",
            "id": "action-1",
            "timestamp": "t",
            "session_id": "s",
            "chat_id": "chat-nowhere",
            "rev": 1,
        },
        {
            "kind": "update",
            "id": "u",
            "row_id": "chat:gone:",
            "field": "task",
            "value": 1,
            "rev": 1,
        },
        {"kind": "chat", "id": "chat-1", "uuid": "a", "rev": 1},
        {"kind": "chat", "id": "chat-1", "uuid": "b", "rev": 1},
        {"kind": "unheard of", "id": "x"},
    ]
    write_shard(ground.place, "s", rows, 0, ground.kit().redactor)

    assert whats(ground) == {("link", True), ("id", False), ("schema", True)}


def test_base_files_that_a_merge_changed_are_worth_a_note(ground):
    start_dataset(ground)
    (ground.place.tracked_dir / "chats.jsonl").write_text(
        '{"kind":"chat","id":"c","uuid":"u","rev":1}\n'
    )

    assert ("generation", True) in whats(ground)


def test_a_chat_whose_session_is_missing_is_worth_a_note(ground):
    start_dataset(ground)
    row = {"kind": "chat", "id": "chat-2", "uuid": "b", "session_id": "0badf00d", "rev": 1,
           "timestamp": "t", "input": "x", "output": "y", "tools": [], "files": []}  # fmt: skip
    write_shard(ground.place, "s", [row], 0, ground.kit().redactor)

    (note,) = check_dataset(ground.place)

    assert (note.kind, note.is_note) == ("link", True)
    assert note.message == "1 chat of missing sessions, for example 0badf00d"


def test_rows_of_the_source_document_are_valid(ground):
    ground.on()
    chat = {"id": "chat-20251216-150332-abc123", "timestamp": "2025-12-16T15:03:32Z",
            "session_id": "13a84f73", "input": "...", "output": "...", "tools": ["Read", "Edit"],
            "files": ["cortical/processor.py"]}  # fmt: skip
    session = {"id": "2025-12-16_13a84f73", "started_at": "...", "ended_at": "...", "summary": "...",
               "chat_count": 5, "commits": ["abc123"]}  # fmt: skip
    for name, row in (("chats", chat), ("sessions", session)):
        (ground.place.tracked_dir / f"{name}.jsonl").write_text(json.dumps(row) + "\n")

    problems = [one for one in check_dataset(ground.place) if one.kind != "generation"]

    assert problems == []
