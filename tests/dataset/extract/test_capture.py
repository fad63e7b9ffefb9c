"""Capturing: a row for each turn and call, nothing twice, and no more work than there is news."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.dataset.extract.extract import capture_session, capture_whole_session
from flightlog.dataset.extract.sync import sync_dataset
from flightlog.dataset.rows import NAMES
from flightlog.dataset.state import recall_session
from flightlog.dataset.stats import token_counts
from flightlog.privacy.detect import named_values
from flightlog.views.session.timeline import all_steps
from support.dataset_ground import Ground, turn
from support.transcripts import assistant, user

SESSION = "13a84f73-1111-4111-8111-111111111111"
READ = ("Read", {"file_path": "{top}/src/a.py"}, "text")


def read(ground, name="src/a.py"):
    return ("Read", {"file_path": f"{ground.top}/{name}"}, "text of the file")


def edit(ground, name="src/b.py"):
    return (
        "Edit",
        {"file_path": f"{ground.top}/{name}", "old_string": "a", "new_string": "b"},
        "ok",
    )


def test_turn_becomes_a_chat_and_its_calls_actions_with_document_names(ground):
    ground.on().write(SESSION, *turn(1, "Fix the bug.", "Fixed.", read(ground), edit(ground)))

    work = capture_session(ground.kit(), ground.recording(SESSION))

    (chat,), (session,) = ground.rows("chat"), ground.rows("session")
    assert work.rows == 4
    assert chat["id"].startswith("chat-20261102-120140-")
    assert {
        name: chat[name]
        for name in ("timestamp", "session_id", "input", "output", "tools", "files")
    } == {
        "timestamp": "2026-11-02T12:01:40Z",
        "session_id": "13a84f73",
        "input": "Fix the bug.",
        "output": "Fixed.",
        "tools": ["Read", "Edit"],
        "files": ["src/a.py", "src/b.py"],
    }
    assert session["id"] == "2026-11-02_13a84f73"
    assert (session["chat_count"], session["summary"], session["files_modified"]) == (
        1,
        "Fix the bug.",
        ["src/b.py"],
    )
    assert {
        (row["action_type"], row["target"], row["success"]) for row in ground.rows("action")
    } == {
        ("read", "src/a.py", True),
        ("edit", "src/b.py", True),
    }


def test_without_consent_only_the_number_of_words_is_written(ground):
    ground.on().write(
        SESSION,
        *turn(1, "Our plan is zebra.", "I like zebra.", ("Bash", {"command": "zebra"}, "zebra")),
    )

    capture_session(ground.kit(words=False), ground.recording(SESSION))

    assert not any("zebra" in shard.read_text() for shard in ground.shards)
    (chat,), (session,), (action,) = (
        ground.rows("chat"),
        ground.rows("session"),
        ground.rows("action"),
    )
    assert (chat["input"], chat["output"], chat["words"]) == (None, None, "withheld")
    assert (chat["input_chars"], chat["output_chars"]) == (18, 13)
    assert (session["summary"], session["words"], action["target"], action["target_chars"]) == (
        None,
        "withheld",
        None,
        5,
    )
    lines = ground.shards[0].read_text().splitlines()
    assert [line.count('"input":null') for line in lines if json.loads(line)["kind"] == "chat"] == [
        1
    ]


def test_a_second_capture_writes_nothing_and_a_third_neither(ground):
    ground.on().write(SESSION, *turn(1), *turn(2), *turn(3, "x", "y", read(ground)))
    capture_session(ground.kit(), ground.recording(SESSION))
    before = {path: path.read_bytes() for path in ground.shards}

    again = [capture_session(ground.kit(), ground.recording(SESSION)).rows for _ in range(2)]

    assert again == [0, 0]
    assert {path: path.read_bytes() for path in ground.shards} == before


def test_a_turn_that_grows_is_one_row_that_says_the_latest(ground):
    whole = list(turn(1, "Go.", "Gone.", read(ground), edit(ground), read(ground, "c.py")))
    for length in range(1, len(whole) + 1):
        ground.on().write(SESSION, *whole[:length])
        capture_session(ground.kit(), ground.recording(SESSION))

    (chat,) = ground.rows("chat")
    assert (chat["output"], chat["tools"], len(chat["steps"])) == ("Gone.", ["Read", "Edit"], 4)
    assert len(ground.rows("action")) == 3
    assert ground.rows("session")[0]["actions"] == 3
    assert len(ground.shards) > 3


def test_capture_works_on_new_turns_only(ground):
    """O(new turns): what a long session costs at its end is what a short one costs."""
    ground.on()
    records = [record for number in range(1, 41) for record in turn(number, "x", "y", read(ground))]
    works = []
    for turns in (5, 20, 38, 39, 40):
        ground.write(SESSION, *records[: turns * 4])
        works.append(capture_session(ground.kit(), ground.recording(SESSION)))

    assert works[0].turn_count == 5
    assert [(work.turn_count, work.record_count) for work in works[-2:]] == [(3, 12), (3, 12)]
    assert ground.rows("session")[0]["chat_count"] == 40
    assert len(ground.rows("chat")) == 40
    assert len(recall_session(ground.place.state_dir, SESSION).row_digests) < 20


@settings(max_examples=25)
@given(cuts=st.sets(st.integers(1, 40), max_size=8), seed=st.randoms(use_true_random=False))
def test_capturing_in_pieces_equals_capturing_at_once(tmp_path_factory, cuts, seed):
    pieces, once = (Ground(tmp_path_factory.mktemp("ground")).on() for _ in range(2))
    made = [list(turn(number, f"ask {number}", f"say {number}", *[read(pieces)] * seed.randint(0, 3)))
            for number in range(1, 7)]  # fmt: skip
    records = [record for batch in made for record in batch]
    for cut in sorted({*cuts, len(records)}):
        pieces.write(SESSION, *records[:cut])
        capture_session(pieces.kit(), pieces.recording(SESSION))
    once.write(SESSION, *json.loads(json.dumps(records).replace(str(pieces.top), str(once.top))))
    capture_session(once.kit(), once.recording(SESSION))

    for kind in ("chat", "action", "session"):
        assert pieces.rows(kind) == once.rows(kind)


def test_a_rewritten_transcript_is_read_from_its_beginning(ground):
    records = [record for number in range(1, 8) for record in turn(number)]
    ground.on().write(SESSION, *records)
    capture_session(ground.kit(), ground.recording(SESSION))
    ground.write(SESSION, *records[4:], *turn(9, "after", "the rewrite"))

    work = capture_session(ground.kit(), ground.recording(SESSION))

    assert work.turn_count == 6
    assert len(ground.rows("chat")) == 8


def test_subagents_are_an_orchestration_row_and_their_calls_actions(ground):
    call = (
        "Task",
        {"description": "Count", "prompt": "SUB", "subagent_type": "general-purpose"},
        "3",
    )
    subagent = [user("SUB", 1, uuid="l1", isSidechain=True, agentId="aa"),
            assistant("subagent-1", 2,
                      {"type": "tool_use", "id": "subagent-call", "name": "Bash", "input": {"command": "ls"}},
                      isSidechain=True, agentId="aa"),
            assistant("subagent-2", 4, {"type": "text", "text": "3"}, isSidechain=True, agentId="aa")]  # fmt: skip
    ground.on().write(SESSION, *turn(1, "Ask.", "Three.", call))
    ground.write(SESSION, *subagent, subagent="aa")

    capture_session(ground.kit(), ground.recording(SESSION))

    (row,) = ground.rows("orchestration")
    assert (row["total_sub_agents"], row["batch_count"], row["batches"][0]["agent_ids"]) == (
        1,
        1,
        ["aa"],
    )
    assert row["agents"][0]["chat_id"] == ground.rows("chat")[0]["id"]
    assert {row["id"]: row.get("subagent", "") for row in ground.rows("action")} == {
        "action-call-1-1": "", "action-subagent-call": "aa",
    }  # fmt: skip
    steps = all_steps(ground.kit().archive.read_session(SESSION))
    assert token_counts(ground.book)["output_tokens"] == sum(
        step.usage.output_tokens for step in steps
    )


def test_a_commit_is_linked_to_the_turn_that_made_it(ground):
    made = ground.commit("Fix it")
    reply = (
        "Bash",
        {"command": "git commit -m 'Fix it'"},
        f"[main {made[:7]}] Fix it\n 1 file changed",
    )
    ground.on().write(SESSION, *turn(1, "Fix.", "Fixed.", reply), *turn(2))

    capture_session(ground.kit(), ground.recording(SESSION))

    (commit,) = ground.rows("commit")
    chat = next(row for row in ground.rows("chat") if row["uuid"] == "p1")
    assert (commit["hash"], commit["session_id"], commit["related_chats"]) == (
        made,
        "13a84f73",
        [chat["id"]],
    )
    assert (chat["resulted_in_commit"], chat["related_commit"]) == (True, made[:12])
    assert ground.rows("session")[0]["commits"] == [made[:12]]
    assert not any("x@example.com" in shard.read_text() for shard in ground.shards)


def test_capturing_a_whole_session_writes_only_missing_rows(ground):
    ground.on().write(SESSION, *turn(1), *turn(2), *turn(3))
    capture_session(ground.kit(), ground.recording(SESSION))
    ground.shards[0].unlink()

    row_counts = [
        capture_whole_session(ground.kit(), ground.recording(SESSION), ground.book).rows
        for _ in range(2)
    ]

    assert row_counts == [4, 0]
    assert len(ground.rows("chat")) == 3


def test_local_cache_writes_the_older_files_and_git_ignores_them(ground):
    ground.on().write(SESSION, *turn(1, "x", "y", read(ground)))

    capture_session(ground.kit(local_cache=True), ground.recording(SESSION))

    files = sorted(
        str(path.relative_to(ground.place.root))
        for path in ground.place.root.glob("[cas]*s/**/*.json")
    )
    assert len(files) == 3
    assert files[0].startswith("actions/2026-11-02/action-call-1-1")
    ground.git("add", "-A")
    assert not [name for name in ground.git("ls-files").split() if name.endswith(".json")]


@pytest.mark.parametrize("words", [True, False])
def test_a_secret_is_in_no_row(ground, words):
    token = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    long = "x" * 49_980 + " " + token
    ground.on().write(
        SESSION, *turn(1, f"use {token}", long, ("Bash", {"command": f"echo {token}"}, token))
    )

    capture_session(ground.kit(words=words), ground.recording(SESSION))

    assert not any(token[:12] in shard.read_text() for shard in ground.shards)


def test_no_name_of_a_field_says_that_its_value_is_a_secret():
    assert [name for name in sorted(NAMES) if named_values.is_secret_name(name.encode())] == []
    assert named_values.is_secret_name(b"api_key")


VALUE = "9fQ2xL7vKp3WzR8tYb6N"


def test_value_recognized_in_an_earlier_turn_is_in_no_later_row(ground):
    records = [
        record
        for number in range(2, 8)
        for record in turn(number, f"send {VALUE}", "Sent.", read(ground))
    ]
    ground.on()
    for count in (4, 12, 24):  # the later captures tell only the last turns
        ground.write(SESSION, *turn(1, f"export ACME_TOKEN={VALUE}", "Yes."), *records[:count])
        capture_session(ground.kit(), ground.recording(SESSION))

    assert VALUE not in "".join(path.read_text() for path in ground.shards)
    assert "send <secret:" in ground.rows("chat")[-1]["input"]
    assert VALUE not in "".join(path.read_text() for path in ground.place.state_dir.rglob("*.json"))


def test_capture_searches_only_what_is_new_and_where_values_were(ground):
    ground.on().write(SESSION, *turn(1, f"export ACME_TOKEN={VALUE}", "Yes."), *turn(2), *turn(3))
    capture_session(ground.kit(), ground.recording(SESSION))
    (searched,) = recall_session(ground.place.state_dir, SESSION).searches.values()

    assert searched.end == ground.recording(SESSION).size
    assert searched.offsets == [0]


def test_commit_message_with_a_value_of_a_session_is_redacted_by_sync(ground):
    ground.on().write(SESSION, *turn(1, f"export ACME_TOKEN={VALUE}", "Yes."))
    ground.commit(f"login with {VALUE}")

    reports = [
        sync_dataset(kit, kit.archive.recordings.values()) for kit in (ground.kit(), ground.kit())
    ]

    assert [report.rows > 0 for report in reports] == [True, False]
    assert reports[0].secrets >= 2
    assert VALUE not in "".join(path.read_text() for path in ground.shards)


def test_row_of_many_subagents_is_not_repeated_in_every_shard(ground):
    ground.on()
    sizes = []
    for number in range(1, 25):
        call = ("Task", {"description": "Count", "prompt": f"SUB {number}"}, "3")
        ground.write(SESSION, *(record for at in range(1, number + 1)
                                for record in turn(at, "Count.", "3", call)))  # fmt: skip
        own = {"isSidechain": True, "agentId": f"a{number}"}
        answer = assistant(f"s{number}", number * 100 + 4, {"type": "text", "text": "3"}, **own)
        begun = user(f"SUB {number}", number * 100 + 3, uuid=f"l{number}", **own)
        ground.write(SESSION, begun, answer, subagent=f"a{number}")
        capture_session(ground.kit(), ground.recording(SESSION))
    capture_session(ground.kit(), ground.recording(SESSION), is_ended=True)
    again = capture_session(ground.kit(), ground.recording(SESSION), is_ended=True)
    for shard in ground.shards:
        rows = [json.loads(line) for line in shard.read_bytes().splitlines()]
        sizes += [row["total_sub_agents"] for row in rows if row["kind"] == "orchestration"]

    assert again.rows == 0
    assert len(sizes) <= 6
    assert sum(sizes) <= 3 * 24
    assert [row["total_sub_agents"] for row in ground.rows("orchestration")] == [24]


@pytest.mark.parametrize("words", [True, False])
def test_user_feedback_of_the_older_layout_is_imported(ground, words):
    ground.on()
    folder = ground.place.root / "chats" / "2025-12-16"
    folder.mkdir(parents=True)
    forms = {
        "a": "good",
        "b": {"rating": "bad", "comment": "too slow", "timestamp": "x"},
        "c": "ask first",
        "d": None,
        "e": {"rating": ["odd"]},
    }
    for name, feedback in forms.items():
        chat = {"id": name, "timestamp": "2025-12-16T15:03:32Z", "query": "q", "response": "r"}
        (folder / f"{name}.json").write_text(json.dumps(chat | {"user_feedback": feedback}))

    sync_dataset(ground.kit(words=words), [])

    rows = {row["id"]: (row.get("feedback"), row.get("feedback_comment"))
            for row in ground.rows("chat")}  # fmt: skip
    comments = {"b": "too slow", "c": "ask first"} if words else {}
    ratings = {"a": "good", "b": "bad"}
    assert rows == {name: (ratings.get(name), comments.get(name)) for name in forms}
