from flightlog.lab.statistics.groups import (
    CUT,
    NOTHING,
    REFUSED,
    TEXT,
    action_by_tool,
    action_of_response,
)


def make_tool_use(name, **given):
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}


def test_irrelevant_differences_give_the_same_action():
    one = action_of_response(
        [
            {"type": "text", "text": "Let me see."},
            make_tool_use("Bash", command="cat /w/shop/a.py  \nls /w/shop", description="Show"),
        ],
        "tool_use",
        "/w/shop",
    )
    other = action_of_response(
        [make_tool_use("Bash", description="Look at it", command="cat ./a.py\nls .\n")],
        "tool_use",
        "/w/shop/",
    )

    assert one.key == other.key
    assert one.label == "Bash cat ./a.py\nls ."


def test_different_argument_tool_or_order_is_another_action():
    keys = {
        action_of_response(content, "tool_use", "/w").key
        for content in (
            [make_tool_use("Bash", command="ls")],
            [make_tool_use("Bash", command="ls -l")],
            [make_tool_use("Bash", command="ls", timeout=5)],
            [make_tool_use("Glob", command="ls")],
            [make_tool_use("Bash", command="ls"), make_tool_use("Bash", command="pwd")],
            [make_tool_use("Bash", command="pwd"), make_tool_use("Bash", command="ls")],
            [make_tool_use("Bash", command="ls /word")],
        )
    }

    assert len(keys) == 7
    assert (
        action_by_tool(
            action_of_response(
                [make_tool_use("Bash", command="ls"), make_tool_use("Read", file_path="a")],
                "tool_use",
            )
        ).key
        == "Bash + Read"
    )


def test_text_only_refused_and_truncated_responses_are_actions():
    blocks = [{"type": "text", "text": "Done."}]

    assert action_of_response(blocks, "end_turn") == action_of_response(
        [{"type": "text", "text": "I am finished"}], "end_turn"
    )
    assert [
        action_of_response(blocks, stop).key for stop in ("end_turn", "max_tokens", "refusal")
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
