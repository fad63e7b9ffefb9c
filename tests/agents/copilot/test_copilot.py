"""Copilot CLI's sessions: what its real client recorded, and what other versions write."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from flightlog.agents import find_agent, source_of
from flightlog.agents.adoption import adopt_session_files
from flightlog.model.entries import (
    ClientNote,
    ContextCompacted,
    ContextInjected,
    Ignored,
    Image,
    PromptKind,
    Text,
    ToolResult,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.usage import Usage, UsageQuality
from flightlog.store.recordings.adoption import session_dir
from flightlog.usage.reconciliation import GapReason
from support.agent_sessions import (
    events_of,
    find_files,
    own_dir,
    read_session,
    report_usage,
    sum_rows,
    usage_rows,
)
from support.cli_runs import within
from support.client_recordings import lay_out_home, list_cases
from support.real_clients import make_machine

AGENT = "copilot"


def read_case(tmp_path, name):
    return read_session(AGENT, lay_out_home(tmp_path, f"{AGENT}/1.0.102/{name}"))


def write_events(tmp_path, *events):
    """Write events as the client does and return their file."""
    path = tmp_path / ".copilot" / "session-state" / "s" / "events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {"type": kind, "data": data, "id": f"e{at}", "timestamp": f"2026-01-01T00:00:{at:02}Z"}
        )
        for at, (kind, data) in enumerate(events)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    (file,) = find_files(AGENT, tmp_path)
    return file


def test_calls_have_their_results_exit_codes_and_errors(tmp_path):
    session = read_case(tmp_path, "multi-turn-tools")

    assert (session.cwd, session.branch, session.version) == (
        "/home/dev/project",
        "main",
        "1.0.102",
    )
    calls = [call for step in session.steps for call in step.tool_calls]
    assert [(call.name, call.is_error, call.detail) for call in calls] == [
        ("bash", False, {"exitCode": 0}),
        ("bash", True, {"exitCode": 1}),
        ("create", False, None),
        ("edit", False, None),
        ("view", True, None),
    ]
    assert calls[4].output == "Path does not exist"
    assert [block.text for block in session.steps[0].content] == [
        "The notes come first.",
        "I read the notes.",
    ]


def test_a_subagent_is_nested_below_the_call_that_started_it(tmp_path):
    session = read_case(tmp_path, "subagent")

    (subagent,) = session.subagents
    assert subagent.tool_call_id == session.steps[0].tool_calls[0].id
    assert (subagent.agent_type, subagent.description) == ("task", "Count lines")
    assert subagent.turns[0].text == "Count the lines of notes.txt."
    assert [step.usage for step in subagent.turns[0].steps] == [
        Usage(700, 20, 70),
        Usage(800, 8, 80),
    ]
    assert len(session.steps) == 2


def test_a_resumed_session_is_one_and_shows_its_compaction(tmp_path):
    session = read_case(tmp_path, "resumed-session")

    assert [turn.text for turn in session.turns] == ["Show the notes.", "Once more, please."]
    notes = [item.text for item in session.turns[1].items if not hasattr(item, "tool_calls")]
    assert notes[0].startswith("context compacted (manual), from ")
    assert session.client_totals.cost_usd is None
    assert session.steps[0].usage == Usage(1000, 130, 400)  # 100 of the output are reasoning


def test_a_denied_call_and_a_failed_request_are_shown(tmp_path):
    session = read_case(tmp_path, "permission-denied")

    (call,) = session.steps[0].tool_calls
    assert (call.denial_reason, call.permission_decision, call.is_error) == ("denied", "deny", True)
    assert "refused by the script" in session.turns[1].items[0].text


@pytest.mark.parametrize(
    ("kind", "decision"), [("approved", "allow"), ("denied-interactively-by-user", "deny")]
)
def test_a_permission_that_was_asked_for_names_its_decision(kind, decision, tmp_path):
    file = write_events(
        tmp_path,
        ("permission.completed", {"toolCallId": "c", "result": {"kind": kind}}),
        ("tool.execution_complete", {"toolCallId": "c", "success": kind == "approved"}),
    )

    (result,) = [event for event in events_of(file) if isinstance(event, ToolResult)]
    assert result.permission_decision == decision
    assert result.denial_reason == ("" if decision == "allow" else kind)


def test_the_model_call_of_a_tool_counts(tmp_path):
    usage = {"requestId": "r", "model": "gpt-image", "inputTokens": 30, "outputTokens": 7}
    result = {"toolCallId": "c", "success": True, "toolUsage": usage}
    file = write_events(tmp_path, ("tool.execution_complete", result))

    (row,) = usage_rows(file)

    assert (row.message_id, row.model, sum_rows([row])) == ("r", "gpt-image", Usage(30, 7))
    assert [step.message_id for step in read_session(AGENT, tmp_path).steps] == ["r"]


def shutdown(requests=None, **usage):
    data = {"modelMetrics": {"gpt-5": {"usage": usage}}}
    return "session.shutdown", data | ({"totalPremiumRequests": requests} if requests else {})


def test_runs_of_old_versions_count_by_the_sums_they_end_with(tmp_path):
    first = shutdown(inputTokens=100, cacheReadTokens=60, outputTokens=9)
    second = shutdown(inputTokens=50, cacheReadTokens=0, outputTokens=5)
    reply = ("assistant.message", {"messageId": "m", "content": "Hi.", "outputTokens": 9})
    file = write_events(
        tmp_path, ("session.start", {}), reply, first, ("session.resume", {}), reply, second
    )

    assert sum_rows(usage_rows(file)) == Usage(90, 14, 60)
    assert {row.quality for row in usage_rows(file)} == {UsageQuality.EXACT}


def test_a_run_of_an_old_version_without_an_end_is_unknown(tmp_path):
    file = write_events(
        tmp_path, ("session.start", {}), ("assistant.message", {"content": "Hi.", "model": "gpt-5"})
    )

    (row,) = usage_rows(file)
    assert (row.quality, row.model) == (UsageQuality.MISSING, "gpt-5")
    assert read_session(AGENT, tmp_path).steps[0].cost_usd is None


@pytest.mark.parametrize(
    ("status", "nano", "requests", "units"),
    [
        ("complete", 1_500_000_000, 0, {"credits": 1.5, "premium_requests": 0}),
        ("unavailable", 0, 82.5, {"premium_requests": 82.5}),
        ("unavailable", 0, 0, {}),
        ("complete", 10**400, None, {}),
    ],
)
def test_credits_are_no_dollars_and_absent_ones_not_zero(status, nano, requests, units, tmp_path):
    snapshot = {
        "aiCreditsStatus": status,
        "totalNanoAiu": nano,
        "totalPremiumRequestCost": requests,
    }
    snapshot["modelMetrics"] = {"gpt-5": {"usage": {"inputTokens": 1}}}
    write_events(tmp_path, ("session.shutdown", {"accountingSnapshot": snapshot}))

    totals = read_session(AGENT, tmp_path).client_totals

    assert (totals.known_units, totals.cost_usd) == (units, None)


def test_premium_requests_of_old_versions_are_noted(tmp_path):
    file = write_events(tmp_path, shutdown(82.5, inputTokens=1), shutdown(inputTokens=1))

    notes = [ClientNote("session.shutdown", "premium requests: 82.5"), Ignored("session.shutdown")]
    assert events_of(file) == notes


def test_unknown_events_are_shown_and_parts_of_a_stream_are_not(tmp_path):
    file = write_events(
        tmp_path, ("session.hologram", {"b": 1, "a": 2}), ("assistant.turn_start", {})
    )
    with Path(file.path).open("a") as more:
        more.write('{"type":"session.idle","data":{},"ephemeral":true}\n')

    assert events_of(file) == [
        UnknownRecord("session.hologram", ("a", "b")),
        Ignored("assistant.turn_start"),
        Ignored("session.idle"),
    ]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (
            "abort",
            {"reason": "user initiated"},
            UserPrompt(PromptKind.INTERRUPTION, (Text("user initiated"),)),
        ),
        (
            "system.notification",
            {"content": "The build ended."},
            UserPrompt(PromptKind.TASK, (Text("The build ended."),)),
        ),
        ("skill.invoked", {"content": "How to fly."}, ContextInjected("skill", "How to fly.")),
        (
            "session.compaction_complete",
            {"success": False, "error": "too long"},
            ClientNote("session.compaction_complete", "compaction failed: too long"),
        ),
        (
            "session.truncation",
            {"preTruncationTokensInMessages": 900, "postTruncationTokensInMessages": 400},
            ContextCompacted("truncation", 900, 400),
        ),
        ("hook.end", {"success": True}, Ignored("hook.end")),
        (
            "hook.end",
            {"success": False, "error": {"message": "exit code 3"}},
            ClientNote("hook", "exit code 3"),
        ),
        ("session.model_change", {"newModel": "gpt-5"}, Ignored("session.model_change")),
        (
            "session.model_change",
            {"previousModel": "gpt-5", "newModel": "gpt-6"},
            ClientNote("session.model_change", "model change: gpt-6"),
        ),
    ],
)
def test_what_the_client_did_by_itself_is_shown(kind, data, expected, tmp_path):
    assert events_of(write_events(tmp_path, (kind, data))) == [expected]


def test_pictures_of_a_result_are_shown_and_other_files_are_not(tmp_path):
    files = [
        {"mimeType": "image/png", "data": "AAECAwQF"},
        {"mimeType": "audio/wav", "data": "AAECAwQF"},
        "no file",
    ]
    result = {"content": "Seen.", "binaryResultsForLlm": files}
    done = {"toolCallId": "c", "success": True, "result": result}

    (event,) = events_of(write_events(tmp_path, ("tool.execution_complete", done)))

    assert event.content == (Text("Seen."), Image("image/png", 6, "AAECAwQF"))


def test_a_damaged_directory_is_reported(tmp_path):
    state = tmp_path / ".copilot" / "session-state"
    (state / "a b").mkdir(parents=True)
    (state / "a b" / "events.jsonl").touch()
    (state / "pipe" / "events.jsonl").mkdir(parents=True)
    (state / "old.jsonl").touch()

    listing = find_agent(AGENT).find([own_dir(AGENT, tmp_path)])

    assert [file.session for file in listing.files] == ["old"]
    assert [damage.reason for damage in listing.damage] == [
        "the file name is not a usable session id",
        "not a file",
    ]


@pytest.mark.parametrize(
    ("line", "title"),
    [("name: 'It''s # mine'", "It's # mine"), ("name: Plain", "Plain"), ("name: |-", "Hello.")],
)
def test_the_title_is_taken_from_the_notes_beside_the_events(line, title, tmp_path):
    file = write_events(tmp_path, ("user.message", {"content": "Hello."}))
    Path(file.path).with_name("workspace.yaml").write_text(f"id: s\n{line}\nuser_named: false\n")

    assert read_session(AGENT, tmp_path).title == title


def test_a_pipe_instead_of_the_notes_is_not_opened(tmp_path):
    file = write_events(tmp_path, ("user.message", {"content": "Hello."}))
    os.mkfifo(Path(file.path).with_name("workspace.yaml"))

    assert read_session(AGENT, tmp_path).title == "Hello."


def test_a_session_of_the_real_client_counts_what_the_model_sent(tmp_path):
    machine = make_machine(tmp_path, AGENT)
    replies = [
        {
            "text": "Hello.",
            "usage": {"input": 900, "output": 70, "cache_read": 300, "reasoning": 60},
        }
    ]

    run = machine.run({"rules": [{"replies": replies}]}, "Say hello.")

    assert run.exit_code == 0, run.stderr
    (file,) = find_files(AGENT, machine.home)
    assert sum_rows(usage_rows(file)) == Usage(900, 70, 300)


@pytest.mark.parametrize("case", list_cases(AGENT))
def test_a_client_total_differs_by_the_compaction_alone(case, tmp_path):
    gaps = report_usage(AGENT, lay_out_home(tmp_path, case)).gaps

    expected = [GapReason.COMPACTION] if case.endswith("resumed-session") else []
    assert [gap.reason for gap in gaps] == expected
    assert all(gap.usage.output_tokens < 0 and gap.cost_usd is None for gap in gaps)


def test_the_difference_is_printed_without_dollars(tmp_path):
    home = lay_out_home(tmp_path, f"{AGENT}/1.0.102/resumed-session")

    out = within(None, "session", "usage", COPILOT_HOME=own_dir(AGENT, home)).out

    assert "unknown  compaction call" in out


def test_the_notes_beside_the_events_are_copied(tmp_path):
    home = lay_out_home(tmp_path / "home", f"{AGENT}/1.0.102/subagent")
    (file,) = find_files(AGENT, home)

    adopt_session_files(str(tmp_path / "data"), file.session, [file])

    copy = session_dir(str(tmp_path / "data"), AGENT, file.session) / "workspace.yaml"
    assert copy.read_bytes() == Path(file.path).with_name("workspace.yaml").read_bytes()


def test_each_thread_has_its_system_prompt(tmp_path):
    files = find_files(AGENT, lay_out_home(tmp_path, f"{AGENT}/1.0.102/subagent"))

    contexts = source_of(AGENT).thread_contexts(files)

    assert sorted(len(name) for name in contexts) == [0, 36]
    assert all(context.system.startswith("[system prompt") for context in contexts.values())


def test_only_the_beginning_of_the_notes_is_read(tmp_path):
    file = write_events(tmp_path, ("user.message", {"content": "hi"}))
    notes = Path(file.path).with_name("workspace.yaml")
    notes.write_text(f"name: Short\nsummary: {'&a [*a] ' * (1 << 20)}\n")
    tracemalloc.start()
    (title,) = source_of(AGENT).titles([file])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert title.event.text == "Short"
    assert peak < notes.stat().st_size // 2


def test_a_named_pipe_in_place_of_the_notes_is_no_title(tmp_path):
    file = write_events(tmp_path, ("user.message", {"content": "hi"}))
    os.mkfifo(Path(file.path).with_name("workspace.yaml"))

    assert list(source_of(AGENT).titles([file])) == []
