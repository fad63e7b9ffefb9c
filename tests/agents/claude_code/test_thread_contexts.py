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
    contexts = read(config_dir(tmp_path, "2.1.325/single-turn"), "dff270bc")

    assert contexts[""].system.startswith("[system prompt")
    assert {"Bash", "Read", "Edit"} <= {tool["name"] for tool in contexts[""].tools}
    assert all("input_schema" in tool for tool in contexts[""].tools)
    assert "environment" in {given.kind for given in contexts[""].context}
    assert contexts[""].copied_message_ids == frozenset()


def test_a_subagent_has_tools_and_a_prompt_of_its_own(tmp_path):
    contexts = read(config_dir(tmp_path, "2.1.325/subagent-foreground"), "7575a0bb")
    names = {
        subagent: {tool["name"] for tool in context.tools} for subagent, context in contexts.items()
    }

    assert set(contexts) == {"", "a18a8ad043c6ab8dd"}
    assert names[""] != names["a18a8ad043c6ab8dd"]


def test_a_response_whose_request_is_noted_elsewhere_is_a_copy(tmp_path):
    contexts = read(config_dir(tmp_path, "2.1.325/branched-at-turn"), "92a86220")

    assert len(contexts[""].copied_message_ids) == 6


def test_client_without_a_request_log_has_an_empty_context(tmp_path):
    write(
        tmp_path,
        SESSION,
        user("go", 1),
        assistant("m1", 2),
        assistant("m2", 3, requestRef="r2"),
        b"{damaged",
        b'"requestRef"',
    )

    (context,) = read(tmp_path).values()

    assert (context.tools, context.system, context.copied_message_ids) == ((), "", frozenset())


def test_malformed_request_shapes_are_skipped(tmp_path):
    shape = {
        "type": "api-request-shape",
        "shapeHash": "s",
        "shape": {"system": "Be kind.", "tools": [1, {"a": 2}]},
    }
    request = {"type": "api-request", "id": "r1", "shapeHash": "s"}
    write(tmp_path, SESSION, shape, request, user("go", 1), assistant("m1", 2, requestRef="r1"))

    context = read(tmp_path)[""]

    assert (context.tools, context.system) == ((), "Be kind.")


def test_missing_file_has_no_contexts(tmp_path):
    path = write(tmp_path, SESSION, user("go", 1))
    files = find_transcripts(str(tmp_path)).files
    path.unlink()

    assert ClaudeCodeSource().thread_contexts(files) == {}
