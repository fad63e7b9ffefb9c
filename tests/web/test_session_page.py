"""A session page shows the same rows and the same text as a fold of the whole session."""

from flightlog.model.session import Step, Turn
from flightlog.views.session.timeline import RowKind, RowMark, build_rows
from flightlog.web.session_page import GONE, SessionPage, searchable_text
from support.pages import running
from support.recordings import CASES, archive
from support.transcripts import SESSION, assistant, user, write


def open_page(source, name=None):
    return SessionPage(source, source.read_outline(name or source.latest_session()))


def every(page, subagent=""):
    return page.load_rows(range(page.thread_of(subagent).total), subagent)


def describe_row(row):
    item = row.item
    subagents = [subagent.id for subagent in row.subagents]
    if isinstance(item, Turn):
        return (row.id, row.kind, item.prompt, item.kind, item.at_ms, item.is_rewound, subagents)
    return (row.id, row.kind, item, row.failure_count, subagents)


def test_shown_rows_say_what_the_whole_session_says(tmp_path):
    for number, case in enumerate(CASES):
        source = archive(tmp_path / str(number), case)
        for name in source.recordings:
            session = source.read_session(name)
            page = open_page(source, name)
            for subagent in (None, *session.subagents):
                rows = every(page, subagent.id if subagent else "")

                assert [describe_row(row) for row in rows] == [
                    describe_row(row) for row in build_rows(session, subagent)
                ], case


def test_some_rows_are_read_like_all_of_them(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    page = open_page(source)
    rows = every(page)

    assert [page.load_rows([row])[0] for row in range(len(rows))] == rows
    assert page.load_rows(range(len(rows[:20]))) == rows[:20]


def test_long_texts_stay_in_the_recording(tmp_path):
    source = archive(tmp_path, "2.1.325/odd-outputs")
    page = open_page(source)

    longest = max(
        len(call.output)
        for row in every(page)
        if isinstance(row.item, Step)
        for call in row.item.tool_calls
    )

    assert longest > 1_500
    assert page.size < 1_500


def test_recording_that_vanished_is_shown_as_gone(tmp_path):
    source = archive(tmp_path, "2.1.325/single-turn")
    page = open_page(source)
    for file in tmp_path.glob("projects/*/*.jsonl"):
        file.unlink()

    rows = every(page)

    steps = [
        row
        for row, mark in zip(rows, page.thread_of().row_kinds, strict=True)
        if mark == RowMark.STEP
    ]
    assert {(row.kind, row.item) for row in steps} == {(RowKind.NOTE, GONE)}


def test_every_place_leads_to_a_row(tmp_path):
    source = archive(tmp_path, "2.1.325/subagent-foreground")
    page = open_page(source)
    subagents = {subagent for _, (subagent, _) in page.outline.rows_by_location()}

    assert subagents == {"", *(subagent.id for subagent in page.outline.subagents)}


def test_the_words_of_a_record_are_those_a_page_shows(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")

    text = "\n".join(
        searchable_text(entry) for entry in source.find_entries(source.latest_session(), "greet")
    )

    assert "def greet(name)" in text
    assert "Write a greeting module" in text


def test_input_that_was_not_recorded_is_not_shown_as_zero(tmp_path):
    lost = assistant("m1", 2)
    del lost["message"]["usage"]
    write(tmp_path, SESSION, user("x"), lost, assistant("m2", 3, tokens={"input_tokens": 700}))
    other = "99999999-9999-4999-8999-999999999999"
    write(tmp_path, other, user("y", 4), lost | {"message": lost["message"] | {"id": "m3"}})

    with running(tmp_path) as pages:
        some, none = (
            pages.ask(f"/sessions/{name}").text.partition("<dt>Work")[0]
            for name in (SESSION, other)
        )

    assert "≥ 700 read (0 % cached), ≥ 5 written" in some
    assert "unknown read, unknown written" in none
