"""Pi's sessions: what its real client recorded, and what its documented format allows."""

import json
from pathlib import Path

import pytest

from flightlog.agents import source_of
from flightlog.model.entries import (
    ApiError,
    AssistantReply,
    ClientNote,
    Ignored,
    PromptKind,
    ToolResult,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.usage import Usage, UsageQuality
from support.agent_sessions import (
    events_of,
    find_files,
    open_archive,
    read_session,
    report_usage,
    sum_rows,
    usage_rows,
)
from support.client_recordings import lay_out_home

AGENT = "pi"
COUNTS = {
    "input": 10,
    "output": 5,
    "cacheRead": 70,
    "cacheWrite": 8,
    "cacheWrite1h": 3,
    "reasoning": 4,
}
TOKENS = Usage(10, 5, 70, 8, 3)


def write_entries(tmp_path, *entries):
    """Write entries, each the child of the one before unless it says otherwise."""
    path = tmp_path / ".pi" / "agent" / "sessions" / "--p--" / "2026-01-01T00-00-00-000Z_s.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [{"type": "session", "version": 3, "id": "s", "cwd": "/p"}]
    for at, entry in enumerate(entries, 1):
        parent = f"e{at - 1}" if at > 1 else None
        place = {"id": f"e{at}", "parentId": parent, "timestamp": f"2026-01-01T00:00:{at:02}Z"}
        records.append(place | entry)
    lines = [json.dumps(record, separators=(",", ":")) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    (file,) = find_files(AGENT, tmp_path)
    return file


def message(role, **fields):
    return {"type": "message", "message": {"role": role, **fields}}


def prompt(text, **place):
    return message("user", content=text) | place


def reply(text, **place):
    content = [{"type": "text", "text": text}]
    return message("assistant", content=content, model="m", usage=COUNTS, stopReason="stop") | place


def test_calls_have_their_results_exit_codes_and_errors(tmp_path):
    session = read_session(AGENT, lay_out_home(tmp_path, "pi/0.87.1/multi-turn-tools"))

    assert (session.title, session.cwd) == ("Notes", "/home/dev/project")
    calls = [call for step in session.steps for call in step.tool_calls]
    assert [(call.name, call.is_error) for call in calls] == [
        ("bash", False),
        ("bash", True),
        ("write", False),
        ("edit", False),
        ("read", True),
    ]
    assert calls[1].detail == {"exitCode": 1}
    assert calls[3].detail["firstChangedLine"] == 1
    assert session.steps[0].usage == Usage(1000, 30, 400, 50)  # 11 of the output are reasoning
    failure, step = session.turns[1].items
    assert failure.text.startswith("503")
    assert step.content[0].text == "Still tidy."


def test_a_branch_that_was_left_is_taken_back(tmp_path):
    home = lay_out_home(tmp_path, "pi/0.87.1/branches-and-fork")
    sessions = sorted(open_archive(AGENT, home).iter_sessions(), key=lambda one: len(one.turns))

    assert [(turn.text, turn.is_rewound) for turn in sessions[0].turns] == [
        ("Show the notes.", False),
        ("! exit 4", True),
        ("Try one way.", True),
        ("Try another way.", False),
    ]
    assert [turn.is_rewound for turn in sessions[1].turns] == [False, True, True, False, False]
    assert {session.title for session in sessions} == {"Two ways"}


def test_a_branch_may_begin_with_an_entry_that_is_not_shown(tmp_path):
    write_entries(
        tmp_path,
        prompt("One."),
        reply("1."),
        {"type": "model_change", "modelId": "n"},
        {"type": "label", "targetId": "e1"},
        prompt("Two."),
        reply("2."),
        prompt("Three.", parentId="e2"),
        reply("3."),
    )

    turns = read_session(AGENT, tmp_path).turns

    assert [(turn.text, turn.is_rewound) for turn in turns] == [
        ("One.", False),
        ("Two.", True),
        ("Three.", False),
    ]


def test_a_fork_counts_only_its_own_responses(tmp_path):
    report = report_usage(AGENT, lay_out_home(tmp_path, "pi/0.87.1/branches-and-fork"))

    assert sorted(row.usage.input_tokens for row in report.rows) == [2200, 7299]


def test_a_response_is_known_by_the_id_of_its_provider(tmp_path):
    first, again = reply("Hi."), reply("Hi.")
    first["message"]["responseId"] = again["message"]["responseId"] = "r"
    write_entries(tmp_path, first, again)

    assert report_usage(AGENT, tmp_path).total.usage == TOKENS


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "usage", "kind": "cache_warm", "model": "m", "usage": COUNTS},
        {"type": "compaction", "summary": "S", "tokensBefore": 9, "usage": COUNTS},
        {"type": "branch_summary", "summary": "S", "fromId": "e1", "usage": COUNTS},
        message("toolResult", toolCallId="c", content=[], usage=COUNTS),
        reply("Hi."),
    ],
)
def test_every_entry_with_usage_counts_and_is_a_step(entry, tmp_path):
    file = write_entries(tmp_path, {"type": "model_change", "modelId": "m"}, entry)

    (row,) = usage_rows(file)

    assert (sum_rows([row]), row.model, row.project) == (TOKENS, "m", "/p")
    (step,) = read_session(AGENT, tmp_path).steps
    assert (step.usage, step.message_id, step.model) == (TOKENS, row.message_id, "m")


@pytest.mark.parametrize(
    ("stop", "counts", "quality"),
    [
        ("aborted", COUNTS, UsageQuality.LOWER_BOUND),
        ("aborted", {"input": 0, "output": 0}, UsageQuality.MISSING),
        ("error", COUNTS, UsageQuality.LOWER_BOUND),
        ("stop", {}, UsageQuality.MISSING),
    ],
)
def test_counts_of_a_cut_reply_are_a_lower_bound_or_unknown(stop, counts, quality, tmp_path):
    cut = message("assistant", content=[], model="m", stopReason=stop, usage=counts)
    file = write_entries(tmp_path, prompt("Go."), cut)

    (row,) = usage_rows(file)

    assert (row.quality, row.is_aborted) == (quality, stop == "aborted")
    (answer,) = [event for event in events_of(file) if isinstance(event, AssistantReply)]
    assert answer.quality is quality


def test_spaces_between_names_and_values_change_nothing(tmp_path):
    file = write_entries(tmp_path, prompt("Hello."), reply("Hi."))
    path = Path(file.path)
    lines = [json.dumps(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")

    assert report_usage(AGENT, tmp_path).total.usage == TOKENS


def test_a_failed_request_is_no_response(tmp_path):
    zeros = dict.fromkeys(COUNTS, 0)
    failed = message("assistant", content=[], stopReason="error", errorMessage="529", usage=zeros)
    file = write_entries(tmp_path, failed)

    assert usage_rows(file) == []
    assert events_of(file)[1:] == [ApiError("529")]


def test_other_entries_are_notes_or_unknown(tmp_path):
    file = write_entries(
        tmp_path,
        {"type": "usage", "kind": "cache_warm", "usage": COUNTS},
        {"type": "custom_message", "content": "Injected.", "display": True},
        message("hologram", content="x"),
        {"type": "teleport", "to": "x"},
        {"type": "context_edit", "targetId": "e1", "replacement": None},
        message("toolResult", toolCallId="c", content=[], isError=True, details=7),
    )

    events = [event for event in events_of(file) if not isinstance(event, AssistantReply)]

    assert events[1] == ClientNote("usage", "side call: cache_warm")
    assert isinstance(events[2], UserPrompt)
    assert events[2].kind is PromptKind.CLIENT
    assert events[3] == UnknownRecord("message/hologram", ("content", "role"))
    assert events[4].kind == "teleport"
    assert events[5] == Ignored("context_edit")
    assert events[6] == ToolResult("c", (), is_error=True)


def test_entries_of_the_first_format_have_ids_of_their_own(tmp_path):
    file = write_entries(
        tmp_path, *({**entry, "id": ""} for entry in (prompt("Hi."), reply("Ho.")))
    )

    (row,) = usage_rows(file)
    session = read_session(AGENT, tmp_path)
    assert session.turns[0].text == "Hi."
    assert session.steps[0].message_id == row.message_id != ""


def test_the_prompt_and_tools_are_those_after_all_changes(tmp_path):
    file = write_entries(
        tmp_path,
        message("system", content="", sections={"a": "First.", "b": "Second."},
                toolsAdded=[{"name": "read", "parameters": {"type": "object"}}, {"name": "write"}]),
        message("system", content="", sections={"a": None, "b": "Later."}, toolsRemoved=[{"name": "write"}]),
    )  # fmt: skip

    context = source_of(AGENT).thread_contexts([file])[""]

    assert context.system == "Later."
    assert context.tools == (
        {"name": "read", "description": "", "input_schema": {"type": "object"}},
    )


def test_responses_to_which_a_server_gave_one_id_count_each(tmp_path):
    reply = {"model": "m", "responseId": "chatcmpl-0", "usage": COUNTS}
    file = write_entries(tmp_path, *(message("assistant", **reply, timestamp=at) for at in (1, 2)))

    assert sum_rows(usage_rows(file)) == TOKENS + TOKENS


def test_no_more_is_written_for_an_hour_than_in_all(tmp_path):
    counts = COUNTS | {"cacheWrite": 8, "cacheWrite1h": 99}
    file = write_entries(tmp_path, message("assistant", model="m", usage=counts))

    assert sum_rows(usage_rows(file)) == Usage(10, 5, 70, 8, 8)
