"""Qwen Code: responses by their events, side calls, subagents, forks, permissions, compactions."""

import json
import shutil
from datetime import UTC
from pathlib import Path

import pytest

from flightlog.agents import find_agent
from flightlog.agents.qwen.decode import decode_event, find_subagent
from flightlog.model.entries import Entry, SubagentInfo, ToolResult
from flightlog.model.session import NoteKind
from flightlog.model.usage import Breakdown, Usage
from support.client_recordings import wire_lines, wire_usage
from support.recorded_agents import (
    agent_dir,
    read_archive,
    read_events,
    session_usage,
    total_usage,
)

QWEN = find_agent("qwen")
TOOLS = "qwen/0.24.4/tools-cached-reasoning"
SUBAGENTS = ("qwen/0.15.10/subagent", "qwen/0.24.4/subagent")


def edit_lines(home, change):
    """Rewrite each file by what `change` makes of its records; None removes one."""
    for path in home.rglob("*.jsonl"):
        records = [change(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records if record))


def add_records(home, *records):
    """Append records to the one session below `home`."""
    (path,) = home.rglob("*.jsonl")
    base = {
        "cwd": "/p",
        "gitBranch": "main",
        "timestamp": "2026-11-17T00:00:00Z",
        "version": "0.24.4",
    }
    lines = [base | {"uuid": f"u{at}"} | record for at, record in enumerate(records)]
    path.write_text(path.read_text() + "".join(f"{json.dumps(line)}\n" for line in lines))


def read_lines(home):
    return [line for path in home.rglob("*.jsonl") for line in path.read_text().splitlines()]


def is_event(record):
    event = record.get("systemPayload", {}).get("uiEvent", {})
    return event.get("event.name") == "qwen-code.api_response"


def read_one(home):
    (session,) = read_archive("qwen", home).iter_sessions()
    return session


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((1400, 90, 400, 30, 1490), Usage(1000, 90, 400)),  # Chat Completions: thoughts inside
        ((1400, 60, 400, 30, 1490), Usage(1000, 90, 400)),  # Gemini: thoughts beside
        ((1400, 60, 0, 0, 0), Usage(1400, 60)),
    ],
)
def test_the_total_tells_whether_output_includes_thoughts(counts, expected):
    names = ("input", "output", "cached_content", "thoughts", "total")

    event = {f"{name}_token_count": count for name, count in zip(names, counts, strict=True)}

    assert decode_event(event) == expected


@pytest.mark.parametrize(
    ("prompt_id", "name", "expected"),
    [
        ("s#memory-x1#0", "memory", "memory-x1"),
        ("s########0", "", ""),
        ("46fef97f8c304", "", ""),
        ("46fef97f8c304", "a b", "a_b"),
    ],
)
def test_an_event_names_its_subagent(prompt_id, name, expected):
    assert find_subagent({"prompt_id": prompt_id, "subagent_name": name}) == expected


def test_the_memory_extractor_is_a_side_call_with_its_tokens(tmp_path):
    session = read_one(agent_dir(tmp_path, TOOLS))

    (side,) = session.subagents
    assert (side.agent_type, side.is_side_call) == ("managed-auto-memory-extractor", True)
    assert [step.usage for step in side.turns[0].steps] == [Usage(130, 7, 1800)]
    assert len(session.steps) == len(wire_lines(TOOLS)) - 1


def test_assistant_records_count_where_there_are_no_events(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    side = Usage(130, 7, 1800)  # the memory extractor, which has no assistant record

    edit_lines(home, lambda record: None if is_event(record) else record)

    assert total_usage("qwen", home) == session_usage(read_one(home)) == wire_usage(TOOLS) - side


def test_a_response_without_counts_is_unknown(tmp_path):
    home = agent_dir(tmp_path, TOOLS)

    def remove_counts(record):
        record.pop("usageMetadata", None)
        return None if is_event(record) else record

    edit_lines(home, remove_counts)

    total = read_archive("qwen", home).usage_report(Breakdown.SESSION, None).total
    assert (total.usage, total.responses, total.unknown_responses) == (Usage(), 5, 5)


def test_counts_that_no_event_has_are_not_believed(tmp_path):
    home = agent_dir(tmp_path, SUBAGENTS[1])
    counts = {"promptTokenCount": 77, "candidatesTokenCount": 7, "totalTokenCount": 84}
    for path in home.rglob("*.jsonl"):
        record = {"type": "assistant", "uuid": path.stem, "usageMetadata": counts}
        path.write_text(f"{path.read_text()}{json.dumps(record)}\n")

    assert total_usage("qwen", home) == wire_usage(SUBAGENTS[1])
    assert session_usage(read_one(home)) == wire_usage(SUBAGENTS[1])


def test_responses_with_the_same_id_count_each(tmp_path):
    home = agent_dir(tmp_path, TOOLS)

    def use_one_id(record):
        if is_event(record):
            record["systemPayload"]["uiEvent"]["response_id"] = "chatcmpl-7"
        return record

    edit_lines(home, use_one_id)

    assert total_usage("qwen", home) == wire_usage(TOOLS)


def test_a_branched_session_counts_nothing_twice(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    (path,) = home.rglob("*.jsonl")

    def move(record):
        origin = {"sessionId": record["sessionId"], "messageUuid": record["uuid"]}
        return record | {"sessionId": "fork", "forkedFrom": origin}

    shutil.copytree(home, tmp_path / "copy")
    edit_lines(tmp_path / "copy", move)
    shutil.copy(next((tmp_path / "copy").rglob("*.jsonl")), path.with_name("fork.jsonl"))

    assert len(QWEN.find([str(home)]).files) == 2
    assert total_usage("qwen", home) == wire_usage(TOOLS)


@pytest.mark.parametrize("case", SUBAGENTS)
def test_a_subagent_is_nested_under_its_call(case, tmp_path):
    session = read_one(agent_dir(tmp_path, case))

    (subagent,) = session.subagents
    (call,) = session.steps[0].tool_calls
    steps = [step for turn in subagent.turns for step in turn.steps]
    assert (subagent.tool_call_id, subagent.agent_type) == (call.id, "general-purpose")
    assert [step.usage.output_tokens for step in steps] == [33, 6]
    assert [block.text for block in steps[1].content] == ["Two files."]
    assert not subagent.is_side_call


def test_the_file_of_a_subagent_has_its_prompt_and_tools(tmp_path):
    home = agent_dir(tmp_path, SUBAGENTS[1])
    main, own = QWEN.find([str(home)]).files

    (subagent,) = read_one(home).subagents

    (call,) = subagent.turns[0].steps[0].tool_calls
    assert subagent.turns[0].text == "Task: count the files"
    assert (call.name, call.detail) == ("run_shell_command", {"exitCode": 0})
    assert subagent.turns[0].steps[0].model == "qwen3-coder-plus"
    assert QWEN.source.session_files(own) == (main, own)
    infos = [item for item in QWEN.source.entries(main) if isinstance(item, SubagentInfo)]
    assert [info.tool_call_id for info in infos] == [subagent.tool_call_id]


def test_a_subagent_is_followed_while_its_session_grows(tmp_path):
    home = agent_dir(tmp_path, SUBAGENTS[1])
    main, own = QWEN.find([str(home)]).files
    expected = [item for item in QWEN.source.entries(own) if isinstance(item, Entry)]
    whole, lines = Path(main.path).read_bytes(), Path(own.path).read_bytes().splitlines(True)
    second = whole.index(b'#1"')  # the second response of the subagent
    items, end = [], 0

    for content, count in ((whole[: whole.rindex(b"\n", 0, second) + 1], 4), (whole, len(lines))):
        Path(main.path).write_bytes(content)
        Path(own.path).write_bytes(b"".join(lines[:count]))
        items += [item for item in QWEN.source.entries(own, end) if isinstance(item, Entry)]
        end = sum(map(len, lines[:count]))

    assert items == expected


def test_a_subagent_without_its_session_keeps_its_words(tmp_path):
    home = agent_dir(tmp_path, SUBAGENTS[1])
    main, own = QWEN.find([str(home)]).files
    Path(main.path).unlink()

    entries = [item.event for item in QWEN.source.entries(own) if hasattr(item, "event")]

    assert [type(event).__name__ for event in entries].count("AssistantReply") == 3
    assert QWEN.source.scan_usage(own).rows == []


def test_permissions_and_denials_are_kept(tmp_path):
    (denied,) = read_events("qwen", agent_dir(tmp_path / "a", "qwen/0.24.4/denied"), ToolResult)
    allowed = read_events("qwen", agent_dir(tmp_path / "b", TOOLS), ToolResult)

    assert denied.permission_decision == "deny"
    assert "permission was declined" in denied.denial_reason
    assert {result.permission_decision for result in allowed} == {"allow"}
    assert [(result.is_error, result.detail) for result in allowed[:3]] == [
        (True, {"exitCode": 3}),
        (False, None),
        (True, None),
    ]


def test_calls_for_a_compaction_count_and_show_their_text(tmp_path):
    session = read_one(agent_dir(tmp_path, "qwen/0.24.4/compaction"))

    items = session.turns[0].items
    (note,) = [item for item in items if getattr(item, "kind", None) is NoteKind.COMPACTION]
    before = items[items.index(note) - 1]
    sent = [line["usage"]["prompt_tokens"] for line in wire_lines("qwen/0.24.4/compaction")]
    assert [step.usage.prompt_tokens for step in session.steps] == sent
    assert "<summary>" in before.content[0].text
    assert [block.text for block in session.steps[-1].content] == ["Done."]


def test_titles_commands_errors_and_unknown_records(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    error = {"event.name": "qwen-code.api_error", "error_message": "Too many", "status_code": 429}
    command = {"phase": "invocation", "rawCommand": "/about"}
    add_records(
        home,
        {"type": "system", "subtype": "custom_title", "systemPayload": {"customTitle": "Greeting"}},
        {"type": "system", "subtype": "slash_command", "systemPayload": command},
        {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": error}},
        {"type": "system", "subtype": "brand_new", "systemPayload": {"a": 1}},
    )

    session = read_one(home)

    assert (session.title, session.version, session.branch) == ("Greeting", "0.24.4", "main")
    assert [turn.text for turn in session.turns] == ["Write greet.py", "And then?", "/about"]
    assert [(item.kind, item.text) for item in session.turns[2].items] == [
        (NoteKind.API_FAILURE, "Too many"),
        (NoteKind.UNKNOWN, "system/brand_new with a"),
    ]
    assert session.unknown_record_types == (("system/brand_new", 1),)


def test_words_about_the_event_of_a_response_count_nothing(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    words = {"parts": [{"text": "an event qwen-code.api_response comes first"}]}
    counts = {"promptTokenCount": 7}
    reply = {"type": "assistant", "message": words, "usageMetadata": counts}
    add_records(home, {"type": "user", "message": words})
    (before,) = QWEN.find([str(home)]).files
    end = QWEN.source.scan_usage(before).end
    add_records(home, reply, {"type": "assistant", "usageMetadata": counts})
    (file,) = QWEN.find([str(home)]).files

    assert QWEN.source.scan_usage(file, end).rows == []
    assert total_usage("qwen", home) == wire_usage(TOOLS)


def test_a_response_with_half_an_emoji_in_its_text_counts(tmp_path):
    home = agent_dir(tmp_path, TOOLS)

    def cut_emoji(record):
        if is_event(record):
            record["systemPayload"]["uiEvent"]["response_text"] = "\ud83d"
        return record

    edit_lines(home, cut_emoji)

    assert total_usage("qwen", home) == wire_usage(TOOLS)


def test_a_response_without_counts_is_unknown_and_not_zero(tmp_path):
    home = agent_dir(tmp_path, TOOLS)
    responses = sum(is_event(json.loads(line)) for line in read_lines(home))

    def drop_counts(record):
        event = record.get("systemPayload", {}).get("uiEvent", {})
        event |= {name: 0 for name in event if name.endswith("_token_count")}
        return record

    edit_lines(home, drop_counts)
    total = read_archive("qwen", home).usage_report(Breakdown.SESSION, UTC).total

    assert (total.responses, total.unknown_responses, total.cost.usd) == (
        responses,
        responses,
        None,
    )
