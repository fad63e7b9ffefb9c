"""Each agent's real client runs one short case: a prompt, a tool call, an answer."""

import pytest

from flightlog.agents.dialects import anthropic_messages, gemini
from flightlog.model.usage import Usage
from support.real_clients import RECIPES, make_machine
from support.scripted_apis import openai_chat, openai_responses

COUNTS = {"input": 1000, "output": 40, "cache_read": 300, "reasoning": 10}
DECODE = {
    "messages": anthropic_messages.decode_usage,
    "responses": openai_responses.decode_usage,
    "chat": openai_chat.decode_usage,
    "gemini": gemini.decode_usage,
}
# Pi needs a newer Node than the machine may have; it is installed for recordings alone.
TESTED = ("codex", "opencode", "copilot", "gemini", "qwen")


def script(machine):
    """One prompt: the model thinks, runs a command and answers."""
    call = [
        {"thinking": "A file is wanted."},
        {"text": "I make it."},
        machine.shell_call("echo made by the client > made.txt; cat made.txt"),
    ]
    replies = [{"blocks": call, "usage": COUNTS}, {"text": "All done.", "usage": COUNTS}]
    return {"rules": [{"when": {"prompt": "make a file"}, "name": "main", "replies": replies}]}


@pytest.mark.parametrize("client", TESTED)
def test_a_real_client_runs_a_tool_and_keeps_its_session(client, tmp_path):
    machine = make_machine(tmp_path, client)

    run = machine.run(script(machine), "make a file please")

    answered = [request for request in run.calls if request.rule == "main"]
    assert (run.exit_code, len(answered)) == (0, 2), run.stderr
    assert {request.dialect for request in answered} == {RECIPES[client].dialect}
    usage = [DECODE[request.dialect](request.usage) for request in answered]
    assert usage == [Usage(1000, 40, 300)] * 2
    assert (machine.project / "made.txt").read_text() == "made by the client\n"
    assert "made by the client" in str(answered[1].body)
    assert [path for pattern in RECIPES[client].state for path in machine.home.glob(pattern)]


@pytest.mark.parametrize(
    ("extra", "dialect"),
    [
        ({"COPILOT_PROVIDER_WIRE_API": "responses"}, "responses"),
        ({"COPILOT_PROVIDER_TYPE": "anthropic"}, "messages"),
    ],
)
def test_copilot_runs_with_other_providers(extra, dialect, tmp_path):
    machine = make_machine(tmp_path, "copilot", **extra)

    run = machine.run(script(machine), "make a file please")

    assert run.exit_code == 0, run.stderr
    assert {request.dialect for request in run.calls} == {dialect}


def test_a_second_run_continues_the_session_of_the_first(tmp_path):
    machine = make_machine(tmp_path, "codex")
    session = machine.run(script(machine), "make a file please").session

    again = machine.run(
        {"rules": [{"replies": [{"text": "Go on."}]}]}, "And now?", "resume", session
    )

    assert again.exit_code == 0, again.stderr
    assert "make a file please" in str(again.calls[0].body)
