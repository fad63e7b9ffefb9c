"""A session page shows the same rows and the same text as a fold of the whole session."""

from flightlog.model.session import Step, Turn
from flightlog.views.session.timeline import RowKind, RowMark, build_rows
from flightlog.web.session_page import GONE, SessionPage, searchable_text
from support.recordings import CASES, archive


def open_page(found, name=None):
    return SessionPage(found, found.read_outline(name or found.latest_session()))


def every(held, subagent=""):
    return held.load_rows(range(held.thread_of(subagent).total), subagent)


def describe_row(row):
    item = row.item
    subagents = [subagent.id for subagent in row.subagents]
    if isinstance(item, Turn):
        return (row.id, row.kind, item.prompt, item.kind, item.at_ms, item.is_rewound, subagents)
    return (row.id, row.kind, item, row.failure_count, subagents)


def test_shown_rows_say_what_the_whole_session_says(tmp_path):
    for number, case in enumerate(CASES):
        found = archive(tmp_path / str(number), case)
        for name in found.recordings:
            session = found.read_session(name)
            held = open_page(found, name)
            for subagent in (None, *session.subagents):
                told = every(held, subagent.id if subagent else "")

                assert [describe_row(row) for row in told] == [
                    describe_row(row) for row in build_rows(session, subagent)
                ], case


def test_some_rows_are_read_like_all_of_them(tmp_path):
    found = archive(tmp_path, "2.1.325/multi-turn-tools")
    held = open_page(found)
    told = every(held)

    assert [held.load_rows([row])[0] for row in range(len(told))] == told
    assert held.load_rows(range(len(told[:20]))) == told[:20]


def test_long_texts_stay_in_the_recording(tmp_path):
    found = archive(tmp_path, "2.1.325/odd-outputs")
    held = open_page(found)

    longest = max(
        len(call.output)
        for row in every(held)
        if isinstance(row.item, Step)
        for call in row.item.tool_calls
    )

    assert longest > 1_500
    assert held.size < 1_500


def test_a_recording_that_vanished_is_said_to_be_gone(tmp_path):
    found = archive(tmp_path, "2.1.325/single-turn")
    held = open_page(found)
    for file in tmp_path.glob("projects/*/*.jsonl"):
        file.unlink()

    told = every(held)

    steps = [
        row
        for row, mark in zip(told, held.thread_of().row_kinds, strict=True)
        if mark == RowMark.STEP
    ]
    assert {(row.kind, row.item) for row in steps} == {(RowKind.NOTE, GONE)}


def test_every_place_leads_to_a_row(tmp_path):
    found = archive(tmp_path, "2.1.325/subagent-foreground")
    held = open_page(found)
    subagents = {subagent for _, (subagent, _) in held.outline.rows_by_location()}

    assert subagents == {"", *(subagent.id for subagent in held.outline.subagents)}


def test_the_words_of_a_record_are_those_a_page_shows(tmp_path):
    found = archive(tmp_path, "2.1.325/multi-turn-tools")

    said = "\n".join(
        searchable_text(entry) for entry in found.find_entries(found.latest_session(), "greet")
    )

    assert "def greet(name)" in said
    assert "Write a greeting module" in said
