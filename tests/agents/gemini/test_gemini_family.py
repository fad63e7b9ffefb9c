"""Laws of Gemini CLI and Qwen Code, on what the real clients wrote and what the model sent."""

import json
import shutil
from pathlib import Path

import pytest

from flightlog.agents import find_agent
from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.dialects import gemini
from flightlog.model.entries import AssistantReply, Entry, UnknownRecord
from flightlog.model.errors import Damage
from flightlog.model.usage import Usage, UsageQuality
from support.cli_runs import within
from support.client_recordings import list_cases, wire_usage
from support.real_clients import make_machine
from support.recorded_agents import (
    agent_dir,
    read_archive,
    read_events,
    session_usage,
    total_usage,
)
from support.scripted_apis import openai_chat

NAMES = ("gemini", "qwen")
# This version of the client wrote no counts for a response that was a tool call alone.
LOSSY = "gemini/0.20.0/tools-cached-thoughts"
CASES = [case for name in NAMES for case in list_cases(name) if case != LOSSY]
ONE_OF_EACH = ("gemini/0.61.0/multi-turn-tools", "qwen/0.15.10/multi-turn-tools")


@pytest.mark.parametrize("case", CASES)
def test_usage_equals_what_the_model_sent(case, tmp_path):
    name = case.partition("/")[0]
    home = agent_dir(tmp_path, case)

    (session,) = read_archive(name, home).iter_sessions()

    assert total_usage(name, home) == wire_usage(case)
    assert session_usage(session) == wire_usage(case)


@pytest.mark.parametrize("case", CASES)
def test_replies_and_counted_lines_name_the_same_responses(case, tmp_path):
    name = case.partition("/")[0]
    home = agent_dir(tmp_path, case)
    agent = find_agent(name)

    rows = [
        row for file in agent.find([str(home)]).files for row in agent.source.scan_usage(file).rows
    ]
    counted = {
        reply.message_id: reply.usage
        for reply in read_events(name, home, AssistantReply)
        if reply.quality is not UsageQuality.MISSING
    }

    assert counted == {row.message_id: Usage(*row[3:9]) for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_grows_line_by_line_reads_as_one(case, tmp_path):
    agent = find_agent(case.partition("/")[0])
    home = agent_dir(tmp_path, case)
    for file in agent.find([str(home)]).files:
        if file.path.endswith("/messages"):
            continue  # a document does not grow
        path = Path(file.path)
        data = path.read_bytes()
        expected = [item for item in agent.source.entries(file) if isinstance(item, Entry)]
        items, rows, end = [], {}, 0
        for at in [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]:
            path.write_bytes(data[:at])
            items += [item for item in agent.source.entries(file, end) if isinstance(item, Entry)]
            rows |= {row.message_id: row for row in agent.source.scan_usage(file, end).rows}
            end = at

        assert items == expected
        assert rows == {row.message_id: row for row in agent.source.scan_usage(file).rows}


@pytest.mark.parametrize("name", NAMES)
def test_our_copy_reads_the_same_after_the_agent_deleted_its_own(name, tmp_path):
    home, data = agent_dir(tmp_path, *list_cases(name)), tmp_path / "data"
    before = list(read_archive(name, home).iter_sessions())
    usage = total_usage(name, home)
    for session, recording in read_archive(name, home).recordings.items():
        adopt_session_files(str(data), session, recording.files)

    shutil.rmtree(home)

    after = {session.id: session for session in read_archive(name, home, data).iter_sessions()}
    assert len(after) == len(before)
    for session in before:
        copy = after[session.id]
        assert (copy.turns, copy.subagents) == (session.turns, session.subagents)
        assert (copy.cwd, copy.title) == (session.cwd, session.title)
    assert total_usage(name, home, data) == usage


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_damage_is_read_around_and_reported(case, tmp_path):
    name = case.partition("/")[0]
    home = agent_dir(tmp_path, case)
    (path,) = home.rglob("*.jsonl")
    first, *rest = path.read_bytes().splitlines(keepends=True)
    strange = b'{"strange":1}\n{"id":"x","type":"new_thing","uuid":"x"}\n'
    long = b'{"id":"y","uuid":"y","type":"info","content":"%s"}\n' % (b"x" * (20 << 20))
    odd = path.with_name("session-odd name.jsonl")
    odd.write_text("{}\n")

    path.write_bytes(b"".join([first, b'{"torn\n[]\n', strange, long, *rest, rest[-1][:50]]))

    listing = find_agent(name).find([str(home)])
    file = next(file for file in listing.files if file.path == str(path))
    damage = [item for item in find_agent(name).source.entries(file) if isinstance(item, Damage)]
    assert [span.path for span in listing.damage] == [str(odd)]
    assert len(damage) == 3
    assert len(read_events(name, home, UnknownRecord)) >= 2
    assert total_usage(name, home) == wire_usage(case)


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_a_rewritten_file_is_read_again_and_the_old_copy_stays(case, tmp_path):
    name = case.partition("/")[0]
    home, data = agent_dir(tmp_path, case), tmp_path / "data"
    (path,) = home.rglob("*.jsonl")

    for content in (path.read_bytes(), path.read_bytes().splitlines(keepends=True)[0]):
        path.write_bytes(content)
        for session, recording in read_archive(name, home).recordings.items():
            adopt_session_files(str(data), session, recording.files)

    assert total_usage(name, home) == Usage()
    assert total_usage(name, home, data) == wire_usage(case)


@pytest.mark.parametrize("name", NAMES)
def test_commands_work_on_the_sessions(name, tmp_path):
    home = agent_dir(tmp_path, *list_cases(name))
    places = {"HOME": str(tmp_path), "FLIGHTLOG_HOME": str(tmp_path / "data")}

    listed = json.loads(within(None, "session", "list", "--json", **places).out)
    session = next(row["session"] for row in listed if row["tool_calls"] == 4)
    shown = within(None, "session", "show", session, **places).out
    hits = within(None, "session", "search", f"greeting agent:{name}", **places).out
    usage = json.loads(within(None, "session", "usage", "--by", "agent", "--json", **places).out)

    assert {row["agent"] for row in listed} == {name}
    assert shown.count("✗") == 2
    assert session[:8] in hits
    assert [row["agent"] for row in usage["rows"]] == [name]
    assert usage["rows"][0]["output_tokens"] == total_usage(name, home).output_tokens


@pytest.mark.parametrize("name", NAMES)
def test_the_real_client_is_counted_exactly(name, tmp_path):
    machine = make_machine(tmp_path, name)
    look = {"usage": {"input": 700, "output": 80, "cache_read": 300, "reasoning": 25}}
    look["blocks"] = [{"thinking": "Look."}, machine.shell_call("false")]
    decode = {"gemini": gemini, "qwen": openai_chat}[name].decode_usage

    run = machine.run({"rules": [{"replies": [look, {"text": "It fails."}]}]}, "Run it")

    home = machine.home / machine.recipe.folder
    (session,) = read_archive(name, home).iter_sessions()
    sent = sum((decode(call.usage) for call in run.calls), Usage())
    assert total_usage(name, home) == session_usage(session) == sent
    assert [call.is_error for step in session.steps for call in step.tool_calls] == [True]
    assert Path(session.cwd) == machine.project
