from flightlog.model.entries import (
    ClientNote,
    ClientTotalReported,
    Entry,
    Ignored,
    RecordContext,
    SessionSummarized,
    SessionTitled,
    ToolResult,
    UnknownRecord,
)
from flightlog.model.usage import ClientTotals
from flightlog.views.session.header import SessionHeader


def entry(event, at, **fields):
    return Entry(event, "s", at_ms=at, order_ms=at, key=f"{at}:0", **fields)


def header_of(*entries):
    header = SessionHeader("s", "claude-code")
    for item in entries:
        header.add(item, is_new=True)
    return header


def title_of(*entries, records=()):
    return header_of(*entries).to_session("prompt", records.__contains__).title


def test_title_precedence_is_user_summary_generated_prompt():
    given = entry(SessionTitled("given", is_user_title=True), 1)
    summary = entry(SessionSummarized("u1", "summary"), 2)
    generated = entry(SessionTitled("generated"), 3)

    assert title_of(generated, summary, given, records=["u1"]) == "given"
    assert title_of(generated, summary, records=["u1"]) == "summary"
    assert title_of(generated, summary) == "generated"
    assert title_of() == "prompt"


def test_title_given_again_is_the_last_one():
    header = header_of(entry(SessionTitled("one"), 1), entry(SessionTitled("two"), 2))
    header.add(entry(SessionTitled("one"), 3), is_new=False)

    session = header.to_session("", bool)

    assert (session.title, session.record_count) == ("one", 2)


def test_first_directory_last_branch_and_highest_version_count():
    scenes = [
        RecordContext("/a", "main", "2.0.9"),
        RecordContext("/b", "fix", "2.0.10"),
        RecordContext(),
    ]
    entries = [entry(UnknownRecord("x"), at, context=scene) for at, scene in enumerate(scenes)]

    session = header_of(*reversed(entries)).to_session("", bool)

    assert (session.cwd, session.branch, session.version) == ("/a", "fix", "2.0.10")
    assert session.unknown_record_types == (("x", 3),)


def test_times_are_those_of_work_and_the_largest_total_counts():
    totals = [ClientTotals("s", usd, 0) for usd in (2.0, 1.0)]
    stated = [
        entry(ClientTotalReported(client_total), 90 + place)
        for place, client_total in enumerate(totals)
    ]

    session = header_of(entry(ToolResult("c", ()), 5), *stated).to_session("", bool)

    assert (session.started_ms, session.ended_ms) == (5, 5)
    assert session.client_totals == totals[0]


def test_activity_after_the_work_is_the_end_and_opening_is_not():
    work = entry(ToolResult("c", ()), 5)
    progress = entry(Ignored("progress", is_activity=True), 7)
    opening = entry(Ignored("mode"), 9)

    ended = header_of(progress, opening, work).to_session("", bool)
    opened = header_of(opening).to_session("", bool)
    idle = header_of(progress, opening).to_session("", bool)

    assert (ended.started_ms, ended.ended_ms) == (5, 7)
    assert (opened.started_ms, opened.ended_ms) == (None, None)
    assert (idle.started_ms, idle.ended_ms) == (7, 7)
    noted = header_of(work, entry(ClientNote("informational"), 8)).to_session("", bool)
    assert noted.ended_ms == 8


def test_last_result_that_names_a_subagent_links_it():
    results = [
        entry(ToolResult(call, (), subagent="a1"), at) for at, call in ((2, "late"), (1, "early"))
    ]

    assert header_of(*results).calls_by_subagent() == {"a1": "late"}
