import itertools
import socket

import pytest

from flightlog.agents.scripted import agent
from flightlog.agents.scripted.agent import ScriptedAgent, ScriptedEnvironment
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.archive import Archive
from flightlog.model.errors import Unavailable


def scenario(*replies):
    return parse_scenario({"rules": [{"when": {"prompt": "go"}, "replies": [*replies]}]})


def tool(name, **given):
    return {"blocks": [{"tool": name, "input": given}]}


def run_agent(where, *replies):
    """Let the agent work; return its last words and the session as it was recorded."""
    project = where / "project"
    project.mkdir()
    times, ids = itertools.count(1_793_620_800_000, 1000), itertools.count()
    with serve_scenario(scenario(*replies, {"text": "done"})) as model:
        desk = ScriptedEnvironment(
            model.url, project, where / "config", lambda: next(times), lambda: f"id-{next(ids)}"
        )
        words = ScriptedAgent(desk, "s1").run_prompt("go")
    return words, Archive({"claude-code": (str(where / "config"),)}).read_session("s1")


def outputs(session):
    return [(call.output, call.is_error) for step in session.steps for call in step.tool_calls]


def test_tools_are_run_for_real_and_recorded_as_the_client_does(tmp_path):
    words, session = run_agent(
        tmp_path,
        tool("Write", file_path="a.txt", content="one\n"),
        tool("Edit", file_path="a.txt", old_string="one", new_string="two"),
        tool("Read", file_path="a.txt"),
        tool("Bash", command="cat a.txt; exit 3"),
    )

    assert words == "done"
    assert (tmp_path / "project" / "a.txt").read_text() == "two\n"
    assert outputs(session)[2:] == [("two\n", False), ("Exit code 3\ntwo", True)]
    assert session.unknown_record_types == session.unknown_fields == session.damage == ()
    assert [turn.text for turn in session.turns] == ["go"]


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("Hologram", {}, "No such tool: Hologram"),
        ("Write", {"content": "x"}, "The argument 'file_path' is missing."),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, "No such file"),
        ("Read", {"file_path": "."}, "Is a directory"),
        ("Read", {"file_path": "binary"}, "can't decode"),
        (
            "Edit",
            {"file_path": "text", "old_string": "absent", "new_string": "y"},
            "String to replace not found",
        ),
        ("Write", {"file_path": "text/x", "content": "y"}, "not a directory"),
        ("Bash", {"command": "kill -9 $$"}, "Exit code -9"),
    ],
)
def test_a_tool_that_fails_is_a_result_and_not_the_end(tmp_path, name, given, error):
    make = tool("Bash", command=r"printf 'x' > text; printf '\377' > binary")

    words, session = run_agent(tmp_path, make, tool(name, **given))

    assert words == "done"
    assert outputs(session)[1][1] is True
    assert error.lower() in outputs(session)[1][0].lower()


def test_a_model_that_is_not_there_is_unavailable(tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    agent = ScriptedAgent(
        ScriptedEnvironment(url, tmp_path, tmp_path / "config", lambda: 0, lambda: "x"), "s1"
    )

    with pytest.raises(Unavailable):
        agent.run_prompt("go")


def test_a_proxy_of_the_environment_has_no_part_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    assert run_agent(tmp_path)[0] == "done"


def test_an_agent_that_never_rests_is_stopped(tmp_path):
    with pytest.raises(Unavailable, match="did not finish"):
        run_agent(tmp_path, *(tool("Bash", command="true") for _ in range(agent.STEPS_MAX + 1)))
