"""What a transcript says the model was given."""

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.agents.claude_code.source import ClaudeCodeSource
from support.recordings import config_dir
from support.transcripts import SESSION, assistant, user, write


def read(root, session=SESSION):
    return ClaudeCodeSource().thread_contexts(
        [file for file in find_transcripts(str(root)).files if file.session.startswith(session)]
    )


def test_a_recorded_session_says_its_tools_its_prompt_and_its_context(tmp_path):
    told = read(config_dir(tmp_path, "2.1.325/single-turn"), "dff270bc")

    assert told[""].system.startswith("[system prompt")
    assert {"Bash", "Read", "Edit"} <= {tool["name"] for tool in told[""].tools}
    assert all("input_schema" in tool for tool in told[""].tools)
    assert "environment" in {given.kind for given in told[""].context}
    assert told[""].copied_message_ids == frozenset()


def test_a_subagent_has_tools_and_a_prompt_of_its_own(tmp_path):
    told = read(config_dir(tmp_path, "2.1.325/subagent-foreground"), "7575a0bb")
    names = {subagent: {tool["name"] for tool in each.tools} for subagent, each in told.items()}

    assert set(told) == {"", "a18a8ad043c6ab8dd"}
    assert names[""] != names["a18a8ad043c6ab8dd"]


def test_a_response_whose_request_is_noted_elsewhere_is_a_copy(tmp_path):
    told = read(config_dir(tmp_path, "2.1.325/branched-at-turn"), "92a86220")

    assert len(told[""].copied_message_ids) == 6


def test_of_a_client_that_notes_nothing_nothing_is_claimed(tmp_path):
    write(
        tmp_path,
        SESSION,
        user("go", 1),
        assistant("m1", 2),
        assistant("m2", 3, requestRef="r2"),
        b"{damaged",
        b'"requestRef"',
    )

    (told,) = read(tmp_path).values()

    assert (told.tools, told.system, told.copied_message_ids) == ((), "", frozenset())


def test_shapes_that_are_not_what_they_should_be_are_passed_over(tmp_path):
    shape = {
        "type": "api-request-shape",
        "shapeHash": "s",
        "shape": {"system": "Be kind.", "tools": [1, {"a": 2}]},
    }
    request = {"type": "api-request", "id": "r1", "shapeHash": "s"}
    write(tmp_path, SESSION, shape, request, user("go", 1), assistant("m1", 2, requestRef="r1"))

    told = read(tmp_path)[""]

    assert (told.tools, told.system) == ((), "Be kind.")


def test_a_file_that_is_gone_says_nothing(tmp_path):
    path = write(tmp_path, SESSION, user("go", 1))
    files = find_transcripts(str(tmp_path)).files
    path.unlink()

    assert ClaudeCodeSource().thread_contexts(files) == {}
