"""Where a transcript is cut."""

import json

import pytest

from flightlog.agents.claude_code.resume import TranscriptCut, cut_transcript_before, rename_session
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


def test_cut_works_after_a_tool_before_a_prompt_and_at_the_start():
    assert cut_transcript_before(TOLD, {"two"}) == TranscriptCut(5, "result")
    assert cut_transcript_before(TOLD, {"three"}) == TranscriptCut(8, "two")
    assert cut_transcript_before(TOLD, {"one"}) == TranscriptCut(0, is_fresh=True)


def test_cut_after_a_compaction_keeps_only_the_summary():
    transcript = lines(
        record("user", "sum", isCompactSummary=True),
        record("user", "go on"),
        record("assistant", "one"),
    )

    assert cut_transcript_before(transcript, {"one"}) == TranscriptCut(1)


def test_damaged_lines_are_skipped_and_unknown_responses_refused():
    assert cut_transcript_before([b"{broken\n", *TOLD], {"two"}) == TranscriptCut(6, "result")
    with pytest.raises(NotFound):
        cut_transcript_before(TOLD, {"no-such-record"})


def test_the_kept_lines_become_those_of_another_session():
    assert b"old" not in rename_session(TOLD, "old", "new")
    assert rename_session(TOLD, "old", "new").count(b'"new"') == 7
