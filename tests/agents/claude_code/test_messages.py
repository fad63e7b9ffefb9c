import base64

import pytest

from flightlog.agents.claude_code.messages import decode_blocks, user_events
from flightlog.model.entries import (
    Image,
    PromptKind,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownBlock,
    UserPrompt,
)
from support.cpu_time import measure_cpu
from support.transcripts import user


def prompt(content, **fields):
    (event,) = user_events(user(content, **fields))
    assert isinstance(event, UserPrompt)
    return event


def result(record):
    (event,) = user_events(record)
    assert isinstance(event, ToolResult)
    return event


def make_tool_result(content="done", **fields):
    return user([{"type": "tool_result", "tool_use_id": "t1", "content": content}], **fields)


@pytest.mark.parametrize(
    ("content", "fields", "kind"),
    [
        ("do it", {}, PromptKind.HUMAN),
        ("do it", {"isMeta": True}, PromptKind.CLIENT),
        ("do it", {"isMeta": "true"}, PromptKind.HUMAN),
        ("summary", {"isCompactSummary": True}, PromptKind.SUMMARY),
        ("[Request interrupted by user]", {}, PromptKind.INTERRUPTION),
        ("[Request interrupted by user for tool use]", {}, PromptKind.INTERRUPTION),
        ("why [Request interrupted by user]?", {}, PromptKind.HUMAN),
        ("go on", {"interruptedMessageId": "m"}, PromptKind.INTERRUPTION),
        ("done", {"turnOrigin": "task_notification"}, PromptKind.TASK),
        ("<task-notification>done", {}, PromptKind.TASK),
        ("<bash-notification>done", {}, PromptKind.TASK),
        ('<teammate-message teammate_id="t">done', {}, PromptKind.TASK),
        ("Unknown skill: deploy", {}, PromptKind.COMMAND_OUTPUT),
        ("Unknown skill: what is that?", {}, PromptKind.HUMAN),
        ("Commands are in the form `/command [args]`", {}, PromptKind.COMMAND_OUTPUT),
        ("Tool loaded.", {}, PromptKind.CLIENT),
        ("Operation stopped by hook: no", {}, PromptKind.HOOK),
        ("<local-command-stdout>x</local-command-stdout>", {}, PromptKind.COMMAND_OUTPUT),
        ("<bash-stderr>x</bash-stderr>", {}, PromptKind.COMMAND_OUTPUT),
        ("  <command-name>/clear</command-name>", {}, PromptKind.COMMAND),
        ("<local-command-caveat>x", {}, PromptKind.CLIENT),
        ("Stop hook feedback: no", {"isMeta": True}, PromptKind.HOOK),
    ],
)
def test_words_to_the_model_are_shown_by_speaker(content, fields, kind):
    assert prompt(content, **fields).kind is kind


def test_commands_are_written_as_they_were_typed():
    typed = "<command-message>x</command-message><command-name>/review</command-name><command-args> 7 </command-args>"

    assert prompt(typed).content == (Text("/review 7"),)
    assert prompt("<bash-input>ls -l</bash-input>").content == (Text("! ls -l"),)
    assert prompt("<command-name>unclosed").content == (Text("! <command-name>unclosed"),)
    assert prompt("<bash-stdout>a</bash-stdout><bash-stderr>b</bash-stderr>").content == (
        Text("ab"),
    )


def test_a_prompt_made_of_open_tags_takes_no_time():
    tags = ("<bash-input>", "<command-name>", "<bash-stdout>", "[Request interrupted by user")

    with measure_cpu() as seconds:
        for tag in tags:
            prompt(tag * 100_000)

    assert seconds[0] < 3


def test_a_tool_result_is_no_prompt_unless_words_stand_beside_it():
    assert [type(event) for event in user_events(make_tool_result())] == [ToolResult]
    beside = user(
        [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "and this"}]
    )
    assert [type(event) for event in user_events(beside)] == [ToolResult, UserPrompt]


def test_results_that_are_equal_are_both_shown():
    one = {"type": "tool_result", "tool_use_id": "t", "content": "same"}

    assert len(user_events(user([one, dict(one)]))) == 2


def test_a_record_with_thousands_of_parts_takes_no_time():
    parts = [
        {"type": "tool_result", "tool_use_id": f"t{place}", "content": "x"}
        for place in range(20_000)
    ]
    texts = [{"type": "text", "text": str(place)} for place in range(20_000)]

    with measure_cpu() as seconds:
        events = user_events(user([*parts, *texts]))

    assert len(events) == 20_001
    assert seconds[0] < 3


def test_the_structured_result_belongs_to_a_lone_result_only():
    detail = {"agentId": "a7", "totalTokens": 3}
    two = [{"type": "tool_result", "tool_use_id": name} for name in "ab"]

    assert result(make_tool_result(toolUseResult=detail)).subagent == "a7"
    assert [event.detail for event in user_events(user(two, toolUseResult=detail))] == [None, None]
    assert result(make_tool_result(toolUseResult="Error: no")).detail == "Error: no"


def test_spilled_output_names_its_file():
    output = "<persisted-output>\nFull output saved to: /x/tool-results/b1.txt\n\nPreview"

    assert result(make_tool_result(output)).result_file == "/x/tool-results/b1.txt"
    assert result(make_tool_result("nothing")).result_file == ""


def test_a_denied_call_says_by_whom():
    assert (
        result(
            make_tool_result(permissionDecision={"decision": "reject", "source": "user"})
        ).denial_reason
        == "user"
    )
    assert (
        result(make_tool_result(permissionDecision={"decision": "reject"})).denial_reason
        == "rejected"
    )
    assert (
        result(
            make_tool_result(permissionDecision={"decision": "allow", "source": "user"})
        ).denial_reason
        == ""
    )
    assert result(make_tool_result(toolDenialKind="mode")).denial_reason == "mode"


def test_a_rejection_that_only_the_result_names_is_a_denial():
    words = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    rejected = {"type": "tool_result", "tool_use_id": "t", "content": words, "is_error": True}

    assert result(user([rejected])).denial_reason == "user-rejected"
    assert result(user([{**rejected, "is_error": False}])).denial_reason == ""
    assert result(user([{**rejected, "content": f"$ cat x\n{words}"}])).denial_reason == ""


def test_every_kind_of_block_is_read_and_an_unknown_one_is_kept():
    picture = base64.b64encode(b"png").decode()
    content = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "b"},
        {"type": "redacted_thinking", "data": "?"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
        {"type": "image", "source": {"media_type": "image/png", "data": picture}},
        {"type": "image", "source": {"media_type": "image/png", "data": "no base64 é"}},
        {"type": "hologram", "text": "c"},
        {},
        "not a block",
    ]

    assert decode_blocks(content) == (
        Text("a"),
        Thinking("b"),
        Thinking("", is_withheld=True),
        ToolUse("t", "Bash", {"command": "ls"}),
        Image("image/png", 3, picture),
        Image("image/png", 0, "no base64 é"),
        UnknownBlock("hologram", "c"),
        UnknownBlock("?"),
    )
    assert decode_blocks("words") == (Text("words"),)
    assert decode_blocks(None) == decode_blocks(7) == decode_blocks({}) == ()


@pytest.mark.parametrize(
    "message", [None, 7, "x", [], {}, {"content": None}, {"content": [None, 1, "x", []]}]
)
def test_malformed_user_record_is_an_empty_prompt(message):
    assert [type(event) for event in user_events({"type": "user", "message": message})] == [
        UserPrompt
    ]
