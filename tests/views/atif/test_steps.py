"""Odd threads: sessions made by hand for what recordings do not hold."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from flightlog.model.entries import Image, PromptKind, Text, Thinking, ToolUse, UnknownBlock
from flightlog.model.errors import Damage
from flightlog.model.session import (
    ContextItem,
    Note,
    NoteKind,
    Session,
    Step,
    Subagent,
    ThreadContext,
    ToolCall,
    Turn,
)
from flightlog.model.usage import Cost, CostSource, Usage, usage_fields
from flightlog.views.atif.fidelity import measure_fidelity
from flightlog.views.atif.lint import iter_findings, parse_json
from flightlog.views.atif.writer import MAIN, AtifOptions, build_trajectory

COUNTS = usage_fields(Usage(input_tokens=10, output_tokens=5), Cost(0.0, CostSource.TABLE))
GO = (Text("go"),)


def spoke(number, *content, calls=(), **fields):
    return Step(number, f"m{number}", number * 1000, "m", content, tuple(calls), **COUNTS, **fields)


def thread(*items, number=1, kind=PromptKind.HUMAN, prompt=GO, **fields):
    return Turn(number, kind, prompt, 0, tuple(items), **fields)


def session(*turns, **fields):
    empty = Session("s", "claude-code", "", "/home/ada/shop", "", "", "", 0, 0, turns, (), None)
    return replace(empty, **fields)


def steps(*turns, **fields):
    return build_trajectory(session(*turns, **fields)).main.steps


def note(kind, text, at_ms=500):
    return Note(kind, text, at_ms)


def test_a_summary_is_a_boundary_also_where_no_compaction_is_on_record():
    written = steps(
        thread(spoke(1, Text("a")), note(NoteKind.SUMMARY, "so far", 2000), spoke(2, Text("b")))
    )

    assert written[2].extra["context_management"]["type"] == "compaction"
    assert written[2].observation.results[0].content == "so far"


@pytest.mark.parametrize(
    "after", [(), (spoke(1, Text("a")),), (note(NoteKind.COMPACTION, "again"),)]
)
def test_a_compaction_without_a_summary_carries_none(after):
    written = steps(thread(note(NoteKind.COMPACTION, "compacted"), *after))

    assert written[1].observation is UNSET
    assert written[1].message == "compacted"


def test_a_summary_that_comes_after_other_notes_is_found_and_said_once():
    written = steps(
        thread(
            note(NoteKind.COMPACTION, "c"),
            note(NoteKind.HOOK, "h"),
            note(NoteKind.SUMMARY, "so far"),
        )
    )

    assert [(step.message, step.extra["kind"]) for step in written[1:]] == [
        ("c", "compaction"),
        ("h", "hook"),
    ]


def test_unknown_records_are_named_in_the_notes_and_are_no_steps():
    turn = thread(note(NoteKind.UNKNOWN, "strange with a, b"), spoke(1, Text("a")))
    broken = Damage("t.jsonl", 0, 3, "torn")
    document = build_trajectory(
        session(turn, unknown_record_types=(("strange", 1),), damage=(broken,))
    ).main

    assert [step.source for step in document.steps] == ["user", "agent"]
    assert "strange" in document.notes
    assert "damaged" in document.notes


def test_one_turn_taken_back_counts_as_one():
    written = steps(thread(is_rewound=True), thread(number=2))

    assert written[1].message == "turn 1 taken back"


def test_words_of_an_agent_beside_other_content_stay_in_their_order():
    written = steps(
        thread(
            spoke(
                1,
                Text("see"),
                UnknownBlock("canvas"),
                Thinking("hm"),
                ToolUse("t", "x", {}),
                Text("so"),
            )
        )
    )

    assert [part.text for part in written[1].message] == ["see", "[canvas left out]", "so"]
    assert written[1].reasoning_content == "hm"


def test_a_picture_whose_bytes_are_damaged_leaves_a_mark():
    written = steps(thread(prompt=(Image("image/png", 0, "not base64!"), Text("what is it?"))))

    assert [part.text for part in written[0].message] == ["[image/png left out]", "what is it?"]


def test_an_answer_of_nothing_is_an_empty_text():
    written = steps(thread(spoke(1, calls=[ToolCall("t", "x", {}, result=())])))

    assert written[1].observation.results[0].content == ""


def test_a_subagent_that_never_answered_is_still_linked():
    subagent = Subagent("a1", "Explore", "", "t", (thread(spoke(3, Text("x"))),))
    written = steps(thread(spoke(1, calls=[ToolCall("t", "Agent", {})])), subagents=(subagent,))
    (result,) = written[1].observation.results

    assert result.content is UNSET
    assert result.subagent_trajectory_ref[0].trajectory_path == "subagent_Explore_a1.json"


def test_a_nested_subagent_is_linked_and_paid_for_by_all_above_it():
    inner = Subagent("a2", "../Plan x", "", "t2", (thread(spoke(4, Text("y"))),))
    outer = Subagent(
        "a1",
        "",
        "",
        "t1",
        (thread(spoke(3, calls=[ToolCall("t2", "Agent", {}, result=(Text("r"),))])),),
    )
    bundle = build_trajectory(
        session(thread(spoke(1, calls=[ToolCall("t1", "Agent", {})])), subagents=(outer, inner))
    )
    ref = (
        bundle.documents["subagent_agent_a1.json"]
        .steps[1]
        .observation.results[0]
        .subagent_trajectory_ref[0]
    )
    below = {name: document.final_metrics.extra for name, document in bundle.documents.items()}

    assert ref.trajectory_path == "subagent_Plan-x_a2.json"
    assert below[MAIN]["subagents"]["prompt_tokens"] == 20
    assert below["subagent_agent_a1.json"]["subagents"]["prompt_tokens"] == 10
    assert below["subagent_Plan-x_a2.json"] is UNSET


def test_a_subagent_without_a_recorded_call_is_linked_by_its_time():
    subagent = Subagent("a1", "", "", "gone", (Turn(1, PromptKind.HUMAN, (Text("x"),), 1500, ()),))
    written = steps(thread(spoke(1, Text("a")), spoke(2, Text("b"))), subagents=(subagent,))

    assert [step.extra.get("kind") for step in written] == ["human", None, "subagent", None]
    assert (
        written[2].observation.results[0].subagent_trajectory_ref[0].trajectory_path
        == "subagent_agent_a1.json"
    )


def test_client_additions_are_ordered_by_time_those_without_first():
    known = ThreadContext(
        system="Be kind.",
        context=(ContextItem("date", "today", 1500), ContextItem("old", "long ago")),
    )
    document = build_trajectory(
        session(thread(spoke(1, Text("a")), spoke(2, Text("b")))), contexts={"": known}
    ).main

    assert [step.message for step in document.steps] == [
        "Be kind.",
        "long ago",
        "go",
        "a",
        "today",
        "b",
    ]


def test_a_tool_of_the_models_own_side_is_defined_as_it_is():
    known = ThreadContext(tools=({"type": "web_search_20250305", "name": "web_search"},))
    document = build_trajectory(session(thread()), contexts={"": known}).main

    assert document.agent.tool_definitions == [
        {"type": "web_search_20250305", "name": "web_search"}
    ]


@pytest.mark.parametrize("version", ["1.6", "1.7"])
def test_whatever_a_session_holds_nothing_is_wrong_with_its_trajectory(version):
    call = ToolCall(
        "t",
        "x",
        {},
        result=(Text("r"), UnknownBlock("o")),
        is_error=True,
        denial_reason="no",
        result_file="C:\\a\\b.txt",
    )
    subagent = Subagent("a1", "T", "d", "t", (thread(spoke(3, Text("x"))),), is_side_call=True)
    turn = thread(
        spoke(1, calls=[call], is_aborted=True, stop_reason="end"), note(NoteKind.REMARK, "r", 2000)
    )
    recorded = session(turn, thread(number=2, kind=None, prompt=()), subagents=(subagent,))
    bundle = build_trajectory(recorded, AtifOptions(version))
    files = dict(bundle.iter_files())
    documents = [parse_json(files[name]) for name in bundle.documents]

    assert [
        finding for document in documents for finding in iter_findings(document, files.__contains__)
    ] == []
    lost = {row.element for row in measure_fidelity(recorded, documents) if row.missing_count}
    assert lost <= {"full outputs kept in files", "other content"}
