from support.transcripts import SESSION, archive, assistant, user, write

CALL = {
    "type": "tool_use",
    "id": "t1",
    "name": "Task",
    "input": {"prompt": "look", "subagent_type": "Explore"},
}


def test_a_session_is_reduced_to_what_happened(tmp_path):
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    records = [
        user("first", 1),
        assistant("m1", 2, CALL),
        user([result], 3),
        user("second", 4),
        assistant("m2", 5),
    ]
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "u6", "parentUuid": "u5"}
    source = archive(tmp_path, *records, boundary, {"type": "hologram"}, b"{torn", user("x", 7))

    (summary,) = source.iter_summaries()

    assert (summary.turns, summary.steps, summary.tool_calls, summary.failed_tool_calls) == (
        3,
        2,
        1,
        1,
    )
    assert (summary.compactions, summary.unknown_records, summary.damage_count) == (1, 1, 1)
    assert (summary.title, summary.project, summary.models) == (
        "first",
        "/home/ada/shop",
        ("claude-opus-5-5",),
    )
    assert summary.usage.output_tokens == 10


def test_the_most_expensive_prompt_includes_its_subagents(tmp_path):
    write(
        tmp_path,
        "agent-a7",
        user("look", 20, agentId="a7", isSidechain=True),
        assistant("inner", 21, tokens={"output_tokens": 9000}, agentId="a7", isSidechain=True),
        project=f"shop/{SESSION}/subagents",
    )
    source = archive(
        tmp_path,
        user("cheap", 1),
        assistant("m1", 2, tokens={"output_tokens": 500}),
        user("dear", 3),
        assistant("m2", 4, CALL),
    )

    (summary,) = source.iter_summaries()

    assert (
        summary.most_expensive_prompt.prompt,
        summary.most_expensive_prompt.steps,
        summary.most_expensive_prompt.address,
    ) == ("dear", 2, f"{SESSION}#2")
    assert summary.subagents == 1


def test_a_session_without_a_step_has_no_most_expensive_prompt(tmp_path):
    (summary,) = archive(tmp_path, user("x", 1)).iter_summaries()

    assert summary.most_expensive_prompt is None
    assert summary.cost.usd == 0.0
