"""Gemini CLI: messages written twice, resumed and rewound histories, whole-file sessions, subagents."""

import json
import shutil
from pathlib import Path

import pytest

from flightlog.agents import find_agent
from flightlog.agents.dialects.gemini import decode_usage
from flightlog.agents.gemini.decode import TOKEN_NAMES
from flightlog.model.entries import AssistantReply, ToolResult
from flightlog.model.session import NoteKind
from flightlog.model.usage import Breakdown, Usage
from support.agent_sessions import find_files
from support.cli_runs import within
from support.client_recordings import lay_out_home, wire_lines, wire_usage
from support.recorded_agents import agent_dir, read_archive, read_events, total_usage

GEMINI = find_agent("gemini")
TOOLS = "gemini/0.61.0/tools-cached-thoughts"
DOCUMENT = "gemini/0.20.0/text-and-tools"


def write_session(home, *records):
    """A session of these records; a message gets a time."""
    path = home / "tmp" / "p" / "chats" / "session-2026-01-02T03-04-abcdef01.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"sessionId": "s", "projectHash": "h", "kind": "main"}]
    for second, record in enumerate(records):
        timed = {"timestamp": f"2026-01-02T03:04:{second:02}Z", **record}
        lines.append(timed if "id" in record else record)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def reply(name, tokens=None, text="Yes."):
    counts = tokens and {"input": tokens, "output": 5, "cached": 0, "thoughts": 0, "total": 0}
    message = {"id": name, "type": "gemini", "content": text, "tokens": counts}
    return message | {"model": "gemini-2.5-pro"}


def prompt(name, text):
    return {"id": name, "type": "user", "content": [{"text": text}]}


def read_one(home):
    (session,) = read_archive("gemini", home).iter_sessions()
    return session


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"input": 1400, "output": 60, "cached": 400, "total": 1460}, Usage(1000, 60, 400)),
        ({"input": 1400, "output": 60, "thoughts": 30, "total": 1490}, Usage(1400, 90)),
        ({"input": 1400, "output": 60, "tool": 20, "total": 1480}, Usage(1420, 60)),
        ({"input": "many", "output": 60}, Usage(0, 60)),
    ],
)
def test_cached_is_inside_input_and_thoughts_beside_output(tokens, expected):
    assert decode_usage(tokens, TOKEN_NAMES) == expected


def test_counts_are_those_of_one_call(tmp_path):
    home = agent_dir(tmp_path, TOOLS)

    replies = {reply.message_id: reply for reply in read_events("gemini", home, AssistantReply)}

    sent = [line["usage"]["promptTokenCount"] for line in wire_lines(TOOLS)]
    assert [reply.usage.prompt_tokens for reply in replies.values()] == sent


def test_a_resumed_session_has_each_message_once(tmp_path):
    session = read_one(agent_dir(tmp_path, TOOLS))

    assert [turn.text for turn in session.turns] == ["Write greet.py", "And then?"]
    assert [len(turn.steps) for turn in session.turns] == [4, 1]
    calls = [call.name for step in session.steps for call in step.tool_calls]
    assert calls == ["run_shell_command", "write_file", "read_file", "replace"]
    assert (session.cwd, session.unknown_record_types) == ("/home/dev/project", ())


def test_results_have_errors_and_exit_codes(tmp_path):
    results = read_events("gemini", agent_dir(tmp_path, TOOLS), ToolResult)

    assert [(result.is_error, result.detail) for result in results] == [
        (True, {"exitCode": 3}),
        (False, None),
        (True, None),
        (False, None),
    ]


def test_thinking_is_kept(tmp_path):
    session = read_one(agent_dir(tmp_path, TOOLS))

    assert session.steps[0].content[0].text.startswith("**Looking** Run the test")


def test_a_subagent_is_nested_under_its_call_and_gives_no_title(tmp_path):
    session = read_one(agent_dir(tmp_path, "gemini/0.61.0/subagent"))

    (subagent,) = session.subagents
    (call,) = session.steps[0].tool_calls
    assert (subagent.tool_call_id, call.subagent) == (call.id, subagent.id)
    assert (subagent.agent_type, len(subagent.turns[0].steps)) == ("generalist", 2)
    assert session.title == "Delegate the counting"


def test_following_calls_the_prompt_of_a_subagent_a_task(tmp_path):
    lay_out_home(tmp_path, "gemini/0.61.0/subagent")
    (file, *_) = find_files("gemini", tmp_path)

    ran = within(tmp_path, "session", "follow", file.session, "--idle", "0.1", HOME=str(tmp_path))

    assert "    task, 16:16:08 UTC\n" in ran.out
    assert "human" not in ran.out


def test_a_line_without_tokens_does_not_erase_them(tmp_path):
    history = {"id": "a", "type": "gemini", "content": [{"text": "Yes."}]}
    write_session(
        tmp_path,
        *(prompt("p", "Ask"), reply("a"), reply("a", 100), reply("a"), reply("b")),
        {"$set": {"messages": [prompt("p", "Ask"), history]}},
    )

    report = read_archive("gemini", tmp_path).usage_report(Breakdown.SESSION, None)

    assert report.total.usage == Usage(100, 5)
    assert (report.total.responses, report.total.unknown_responses) == (2, 1)
    assert [step.usage for step in read_one(tmp_path).steps] == [Usage(100, 5), Usage()]


def test_a_message_written_at_each_finished_tool_is_one_step(tmp_path):
    call = {"name": "read_file", "args": {}, "status": "success", "result": [{"text": "Done."}]}
    first, second = call | {"id": "1"}, call | {"id": "2"}
    running = {"id": "1", "name": "read_file", "args": {}, "status": "executing"}
    versions = ([running], [first], [first, second])
    write_session(
        tmp_path,
        prompt("p", "Read"),
        *(reply("a", 10) | {"toolCalls": calls} for calls in versions),
    )

    (step,) = read_one(tmp_path).steps

    assert [(call.id, call.output) for call in step.tool_calls] == [("1", "Done."), ("2", "Done.")]
    assert [block.text for block in step.content] == ["Yes."]
    assert len(read_events("gemini", tmp_path, ToolResult)) == 2


def test_rewound_prompts_are_marked(tmp_path):
    write_session(
        tmp_path,
        *(prompt("p", "First"), reply("a", 10), prompt("q", "Second"), reply("b", 20)),
        {"$rewindTo": "q"},
        *(prompt("r", "Third"), reply("c", 30)),
    )

    session = read_one(tmp_path)

    assert [turn.is_rewound for turn in session.turns] == [False, True, False]
    assert total_usage("gemini", tmp_path) == Usage(60, 15)


def test_a_shortened_history_is_a_compaction(tmp_path):
    summary = prompt("s", "<state_snapshot>Asked once.</state_snapshot>")
    answer = {"id": "t", "type": "gemini", "content": [{"text": "Got it."}]}
    write_session(
        tmp_path,
        *(prompt("p", "Ask"), reply("a", 900), {"$set": {"messages": [summary, answer]}}),
        *(prompt("q", "Again"), reply("b", 20), {"$set": {"summary": "Two questions"}}),
    )

    session = read_one(tmp_path)

    notes = [item for item in session.turns[0].items if hasattr(item, "text")]
    kinds = [note.kind for note in notes]
    assert kinds == [NoteKind.COMPACTION, NoteKind.SUMMARY, NoteKind.CLIENT]
    assert notes[0].text == "context compacted (unsaid), from 905 tokens"
    assert (session.title, len(session.steps)) == ("Two questions", 2)


def test_notes_and_errors_of_the_client_are_shown(tmp_path):
    write_session(
        tmp_path,
        *(prompt("p", "Ask"), {"id": "e", "type": "error", "content": "No quota left."}),
        {"id": "i", "type": "info", "content": "Model changed."},
    )

    notes = [(note.kind, note.text) for note in read_one(tmp_path).turns[0].items]

    assert notes == [
        (NoteKind.API_FAILURE, "No quota left."),
        (NoteKind.REMARK, "Model changed."),
    ]


def test_a_cancelled_call_is_denied(tmp_path):
    call = {"id": "c", "name": "run_shell_command", "args": {}, "status": "cancelled"}
    write_session(tmp_path, reply("a", 10) | {"toolCalls": [call | {"result": [{"text": "No."}]}]})

    ((result,),) = [step.tool_calls for step in read_one(tmp_path).steps]

    assert (result.denial_reason, result.permission_decision) == ("No.", "deny")


def test_a_whole_file_session_is_read_as_lines(tmp_path):
    home = agent_dir(tmp_path, DOCUMENT)
    (file,) = GEMINI.find([str(home)]).files

    session = read_one(home)

    assert file.path.endswith(".json/messages")
    assert [len(turn.steps) for turn in session.turns] == [2, 1]
    assert GEMINI.source.session_files(file) == (file,)
    assert GEMINI.source.tail(file.path, 0).end == file.size


def test_a_damaged_whole_file_session_is_reported(tmp_path):
    home = agent_dir(tmp_path, DOCUMENT)
    (path,) = home.rglob("session-*.json")
    path.write_bytes(path.read_bytes()[:-20])

    (file,) = GEMINI.find([str(home)]).files

    (damage,) = GEMINI.source.entries(file)
    assert "not a session" in damage.reason
    assert GEMINI.source.scan_usage(file).error


def test_a_whole_file_that_was_continued_counts_once(tmp_path):
    home = agent_dir(tmp_path, DOCUMENT)
    (file,) = GEMINI.find([str(home)]).files
    (path,) = home.rglob("session-*.json")
    lines = [entry.event for entry in GEMINI.source.entries(file) if hasattr(entry, "event")]
    document = json.loads(path.read_text())
    header = {name: value for name, value in document.items() if name != "messages"}

    records = (header, *document["messages"])
    path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in records))

    assert [near.path for near in GEMINI.find([str(home)]).files] == [f"{path}l"]
    assert total_usage("gemini", home) == wire_usage(DOCUMENT)
    assert len(lines) > len(records)


def test_a_response_that_the_client_did_not_count_is_not_made_up(tmp_path):
    case = "gemini/0.20.0/tools-cached-thoughts"

    counted = total_usage("gemini", agent_dir(tmp_path, case))

    assert wire_usage(case) - counted == Usage(200, 60, 1300)  # the second call, a tool call alone


def test_the_second_file_of_a_resumed_session_is_left_out(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    first, second = sorted(home.rglob("session-*.jsonl"))  # another minute, the same session

    (file,) = GEMINI.find([str(home)]).files
    first.unlink()
    (left,) = GEMINI.find([str(home)]).files

    assert (file.path, left.path) == (str(first), str(second))
    assert file.session == left.session


def test_several_directories_are_listed(tmp_path):
    home = agent_dir(tmp_path / "a", TOOLS)
    shutil.copytree(home, tmp_path / "b")

    listing = GEMINI.find([str(home), str(tmp_path / "b"), str(tmp_path / "absent")])

    assert (len(listing.files), listing.damage) == (2, ())
    assert {file.session for file in listing.files} == {listing.files[0].session}


def test_files_that_cannot_be_read_are_damage_and_hide_no_other(tmp_path):
    path = write_session(tmp_path, prompt("a", "Hello."))
    project = path.parents[1]
    (project / ".project_root").symlink_to("/proc/self/mem")  # a file of which no byte is readable
    path.with_name("session-memory.jsonl").symlink_to("/proc/self/mem")
    path.with_name("session-circle.jsonl").symlink_to("session-circle.jsonl")
    (path.parent / "s").mkdir()
    (path.parent / "s" / "a b.jsonl").write_text("{}\n")
    circle = project.with_name("q")
    circle.mkdir()
    (circle / "chats").symlink_to("chats")

    listing = GEMINI.find([str(tmp_path)])

    assert [file.session for file in listing.files] == ["s", "session-memory"]
    reasons = {Path(damage.path).name: damage.reason for damage in listing.damage}
    assert reasons == {
        "a b.jsonl": "not a usable subagent id",
        "session-circle.jsonl": "Too many levels of symbolic links",
        "chats": "Too many levels of symbolic links",
    }
    session = read_archive("gemini", tmp_path).read_session("s")
    assert [turn.text for turn in session.turns] == ["Hello."]
    assert session.cwd == ""
