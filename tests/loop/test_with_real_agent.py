"""A real agent carries out a plan; one that never finishes is stopped by each of the breakers in turn."""

import json
import subprocess
import sys

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.archive import Archive
from flightlog.loop.directories import open_loop_session
from loop.loops import RALPH, journal, session_of
from support.waiting import until

CALC = "def add(a, b):\n    return a {sign} b\n"
ALLOWED = ["--allowedTools", "Bash", "Read", "Write", "Edit"]


def tool(name, **given):
    return {"blocks": [{"tool": name, "input": given}]}


def bash(command):
    return tool("Bash", command=command)


def writes(path, text):
    return bash(f"cat > {path} <<'END'\n{text}END")


CHECK = "from calc import add\nassert add(2, 2) == 4\n"
MAIN = "import sys\nfrom calc import add\nprint(add(*map(int, sys.argv[1:])))\n"
TOTAL = "def total(all):\n    return sum(all)\n"
# What the model does at each prompt; the repair comes first, because its prompt holds the task's words too.
DOES = {
    "verification failed": writes("calc.py", CALC.format(sign="+")),
    "a module calc": writes("calc.py", CALC.format(sign="-")),
    "a test of it": writes("check.py", CHECK),
    "a command line": writes("main.py", MAIN),
    "say how": writes("README.md", "Run `python main.py 1 2`.\n"),
    "sum of a list": bash(f"cat >> calc.py <<'END'\n{TOTAL}END"),
}


def scenario():
    return parse_scenario(
        {
            "rules": [
                {"when": {"prompt": p}, "replies": [does, {"text": "Done."}]}
                for p, does in DOES.items()
            ]
        }
    )


def plan(tasks, **more):
    return json.dumps(
        {"plan": "calculator", "tasks": tasks, "config": {"human_intervention": "never"}, **more}
    )


def task(number, prompt, verify, **more):
    run = {"agent": "claude-code", "prompt": prompt, "arguments": ALLOWED}
    return {"task_id": f"{number:03}", "name": prompt, "run": run, "verify": verify, **more}


def around(bench, url, client=None, retries="2"):
    own = {
        "FLIGHTLOG_CLAUDE": str(client or bench.client.program),
        "CLAUDE_CODE_MAX_RETRIES": retries,
    }
    return {**bench.environment(url), **own}


def conduct(bench, url, *words, **more):
    environment = around(bench, url, **more)
    return subprocess.run([RALPH, *words], cwd=bench.project, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=180, check=False)  # fmt: skip


def test_a_real_agent_writes_code_fails_verification_repairs_it_and_passes(bench):
    python = sys.executable
    tasks = [
        task(1, "Write a module calc with add.", [f"{python} -c 'from calc import add; assert add(1, 2) == 3'"]),
        task(2, "Write a test of it.", [f"{python} check.py"], dependencies=["001"]),
        task(3, "Write a command line for it.", [f'test "$({python} main.py 2 3)" = 5'], dependencies=["001"]),
        task(4, "Add the sum of a list.", [f"{python} -c 'from calc import total; assert total([1, 2]) == 3'"],
             dependencies=["002"]),
        task(5, "In a README, say how.", ["grep -q main.py README.md"], dependencies=["003"]),
        {"task_id": "006", "name": "all of it", "run": {"command": f"{python} check.py"},
         "dependencies": ["004", "005"], "verify": ["test -f main.py"]},
    ]  # fmt: skip
    (bench.project / "plan.yaml").write_text(plan(tasks))

    with serve_scenario(scenario()) as model:
        ran = conduct(bench, model.url, "run", "--plan", "plan.yaml", "--autonomous")

    directory = session_of(bench.project)
    assert ran.returncode == 0, (
        ran.stdout + ran.stderr + (directory / "final-report.md").read_text()
    )
    assert (bench.project / "calc.py").read_text() == CALC.format(sign="+") + TOTAL
    state = open_loop_session(directory).state
    assert [state.tasks[f"{n:03}"].status for n in range(1, 7)] == ["completed"] * 6
    assert state.tasks["001"].attempt == 2
    checks = [
        event["passed"]
        for event in journal(directory)
        if event["kind"] == "verify" and event["task"] == "001"
    ]
    assert checks == [False, True]
    archive = Archive({"claude-code": (str(bench.config / "nowhere"),)}, str(bench.recordings))
    linked = [
        session
        for name in ("001", "002", "003", "004", "005")
        for session in state.tasks[name].sessions
    ]
    assert len(linked) == 6
    assert all(archive.read_session(session).turns for session in linked), (
        "each is kept in our own copy"
    )
    diffs = [(directory / diff).read_text() for diff in state.tasks["001"].diffs]
    assert ["return a - b" in diffs[0], "-    return a - b\n+    return a + b" in diffs[1]] == [
        True,
        True,
    ]
    assert all(state.tasks[name].diffs for name in ("002", "003", "004", "005"))
    assert state.totals.calls == 12
    assert state.totals.total_tokens > 0


def select_message_requests(model):
    """The requests to the model, each of which is a call."""
    return [seen for seen in model.requests if seen.path.partition("?")[0].endswith("/v1/messages")]


# Half a dollar a call, so that a budget that is wrong by a few dollars is wrong by a few calls.
ENDLESS = {"rules": [{"replies": [{**bash("echo again"), "usage": {"input_tokens": 100_000}}]}]}


def endless(bench, **more):
    """A plan whose agent calls a tool for ever."""
    return plan([task(1, "Go on.", ["false"])], **more)


@pytest.mark.parametrize(
    ("budgets", "calls"),
    [
        ({"calls": 4}, 4),
        ({"tokens": 350_000}, None),
        ({"usd": 1.2}, None),
        ({"calls_per_hour": 3}, 3),
    ],
)
def test_an_agent_that_never_finishes_is_stopped_by_its_budget(bench, budgets, calls):
    (bench.project / "plan.yaml").write_text(endless(bench, budgets=budgets))

    with serve_scenario(parse_scenario(ENDLESS)) as model:
        environment = around(bench, model.url)
        words = [RALPH, "run", "--plan", "plan.yaml", "--autonomous"]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        runner = subprocess.Popen(words, cwd=bench.project, env=environment, **pipes)
        waits = "calls_per_hour" in budgets
        if waits:
            until(
                lambda: any(e["kind"] == "attempt_end" for e in _journal(bench.project)), limit_s=60
            )
            runner.terminate()
        _, errors = runner.communicate(timeout=120)
        asked = select_message_requests(model)

    state = open_loop_session(session_of(bench.project)).state
    assert state.status == "paused", errors
    if not waits:
        assert state.reason.startswith("budget"), state.reason
    seen = state.totals.calls
    assert 0 < seen <= len(asked)
    assert len(asked) <= (calls or seen) + 1, "the limit, and one call that was on its way"
    fields = {"tokens": "total_tokens", "usd": "cost_usd"}
    for unit in budgets.keys() & fields.keys():
        noted = [
            event[fields[unit]]
            for event in _journal(bench.project)
            if event["kind"] == "usage" and event["calls"]
        ]
        assert sum(noted[:-1]) < budgets[unit] <= sum(noted), (
            "the limit was reached by the last call"
        )


def _journal(project):
    sessions = list((project / "ralph-loop-sessions").glob("session-001-*"))
    return journal(sessions[0]) if sessions and (sessions[0] / "journal.jsonl").exists() else []


IDLE = [{"text": "I did nothing."}]
DENIED = [
    {"blocks": [{"tool": "Write", "input": {"file_path": "x.txt", "content": "x"}}]},
    {"text": "I may not."},
]


@pytest.mark.parametrize(
    ("breaker", "condition", "replies", "calls"),
    [
        ({"no_progress": 2}, "no progress in 2 attempts", IDLE, 2),
        pytest.param({"same_error": 2}, "the same error 2 times", IDLE, 2, marks=pytest.mark.soak),
        pytest.param(
            {"failure_threshold": 3}, "3 failures in a row", IDLE, 3, marks=pytest.mark.soak
        ),
        ({"error_rate": 0.5, "error_rate_over": 2}, "error_rate > 0.5 (2 of the last 2", IDLE, 2),
        ({"low_confidence": 0.95, "low_confidence_times": 2}, "confidence < 0.95 2 times", IDLE, 2),
        ({"conditions": [{"when": "calls >= 2", "action": "stop"}]}, "calls >= 2", IDLE, 2),
    ],
)
def test_a_loop_without_an_end_is_stopped_by_each_breaker_within_its_limit(
    bench, breaker, condition, replies, calls
):
    off = dict.fromkeys(
        ("failure_threshold", "error_rate", "no_progress", "same_error", "permission_denials"), 0
    )
    quiet = {**off, "low_confidence_times": 0, "trips_max": 1, "recovery_timeout": 0.2, **breaker}
    run = {
        "agent": "claude-code",
        "prompt": "Go on.",
        "arguments": ALLOWED,
    }
    wrong = {
        "task_id": "001",
        "name": "never done",
        "run": run,
        "verify": ["echo wrong; false"],
        "max_retries": 50,
    }
    text = plan([wrong], circuit_breaker=quiet)
    limits = '"retry_base_seconds": 0.01, "max_iterations": 12, "confidence_threshold": 0.0'
    (bench.project / "plan.yaml").write_text(
        text.replace('"config": {', '"config": {' + limits + ", ")
    )

    with serve_scenario(parse_scenario({"rules": [{"replies": replies * 12}]})) as model:
        ran = conduct(bench, model.url, "run", "--plan", "plan.yaml", "--autonomous")
        asked = select_message_requests(model)

    directory = session_of(bench.project)
    events = journal(directory)
    opened = [
        at
        for at, event in enumerate(events)
        if event["kind"] == "breaker" and event["to_state"] == "open"
    ]
    assert ran.returncode == 1
    assert opened, open_loop_session(directory).state.reason
    assert events[opened[0]]["condition"].startswith(condition)
    before = sum(event.get("calls", 1) for event in events[: opened[0]] if event["kind"] == "usage")
    assert 0 < before <= calls + 1
    assert before <= len(asked)


def test_a_denied_tool_is_named_not_tried_again_and_allowed_by_resume(bench):
    run = {"agent": "claude-code", "prompt": "Go on."}
    made = {"task_id": "001", "name": "x", "run": run, "verify": ["test -s x.txt"]}
    (bench.project / "plan.yaml").write_text(plan([made]))

    with serve_scenario(parse_scenario({"rules": [{"replies": DENIED}]})) as model:
        ran = conduct(bench, model.url, "run", "--plan", "plan.yaml", "--autonomous")
        asked = len(select_message_requests(model))
        status = conduct(bench, model.url, "status", "--session", "session-001", "--json")
        (row,) = json.loads(status.stdout)["tasks"]
        again = conduct(bench, model.url, *row["next"].split()[2:])

    assert (ran.returncode, asked) == (1, 2), "one attempt, which a second one would repeat at cost"
    allowed = "permission denied: Write; allowed by `arguments: [--allowedTools, Write]`"
    assert row["cause"] == allowed
    assert row["next"].endswith("resume --session session-001-calculator --allow Write")
    assert again.returncode == 0, again.stderr
    assert (bench.project / "x.txt").read_text() == "x"


def test_an_open_ended_loop_ends_on_two_signs_and_the_flag(bench):
    block = "STATUS: COMPLETE\nTESTS_STATUS: PASSING\nEXIT_SIGNAL: {flag}\n"
    rules = [{"replies": [bash("echo x >> rounds.txt"), {"text": block.format(flag="false")}]}]
    run = {"agent": "claude-code", "prompt": "Go on.", "repeat": True, "arguments": ALLOWED}
    text = plan([{"task_id": "001", "name": "open", "run": run, "verify": ["test -s rounds.txt"]}])
    text = text.replace('"config": {', '"config": {"max_iterations": 3, ')
    (bench.project / "plan.yaml").write_text(text)

    with serve_scenario(parse_scenario({"rules": rules})) as model:
        never = conduct(bench, model.url, "run", "--plan", "plan.yaml", "--autonomous")
    rules[0]["replies"][1] = {
        "text": json.dumps({"status": "COMPLETE", "tests_status": "PASSING", "exit_signal": True})
    }
    with serve_scenario(parse_scenario({"rules": rules})) as model:
        done = conduct(
            bench, model.url, "run", "--plan", "plan.yaml", "--autonomous", "--session", "again"
        )

    assert never.returncode == 1
    assert open_loop_session(session_of(bench.project)).state.reason.startswith(
        "budget: 3 of 3 iterations"
    )
    assert done.returncode == 0, done.stderr
    assert open_loop_session(session_of(bench.project, 2)).state.iterations == 1


def test_a_limit_of_the_api_is_waited_for_and_the_work_goes_on(bench, tmp_path):
    full = parse_scenario(
        {"rules": [{"replies": [{"errors": [{"status": 429, "message": "limit"}]}]}]}
    )
    free = parse_scenario({"rules": [{"replies": [{"text": "Done."}]}]})
    text = plan([task(1, "Go on.", ["true"])])
    (bench.project / "plan.yaml").write_text(
        text.replace('"config": {', '"config": {"limit_wait_seconds": 1, ')
    )
    client = tmp_path / "claude"

    with serve_scenario(full) as first, serve_scenario(free) as second:
        client.write_text(
            f"#!/bin/sh\nif [ -e {tmp_path}/again ]; then export ANTHROPIC_BASE_URL={second.url}; fi\n"
            f'touch {tmp_path}/again\nexec {bench.client.program} "$@"\n'
        )
        client.chmod(0o755)
        ran = conduct(
            bench,
            first.url,
            "run",
            "--plan",
            "plan.yaml",
            "--autonomous",
            client=client,
            retries="0",
        )

    directory = session_of(bench.project)
    results = [event["result"] for event in journal(directory) if event["kind"] == "attempt_end"]
    assert ran.returncode == 0, (results, ran.stderr)
    assert results == ["limited", "success"]
    assert open_loop_session(directory).state.totals.errors == 0
