"""The hook at work in real sessions: whatever an independent hook saw is on record.

The witness is a hook of the user's own, registered for the same events beside ours; it keeps
each payload in a file. What it saw and what flightlog recorded must be the same.
"""

import json
import os
import signal
from collections import Counter

import pytest

from flightlog.agents.claude_code.hooks import events_for
from support.real_agent import PINNED, Bench, make_bench, new_session
from support.waiting import alive, below, command_line, processes, until


def tool(command, **more):
    return {"tool": "Bash", "input": {"command": command, "description": "Run a command", **more}}


def agent(prompt, *, background):
    asked = {"description": "Count files", "prompt": prompt, "subagent_type": "general-purpose"}
    return {"tool": "Agent", "input": {**asked, "run_in_background": background}}


SUBAGENT = {
    "when": {"first": "SUBTASK"},
    "replies": [{"blocks": [tool("ls | wc -l")]}, {"text": "REPORT: 0 files."}],
}
EACH_TOOL = ["PreToolUse", "PostToolUse"]
OPENING, CLOSING = ["SessionStart", "UserPromptSubmit"], ["Stop", "SessionEnd"]
CASES = {
    "single turn": ([{"replies": [{"text": "Hello."}]}], []),
    "several steps": (
        [
            {
                "replies": [
                    {"blocks": [{"text": "Look."}, tool("ls -a")]},
                    {"blocks": [tool("pwd")]},
                    {"text": "Done."},
                ]
            }
        ],
        EACH_TOOL * 2,
    ),
    "parallel tools": (
        [
            {
                "replies": [
                    {"blocks": [tool("echo a"), tool("echo b"), tool("false")]},
                    {"text": "Done."},
                ]
            }
        ],
        [*EACH_TOOL * 2, "PreToolUse", "PostToolUseFailure"],
    ),
    "thinking": (
        [
            {
                "replies": [
                    {"blocks": [{"thinking": "Hm."}, {"redacted": "xx"}, tool("ls")]},
                    {"text": "Done."},
                ]
            }
        ],
        EACH_TOOL,
    ),
    "subagent in the foreground": (
        [
            SUBAGENT,
            {
                "replies": [
                    {"blocks": [agent("SUBTASK: count.", background=False)]},
                    {"text": "Done."},
                ]
            },
        ],
        [*EACH_TOOL * 2, "SubagentStart", "SubagentStop"],
    ),
    "api error with retry": (
        [
            {
                "replies": [
                    {
                        "text": "Late.",
                        "errors": [{"status": 529, "retry_after_s": 0}, {"cut_after": 3}],
                    }
                ]
            }
        ],
        [],
    ),
}


@pytest.fixture
def watched_bench(tmp_path):
    """A bench with flightlog's hook and a witness beside it."""
    bench = make_bench(tmp_path)
    register_witness(bench, events_for([PINNED]))
    bench.install_hooks()
    return bench


def register_witness(bench, events, settings=None):
    """Have a hook of the user's own keep every payload in a file."""
    seen = bench.root / "witness"
    seen.mkdir()
    hook = {"type": "command", "command": f"cat > {seen}/$(date +%s%N)-$$"}
    bench.config.mkdir(exist_ok=True)
    document = {
        "hooks": {event: [{"matcher": "", "hooks": [hook]}] for event in events},
        **(settings or {}),
    }
    (bench.config / "settings.json").write_text(json.dumps(document, indent=2))


def read_witness(bench):
    """What the witness kept whole; one the client did not wait for may have kept nothing."""
    payloads = [path.read_bytes() for path in sorted((bench.root / "witness").iterdir())]
    return [json.loads(payload) for payload in payloads if payload]


def assert_all_on_record(bench: Bench, session: str) -> list[str]:
    """What the witness saw is what was recorded; returns the names in order of arrival."""
    until(lambda: len(bench.hooks(session)) >= len(read_witness(bench)))
    events = bench.hooks(session)
    assert multiset(event["payload"] for event in events) == multiset(read_witness(bench))
    assert all(event["event"] == event["payload"]["hook_event_name"] for event in events)
    return [event["event"] for event in events]


def multiset(payloads):
    return Counter(json.dumps(payload, sort_keys=True) for payload in payloads)


def count_events(names):
    """The events that always come, less those that depend on the client's mood."""
    return Counter(
        name for name in names if name not in {"InstructionsLoaded", "PermissionRequest"}
    )


@pytest.mark.parametrize("case", CASES)
def test_every_event_of_a_session_is_on_record(watched_bench, case):
    rules, between = CASES[case]
    session = new_session()

    played = watched_bench.run({"rules": rules}, f"Play: {case}.", session=session)

    names = assert_all_on_record(watched_bench, session)
    assert played.outcome.exit_code == 0
    assert count_events(names) == Counter([*OPENING, *between, *CLOSING])
    assert (names[0], names[-2:]) == ("SessionStart", CLOSING)


def test_background_subagents_are_on_record(watched_bench):
    both = [
        agent("SUBTASK A: count.", background=True),
        agent("SUBTASK B: count.", background=True),
    ]
    rules = [
        SUBAGENT,
        {
            "replies": [
                {"blocks": both},
                {"text": "Running."},
                {"text": "Noted."},
                {"text": "All in."},
            ]
        },
    ]
    session = new_session()

    watched_bench.run({"rules": rules}, "Delegate twice.", session=session)

    names = Counter(assert_all_on_record(watched_bench, session))
    assert (names["SubagentStart"], names["SubagentStop"], names["SessionEnd"]) == (2, 2, 1)
    assert {
        event["payload"]["agent_id"]
        for event in watched_bench.hooks(session)
        if event["event"] == "SubagentStop"
    }


def test_resume_fork_and_compaction_are_on_record(watched_bench):
    rules = [
        {"when": {"prompt": word}, "replies": [{"text": f"{word}."}]}
        for word in ("one", "two", "three")
    ]
    session, forked = new_session(), new_session()
    watched_bench.run({"rules": rules}, "one", session=session)
    watched_bench.run({"rules": rules}, "two", resume=session)
    watched_bench.run({"rules": rules}, "three", resume=session, fork=True, session=forked)
    watched_bench.run({"rules": rules}, "/compact keep the words", resume=session)

    starts = [
        event["payload"]["source"]
        for event in watched_bench.hooks(session)
        if event["event"] == "SessionStart"
    ]
    names = Counter(event["event"] for event in watched_bench.hooks(session))
    assert starts[:2] == ["startup", "resume"]
    assert "compact" in starts
    assert (names["PreCompact"], names["PostCompact"], names["SessionEnd"]) == (1, 1, 3)
    assert [
        event["payload"]["source"]
        for event in watched_bench.hooks(forked)
        if event["event"] == "SessionStart"
    ] == ["fork"]
    seen = multiset(
        event["payload"] for one in (session, forked) for event in watched_bench.hooks(one)
    )
    assert seen == multiset(read_witness(watched_bench))


def test_a_fatal_api_error_is_on_record_by_its_end(watched_bench):
    """The client does not wait for its StopFailure hooks: on a busy machine it ends before they begin."""
    session = new_session()

    played = watched_bench.run(
        {"rules": [{"replies": [{"errors": [{"status": 401}]}]}]}, "Fail.", session=session
    )

    seen = [
        payload
        for payload in read_witness(watched_bench)
        if payload["hook_event_name"] != "StopFailure"
    ]
    payloads = [
        event["payload"]
        for event in watched_bench.hooks(session)
        if event["event"] != "StopFailure"
    ]
    assert played.outcome.exit_code == 1
    assert multiset(payloads) == multiset(seen)
    assert payloads[-1]["hook_event_name"] == "SessionEnd"


def test_a_denied_tool_is_on_record(watched_bench):
    settings = watched_bench.config / "settings.json"
    settings.write_text(
        json.dumps({**json.loads(settings.read_text()), "permissions": {"deny": ["Bash"]}})
    )
    rules = [
        {
            "replies": [
                {
                    "blocks": [
                        {"tool": "Write", "input": {"file_path": "/nowhere/x", "content": "x"}}
                    ]
                },
                {"text": "."},
            ]
        }
    ]
    session = new_session()

    played = watched_bench.run(
        {"rules": rules}, "Try.", "--disallowedTools", "Write", session=session
    )

    assert played.outcome.exit_code == 0
    assert count_events(assert_all_on_record(watched_bench, session))["SessionEnd"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_session_that_is_ended_from_outside_keeps_all_that_happened(watched_bench, number):
    rules = [{"replies": [{"blocks": [tool("tail -f /dev/null")]}]}]
    session = new_session()
    with watched_bench.start({"rules": rules}, "Wait.", session=session) as (running, _):
        until(lambda: any(event["event"] == "PreToolUse" for event in watched_bench.hooks(session)))
        until(lambda: any(command_line(pid).startswith("tail") for pid in below(running.pid)))
        family = {running.pid, *below(running.pid)}
        running.signal(number)
        running.wait(20)

    names = [event["event"] for event in watched_bench.hooks(session)]
    assert names[:3] == [*OPENING, "PreToolUse"]
    assert ("SessionEnd" in names) == (number != signal.SIGKILL)
    for pid in family:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)  # what the killed client left behind is ours to end


def test_a_broken_hook_costs_the_session_nothing(tmp_path):
    """The worst installation: Python and script are gone. The agent must neither loop nor complain."""
    bench = make_bench(tmp_path)
    bench.install_hooks()
    settings = bench.config / "settings.json"
    for gone in ("record.py", "python"):
        settings.write_text(settings.read_text().replace(f"{gone} ", f"{gone}.gone "))
        played = bench.run(
            {"rules": [{"replies": [{"blocks": [tool("ls")]}, {"text": "Done."}]}]}, "Go."
        )

        assert (played.outcome.exit_code, played.result["result"], len(played.requests)) == (
            0,
            "Done.",
            2,
        )
    assert not bench.recordings.exists()


def test_no_byte_of_ours_holds_the_key(watched_bench):
    canary = "sk-" + "canary-" + os.urandom(8).hex()
    bench = Bench(
        watched_bench.root,
        extra={"ANTHROPIC_API_KEY": canary, "ANTHROPIC_CUSTOM_HEADERS": f"x-canary: {canary}"},
    )
    bench.run({"rules": [{"replies": [{"blocks": [tool("ls")]}, {"text": "Done."}]}]}, "Go.")

    files = [path for path in bench.recordings.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert not [path for path in files if canary.encode() in path.read_bytes()]


def test_the_settle_a_session_starts_keeps_its_transcript(watched_bench):
    """From the agent's own end to our copy, with nobody calling flightlog by hand."""
    session = new_session()
    watched_bench.run(
        {"rules": [{"replies": [{"blocks": [tool("ls")]}, {"text": "Done."}]}]},
        "Go.",
        session=session,
    )
    (source,) = watched_bench.config.glob(f"projects/*/{session}.jsonl")
    directory = watched_bench.recordings / "sessions" / "claude-code" / session

    def find_copies():
        return [
            path for path in directory.rglob("*.jsonl") if path.read_bytes() == source.read_bytes()
        ]

    until(find_copies)
    assert [path for path in directory.iterdir() if path.name == "settle.lock"]
    until(lambda: not [pid for pid in processes() if alive(pid) and session in command_line(pid)])
