from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.entries import (
    ApiError,
    AssistantReply,
    ClientNote,
    ContextCompacted,
    Entry,
    Ignored,
    PromptKind,
    Text,
    ToolInputRewritten,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.session import Note, NoteKind, Step
from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.usage.prices import price
from flightlog.views.session.turns import build_turns, sort_entries


def entry(event, uuid="", parent="", at=0):
    return Entry(event, "s", uuid, parent, at, at, key=f"{uuid or id(event)}:0")


def make_prompt(text, uuid="", parent="", at=0, kind=PromptKind.HUMAN):
    return entry(UserPrompt(kind, (Text(text),)), uuid, parent, at)


def make_reply(message, *content, uuid="", parent="", at=0, **fields):
    reply_fields = {"input_tokens": 10, "output_tokens": 5, "model": "claude-opus-5-5", **fields}
    return entry(AssistantReply(message, content=tuple(content), **reply_fields), uuid, parent, at)


def build_all_turns(*entries):
    return build_turns(entries, price)


def test_a_turn_goes_from_a_prompt_to_the_next():
    first, second = build_all_turns(
        make_prompt("a"), make_reply("m1"), make_reply("m2"), make_prompt("b"), make_reply("m3")
    )

    assert (first.number, first.text, [step.number for step in first.steps]) == (1, "a", [1, 2])
    assert (second.number, second.text, [step.message_id for step in second.steps]) == (
        2,
        "b",
        ["m3"],
    )


def test_lines_of_one_response_are_one_step_in_the_order_of_its_blocks():
    lines = [
        make_reply("m1", ToolUse("t", "Bash", {}), block_index=2, at=3),
        make_reply(
            "m1", Text("two"), block_index=1, at=2, output_tokens=50, stop_reason="tool_use"
        ),
        make_reply("m1", Text("one"), block_index=0, at=1, output_tokens=1),
    ]

    (turn,) = build_all_turns(make_prompt("a"), *lines)
    (step,) = turn.steps

    assert [block.text for block in step.content] == ["one", "two"]
    assert [call.id for call in step.tool_calls] == ["t"]
    assert (step.usage, step.at_ms, step.stop_reason) == (Usage(10, 50), 1, "tool_use")
    assert step.cost == price("claude-opus-5-5", Usage(10, 50), 1)


def test_steps_before_the_first_prompt_are_a_turn_but_notes_are_not():
    early = build_all_turns(make_reply("m1"), make_prompt("a"))
    noted = build_all_turns(entry(ClientNote("hook", "x")), make_prompt("a"))

    assert [(turn.kind, len(turn.steps)) for turn in early] == [(None, 1), (PromptKind.HUMAN, 0)]
    assert [(turn.kind, len(turn.items)) for turn in noted] == [(PromptKind.HUMAN, 1)]
    assert build_all_turns(entry(Ignored("mode"))) == []


def test_results_and_rewritten_inputs_find_a_call_that_comes_later():
    call = make_reply("m1", ToolUse("t1", "Bash", {"command": "ls"}), at=5)
    result = entry(ToolResult("t1", (Text("out"),), is_error=True, subagent="a7"), at=9)

    (turn,) = build_all_turns(
        make_prompt("a"), result, entry(ToolInputRewritten("t1", {"command": "ls -l"})), call
    )
    ((made,),) = [step.tool_calls for step in turn.steps]

    assert (made.output, made.is_error, made.subagent) == ("out", True, "a7")
    assert (made.input, made.executed_input) == ({"command": "ls"}, {"command": "ls -l"})
    assert (made.started_ms, made.ended_ms) == (5, 9)


def test_an_unanswered_call_has_no_result():
    (turn,) = build_all_turns(make_prompt("a"), make_reply("m1", ToolUse("t1", "Bash", {})))

    assert turn.steps[0].tool_calls[0].result is None


def test_what_the_client_says_by_itself_is_a_note():
    notes = [
        make_prompt("reminder", kind=PromptKind.CLIENT),
        make_prompt("feedback", kind=PromptKind.HOOK),
        make_prompt("so far", kind=PromptKind.SUMMARY),
        make_prompt("[stop]", kind=PromptKind.INTERRUPTION),
        make_prompt("1 file", kind=PromptKind.COMMAND_OUTPUT),
        make_prompt("", kind=PromptKind.COMMAND_OUTPUT),
        entry(ContextCompacted("auto", 1000, 10)),
        entry(ContextCompacted("", 1000, 0)),
        entry(ApiError("overloaded", 529, 2)),
        entry(ApiError("given up")),
        entry(ApiError("", 0, 1)),
        entry(ClientNote("hook", "blocked")),
        entry(ClientNote("informational", "by the way")),
        entry(UnknownRecord("hologram", ("beam", "type"))),
        make_reply("m1", Text("API Error"), is_synthetic=True, error="x"),
        make_reply("m2", Text("No response requested."), is_synthetic=True),
    ]

    (turn,) = build_all_turns(make_prompt("a"), *notes)

    assert [(item.kind.value, item.text) for item in turn.items] == [
        ("client", "reminder"),
        ("hook", "feedback"),
        ("summary", "so far"),
        ("interruption", "[stop]"),
        ("command", "1 file"),
        ("compaction", "context compacted (auto), from 1,000 to 10 tokens"),
        ("compaction", "context compacted (unsaid), from 1,000 tokens"),
        ("api failure", "overloaded, try 2"),
        ("api failure", "given up"),
        ("api failure", "no reason on record, try 1"),
        ("hook", "blocked"),
        ("remark", "by the way"),
        ("unknown record", "hologram with beam, type"),
        ("api failure", "API Error"),
        ("client", "No response requested."),
    ]


def test_a_note_is_not_shown_twice_in_a_row():
    (turn,) = build_all_turns(
        make_prompt("a"),
        entry(ClientNote("hook", "no")),
        entry(ClientNote("hook", "no")),
        make_reply("m"),
        entry(ClientNote("hook", "no")),
    )

    assert [type(item) for item in turn.items] == [Note, Step, Note]
    assert turn.items[0].kind is NoteKind.HOOK


def test_a_rewound_prompt_is_marked_and_its_replacement_is_not():
    thread = [
        make_prompt("start", "u1"),
        make_reply("m1", uuid="u2", parent="u1"),
        make_prompt("wrong", "u3", "u2"),
        make_reply("m2", uuid="u4", parent="u3"),
        make_prompt("more of it", "u5", "u4"),
        make_prompt("right", "u6", "u2"),
        make_reply("m3", uuid="u7", parent="u6"),
    ]

    assert {turn.text: turn.is_rewound for turn in build_all_turns(*thread)} == {
        "start": False,
        "wrong": True,
        "more of it": True,
        "right": False,
    }


def test_records_without_a_name_are_never_taken_back():
    thread = [
        make_prompt("start", "u1"),
        make_prompt("nameless", "", "u1"),
        make_reply("m1", uuid="u2", parent="u1"),
        make_prompt("root", "u9"),
        make_reply("m2", uuid="u10", parent="u2"),
    ]

    assert [turn.is_rewound for turn in build_all_turns(*thread)] == [False] * 3


def test_parents_that_go_in_circles_end():
    assert (
        len(build_all_turns(make_prompt("a", "u1", "u2"), make_reply("m", uuid="u2", parent="u1")))
        == 1
    )


def test_an_unknown_model_costs_an_unknown_amount():
    (turn,) = build_all_turns(make_prompt("a"), make_reply("m", model="mystery"))

    assert turn.steps[0].cost == Cost(None, CostSource.UNKNOWN)


def test_a_note_within_the_last_one_is_shown_unless_both_are_a_hooks():
    outputs = [make_prompt(text, kind=PromptKind.COMMAND_OUTPUT) for text in ("10", "1")]
    hooked = [entry(ClientNote("hook", "feedback: no")), entry(ClientNote("hook", "no"))]

    assert [item.text for item in build_all_turns(make_prompt("a"), *outputs)[0].items] == [
        "10",
        "1",
    ]
    assert [item.text for item in build_all_turns(make_prompt("a"), *hooked)[0].items] == [
        "feedback: no"
    ]


def plain(uuid, parent="", at=0, key=""):
    return Entry(Ignored("x"), "s", uuid, parent, order_ms=at, key=key or f"{uuid}:0")


records = st.lists(
    st.builds(
        plain,
        st.sampled_from(["", "a", "b", "c", "d"]),
        st.sampled_from(["", "a", "b", "c", "d", "gone"]),
        st.integers(0, 2),
        st.uuids().map(str),
    ),
    max_size=10,
    unique_by=lambda item: item.key,
)


@given(records, st.randoms())
def test_the_order_read_in_does_not_matter(records, chance):
    shuffled = chance.sample(records, len(records))

    assert sort_entries(shuffled) == sort_entries(records)


@given(records)
def test_nothing_is_lost_or_repeated_even_in_cycles(records):
    assert sorted(record.key for record in sort_entries(records)) == sorted(
        record.key for record in records
    )


def test_a_record_follows_its_parent_whatever_their_times():
    records = [plain("a", "b", 1), plain("b", "c", 2), plain("c", "", 3)]

    assert [record.uuid for record in sort_entries(records)] == ["c", "b", "a"]


def test_between_free_choices_the_earlier_then_the_smaller_key_comes_first():
    records = [plain("c", at=2), plain("b", at=1), plain("a", at=1)]

    assert [record.uuid for record in sort_entries(records)] == ["a", "b", "c"]


def test_a_missing_parent_makes_a_root_and_a_cycle_goes_last_by_time():
    records = [
        plain("x", "y", 1),
        plain("y", "x", 0),
        plain("self", "self", 3),
        plain("child", "gone", 4),
    ]

    assert [record.uuid for record in sort_entries(records)] == ["self", "child", "y", "x"]


def test_ten_thousand_replies_in_a_row_are_no_problem():
    records = [plain(f"u{place:05}", f"u{place - 1:05}") for place in range(10_000)]

    assert sort_entries(reversed(records)) == records
