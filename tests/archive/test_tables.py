"""Sessions as rows: the sums of one table are the counts of another."""

import pytest

from flightlog.archive.bulk_export import COLUMNS, build_rows, session_day
from support.recordings import CASES, archive
from support.transcripts import SESSION, assistant, user
from support.transcripts import archive as write_archive


@pytest.mark.parametrize("case", CASES)
def test_every_recording_becomes_rows_that_fit_their_columns_and_add_up(case, tmp_path):
    for recorded in archive(tmp_path, case).iter_sessions():
        tables = build_rows(recorded)

        assert {name: list(columns) for name, columns in COLUMNS.items()} == {
            name: list(rows[0]) if (rows := tables[name]) else list(COLUMNS[name])
            for name in COLUMNS
        }
        [session] = tables["sessions"]
        assert session["steps"] == len(tables["steps"])
        assert session["tool_calls"] == len(tables["tool_calls"])
        assert session["input_tokens"] == sum(step["input_tokens"] for step in tables["steps"])
        keys = [(step["subagent"], step["message_id"]) for step in tables["steps"]]
        assert len(set(keys)) == len(keys)


def test_a_step_and_its_call_are_shown(tmp_path):
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt", "is_error": False}]
    recorded = write_archive(
        tmp_path,
        user("go"),
        assistant("m1", 2, {"type": "text", "text": "I look."}, call),
        user(result, 3),
    ).read_session(SESSION)

    tables = build_rows(recorded)

    assert session_day(recorded) == "2026-11-02"
    assert [(step["text"], step["tools"], step["turn"]) for step in tables["steps"]] == [
        ("I look.", ["Bash"], 1)
    ]
    [row] = tables["tool_calls"]
    assert (row["tool_call_id"], row["input"], row["output"]) == ("t1", '{"command":"ls"}', "a.txt")


def test_a_session_without_a_time_has_no_day(tmp_path):
    recorded = write_archive(tmp_path, user("go", timestamp=None)).read_session(SESSION)

    assert session_day(recorded) == "unknown"
    assert build_rows(recorded)["sessions"][0]["cost_usd"] == 0
