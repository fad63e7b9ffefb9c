"""Sessions as rows: the sums of one table are the counts of another."""

import pytest

from flightlog.archive.bulk_export import COLUMNS, build_rows, session_day
from support.recordings import CASES, archive
from support.transcripts import SESSION, assistant, user
from support.transcripts import archive as made


@pytest.mark.parametrize("case", CASES)
def test_every_recording_becomes_rows_that_fit_their_columns_and_add_up(case, tmp_path):
    for told in archive(tmp_path, case).iter_sessions():
        found = build_rows(told)

        assert {name: list(columns) for name, columns in COLUMNS.items()} == {
            name: list(each[0]) if (each := found[name]) else list(COLUMNS[name])
            for name in COLUMNS
        }
        [session] = found["sessions"]
        assert session["steps"] == len(found["steps"])
        assert session["tool_calls"] == len(found["tool_calls"])
        assert session["input_tokens"] == sum(each["input_tokens"] for each in found["steps"])
        keys = [(each["subagent"], each["message_id"]) for each in found["steps"]]
        assert len(set(keys)) == len(keys)


def test_a_step_and_its_call_are_shown(tmp_path):
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt", "is_error": False}]
    told = made(
        tmp_path,
        user("go"),
        assistant("m1", 2, {"type": "text", "text": "I look."}, call),
        user(result, 3),
    ).read_session(SESSION)

    found = build_rows(told)

    assert session_day(told) == "2026-11-02"
    assert [(each["text"], each["tools"], each["turn"]) for each in found["steps"]] == [
        ("I look.", ["Bash"], 1)
    ]
    [row] = found["tool_calls"]
    assert (row["tool_call_id"], row["input"], row["output"]) == ("t1", '{"command":"ls"}', "a.txt")


def test_a_session_without_a_time_has_no_day(tmp_path):
    told = made(tmp_path, user("go", timestamp=None)).read_session(SESSION)

    assert session_day(told) == "unknown"
    assert build_rows(told)["sessions"][0]["cost_usd"] == 0
