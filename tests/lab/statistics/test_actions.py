from flightlog.lab.statistics.groups import (
    CUT,
    NOTHING,
    REFUSED,
    TEXT,
    action_by_tool,
    action_of_response,
)


def used(name, **given):
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}


def test_what_does_not_change_what_is_done_does_not_change_the_action():
    one = action_of_response(
        [
            {"type": "text", "text": "Let me see."},
            used("Bash", command="cat /w/shop/a.py  \nls /w/shop", description="Show"),
        ],
        "tool_use",
        "/w/shop",
    )
    other = action_of_response(
        [used("Bash", description="Look at it", command="cat ./a.py\nls .\n")],
        "tool_use",
        "/w/shop/",
    )

    assert one.key == other.key
    assert one.label == "Bash cat ./a.py\nls ."


def test_another_argument_another_tool_or_another_order_is_another_action():
    keys = {
        action_of_response(content, "tool_use", "/w").key
        for content in (
            [used("Bash", command="ls")],
            [used("Bash", command="ls -l")],
            [used("Bash", command="ls", timeout=5)],
            [used("Glob", command="ls")],
            [used("Bash", command="ls"), used("Bash", command="pwd")],
            [used("Bash", command="pwd"), used("Bash", command="ls")],
            [used("Bash", command="ls /word")],
        )
    }

    assert len(keys) == 7
    assert (
        action_by_tool(
            action_of_response(
                [used("Bash", command="ls"), used("Read", file_path="a")], "tool_use"
            )
        ).key
        == "Bash + Read"
    )


def test_text_only_refused_and_truncated_responses_are_actions():
    said = [{"type": "text", "text": "Done."}]

    assert action_of_response(said, "end_turn") == action_of_response(
        [{"type": "text", "text": "I am finished"}], "end_turn"
    )
    assert [
        action_of_response(said, stop).key for stop in ("end_turn", "max_tokens", "refusal")
    ] == [
        TEXT,
        CUT,
        REFUSED,
    ]
    assert action_of_response([], "end_turn").key == NOTHING


def test_a_foreign_answer_of_any_form_has_an_action():
    for block in (
        {},
        {"type": "tool_use"},
        {"type": "tool_use", "name": 5, "input": "x"},
        {"type": "text", "text": None},
    ):
        assert action_of_response([block], "").key
