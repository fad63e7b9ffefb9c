"""Where a transcript is cut."""

import json

import pytest

from flightlog.lab.replaying.cut import Cut, cut_before, renamed
from flightlog.model.errors import NotFound


def lines(*records):
    return [json.dumps(record).encode() + b"\n" for record in records]


def record(kind, uuid, content="x", **more):
    return {"type": kind, "uuid": uuid, "sessionId": "old", "message": {"content": content}, **more}


RESULT = [{"type": "tool_result", "tool_use_id": "t"}]
TOLD = lines(
    {"type": "mode"},
    record("user", "prompt"),
    {"type": "attachment", "uuid": "a"},
    record("assistant", "one"),
    record("user", "result", RESULT),
    {"type": "api-request"},
    record("user", "side", isSidechain=True),
    record("assistant", "two"),
    record("user", "next"),
    record("assistant", "three"),
)


def test_after_a_tool_before_a_prompt_and_at_the_very_start():
    assert cut_before(TOLD, {"two"}) == Cut(5, "result")
    assert cut_before(TOLD, {"three"}) == Cut(8, "two")
    assert cut_before(TOLD, {"one"}) == Cut(0, fresh=True)


def test_after_a_compaction_the_summary_is_the_last_word():
    told = lines(record("user", "sum", isCompactSummary=True), record("user", "go on"), record("assistant", "one"))

    assert cut_before(told, {"one"}) == Cut(1)


def test_damaged_lines_are_passed_over_and_an_unknown_response_is_said():
    assert cut_before([b"{broken\n", *TOLD], {"two"}) == Cut(6, "result")
    with pytest.raises(NotFound):
        cut_before(TOLD, {"nobody"})


def test_the_kept_lines_become_those_of_another_session():
    assert b"old" not in renamed(TOLD, "old", "new")
    assert renamed(TOLD, "old", "new").count(b'"new"') == 7
