"""Real sessions told: the view holds what the transcript holds, and the usage is the client's own."""

import json
import signal
from datetime import UTC

import pytest

from flightlog.archive.archive import Archive
from flightlog.model.entries import Text, Thinking
from flightlog.model.usage import Breakdown, Usage
from flightlog.usage.reconciliation import GapReason
from flightlog.views.session.timeline import all_steps
from support.real_agent import new_session
from support.waiting import until


def tool(command, **more):
    return {"tool": "Bash", "input": {"command": command, "description": "Run a command", **more}}


def agent(prompt, *, background):
    asked = {"description": "Count files", "prompt": prompt, "subagent_type": "general-purpose"}
    return {"tool": "Agent", "input": {**asked, "run_in_background": background}}


SUBAGENT = {
    "when": {"first": "SUBTASK"},
    "replies": [{"blocks": [tool("ls | wc -l")]}, {"text": "REPORT: 0 files."}],
}
BOTH = [agent("SUBTASK A: count.", background=True), agent("SUBTASK B: count.", background=True)]
CASES = {
    "single turn": [{"replies": [{"text": "Hello."}]}],
    "several steps": [
        {"replies": [{"blocks": [{"text": "Look."}, tool("ls -a")]}, {"text": "Done."}]}
    ],
    "parallel tools": [
        {
            "replies": [
                {"blocks": [tool("echo a"), tool("echo b"), tool("false")]},
                {"text": "Done."},
            ]
        }
    ],
    "thinking": [
        {
            "replies": [
                {"blocks": [{"thinking": "Hm."}, {"redacted": "xx"}, tool("ls")]},
                {"text": "Done."},
            ]
        }
    ],
    "subagent": [
        SUBAGENT,
        {"replies": [{"blocks": [agent("SUBTASK: count.", background=False)]}, {"text": "Done."}]},
    ],
    "background subagents": [
        SUBAGENT,
        {"replies": [{"blocks": BOTH}, {"text": "Running."}, {"text": "Noted."}]},
    ],
    "retry": [{"replies": [{"text": "Late.", "errors": [{"status": 529, "retry_after_s": 0}]}]}],
    "cut stream": [{"replies": [{"text": "Again.", "errors": [{"cut_after": 3}]}]}],
    "fatal error": [{"replies": [{"errors": [{"status": 401}]}]}],
}


def read_records(bench):
    """Every record of every transcript, decoded by somebody else's parser."""
    files = sorted(bench.config.glob("projects/**/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def blocks(records, kind, key):
    """The content blocks of one kind that models wrote, as a sorted list."""
    seen = {record["uuid"]: record for record in records if record["type"] == "assistant"}
    replies = [
        record["message"] for record in seen.values() if record["message"]["model"] != "<synthetic>"
    ]
    return sorted(
        str(block[key]) for reply in replies for block in reply["content"] if block["type"] == kind
    )


def assert_view_is_complete(bench):
    """The view holds every word, thought, call and result of the transcripts, once."""
    records = read_records(bench)
    steps = [
        step
        for session in Archive({"claude-code": (str(bench.config),)}).iter_sessions()
        for step in all_steps(session)
    ]
    content = [block for step in steps for block in step.content]
    calls = [call for step in steps for call in step.tool_calls]
    assert sorted(block.text for block in content if isinstance(block, Text)) == blocks(
        records, "text", "text"
    )
    thoughts = sorted(
        block.text for block in content if isinstance(block, Thinking) and not block.is_withheld
    )
    assert thoughts == blocks(records, "thinking", "thinking")
    assert sorted(call.id for call in calls) == blocks(records, "tool_use", "id")
    results = [
        part["tool_use_id"]
        for record in records
        if record["type"] == "user" and isinstance(record["message"]["content"], list)
        for part in record["message"]["content"]
        if part["type"] == "tool_result"
    ]
    assert sorted(call.id for call in calls if call.result is not None) == sorted(results)


def truths(bench):
    report = Archive({"claude-code": (str(bench.config),)}).usage_report(Breakdown.SESSION, UTC)
    return {truth.session: truth for truth in report.reconciliations}


def adds_up(truth):
    parts = truth.recorded + truth.inherited + sum((gap.usage for gap in truth.gaps), Usage())
    usd = truth.recorded_usd + truth.inherited_usd + sum(gap.cost_usd for gap in truth.gaps)
    return parts == truth.client.usage and round(usd, 6) == round(truth.client.cost_usd, 6)


@pytest.mark.parametrize("case", CASES)
def test_a_session_is_read_whole_and_counted_as_the_client_counts(bench, case):
    session = new_session()

    played = bench.run({"rules": CASES[case]}, f"Play: {case}.", session=session)

    assert_view_is_complete(bench)
    truth = truths(bench)[session]
    assert adds_up(truth)
    assert [gap.reason for gap in truth.gaps] == ([GapReason.CUT] if case == "cut stream" else [])
    assert round(played.result["total_cost_usd"], 6) == round(truth.client.cost_usd, 6)


def test_resume_fork_and_compaction_are_counted_as_the_client_counts(bench):
    rules = [
        {"when": {"prompt": word}, "replies": [{"text": f"{word}."}]}
        for word in ("one", "two", "three", "four")
    ]
    session, forked = new_session(), new_session()
    bench.run({"rules": rules}, "one", session=session)
    bench.run({"rules": rules}, "two", resume=session)
    bench.run({"rules": rules}, "three", resume=session, fork=True, session=forked)
    bench.run({"rules": rules}, "/compact keep the words", resume=session)
    bench.run({"rules": rules}, "four", resume=session)

    by_session = truths(bench)

    assert all(adds_up(truth) for truth in by_session.values())
    assert [gap.reason for gap in by_session[session].gaps] == [GapReason.COMPACTION]
    assert by_session[forked].inherited_from == session
    assert not by_session[forked].gaps


def test_a_denied_tool_is_marked_denied(bench):
    rules = [
        {
            "replies": [
                {"blocks": [{"tool": "WebFetch", "input": {"url": "http://x", "prompt": "p"}}]},
                {"text": "No."},
            ]
        }
    ]

    bench.run({"rules": rules}, "Fetch.", session=new_session())

    (session,) = Archive({"claude-code": (str(bench.config),)}).iter_sessions()
    (call,) = [call for step in session.steps for call in step.tool_calls]
    assert call.is_error
    assert adds_up(truths(bench)[session.id])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_session_is_shown_up_to_its_end(bench, number):
    rules = [
        {
            "replies": [
                {"blocks": [tool("echo one")]},
                {"text": "slow " * 400, "chunk_delay_s": 0.05},
            ]
        }
    ]
    session = new_session()
    with bench.start({"rules": rules}, "Work until stopped.", session=session) as (
        running,
        requests,
    ):
        until(lambda: len(requests) >= 2)
        until(
            lambda: any(
                record["type"] == "user" and record.get("toolUseResult")
                for record in read_records(bench)
            )
        )
        running.signal(number)
        running.wait(20)

    stopped = Archive({"claude-code": (str(bench.config),)}).read_session(session)

    assert [call.output for step in stopped.steps for call in step.tool_calls] == ["one"]
    assert all(adds_up(truth) for truth in truths(bench).values())


def test_a_resting_agents_session_is_archived_unasked(bench):
    bench.install_hooks()
    session = new_session()

    bench.run({"rules": CASES["several steps"]}, "Look around.", session=session)

    (source,) = bench.config.glob(f"projects/*/{session}.jsonl")
    copy = next(iter(bench.root.glob(f"**/sessions/claude-code/{session}"))) / "transcript.jsonl"
    until(lambda: copy.exists() and copy.read_bytes() == source.read_bytes())
    source.unlink()
    archive = Archive({"claude-code": (str(bench.config),)}, str(copy.parents[3]))
    assert archive.read_session(session).title == "Look around."
