"""A record nested out of all measure: told as it is, or told as damage, but never the end of a command."""

import json

import pytest

from flightlog.model.errors import DEPTH_MAX
from support.archive_maker import prompt, put, reply
from support.cli_runs import flightlog

SESSION = "11111111-2222-4333-8444-555555555555"
COMMANDS = (
    ["session", "usage", "--json"],
    ["session", "list", "--json"],
    ["session", "show", SESSION],
    ["session", "show", SESSION, "--json"],
    ["session", "search", "hello", "--json"],
    ["session", "export", SESSION, "--format", "html", "--output", "{out}/s.html"],
    ["session", "export", SESSION, "--format", "md", "--output", "{out}/s.md"],
    ["session", "export", SESSION, "--atif", "--output", "{out}/atif"],
    ["share", SESSION, "--output", "{out}/shared.html"],
    ["settle", SESSION, "--json"],
    ["status", "--json"],
    ["trace", SESSION, "--json"],
    ["privacy", "scan", "--sessions", "--json"],
    ["up", "--json"],
)


def nest_json(depth: int) -> str:
    """Objects and arrays within each other."""
    return '{"a":[' * (depth // 2) + '"deep"' + "]}" * (depth // 2)


def record_session(root, depth):
    """A session with a call, a result and an answer; the first two hold what is nested."""
    call = reply(
        "m1",
        7,
        at=2,
        content=[{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"x": "HERE"}}],
    )
    result = prompt([{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}], at=3)
    returned = json.loads(result) | {"toolUseResult": "HERE"}
    lines = [call, json.dumps(returned).encode() + b"\n"]
    deep = [line.replace(b'"HERE"', nest_json(depth).encode()) for line in lines]
    put(root, SESSION, prompt("hello there", at=1), *deep, reply("m2", 5, at=4, text="hello again"))


@pytest.mark.parametrize("depth", [DEPTH_MAX - 20, 2 * DEPTH_MAX - 20, 980, 5000, 50_000])
def test_no_command_ends_in_a_traceback(tmp_path, depth):
    record_session(tmp_path, depth)

    for command in COMMANDS:
        ran = flightlog(tmp_path, *(word.format(out=tmp_path) for word in command))

        assert "Traceback" not in ran.err, (command, ran.err[-300:])
        assert ran.code == 0, (command, ran.err)
    shown = flightlog(tmp_path, "session", "show", SESSION).out
    assert "hello there" in shown
    assert "hello again" in shown


def test_what_is_nested_too_deeply_is_damage_with_a_place(tmp_path):
    record_session(tmp_path, 5000)

    ran = flightlog(tmp_path, "doctor", "--json")

    assert ran.code == 3
    assert "nested too deeply" in ran.out
