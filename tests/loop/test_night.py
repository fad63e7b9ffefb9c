"""A night with the real client: a crash, a limit, a question, a failure; and what a reader finds in the morning."""

import json
import os
import signal
import subprocess

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.loop.directories import open_loop_session
from loop.loops import RALPH, journal, session_of, wait_for_exit
from loop.test_with_real_agent import around, bash, conduct, select_message_requests, task, writes
from support.waiting import until

ANSWER = "Use SQLite; its key is gh" + "p_T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i, in one file."
SAYS = {"text": "Wrote the parser and its test."}
RULES = [
    {"when": {"prompt": "The answer:"}, "replies": [writes("db.txt", "sqlite\n"), {"text": "It is SQLite now."}]},
    {"when": {"prompt": "Choose a database"}, "replies": [{"text": "I looked around.\n\nPostgres or SQLite?"}]},
    {"when": {"prompt": "the parser"}, "replies": [writes("parser.py", "x = 1\ny = 2\n"), SAYS]},
    {"when": {"prompt": "the long one"}, "replies": [
        bash("echo half > long.txt; if [ ! -e once ]; then touch once; sleep 300; fi; echo whole >> long.txt"),
        {"text": "The long one is done."}]},
    {"when": {"prompt": "(?s)You were interrupted.*the limited one"}, "replies": [
        writes("limited.txt", "x\n"), {"text": "Done."}]},
    {"when": {"prompt": "the limited one"}, "replies": [{"errors": [{"status": 429, "message": "limit"}]}]},
]  # fmt: skip


def night_plan():
    commands = [
        {"task_id": f"{n:03}", "name": f"Step {n}", "run": {"command": f"echo {n} > step-{n}"}}
        for n in range(1, 7)
    ]
    agents = [
        task(7, "Write the parser.", ["test -s parser.py"]),
        task(8, "Do the long one.", ["grep -q whole long.txt"]),
        task(9, "Do the limited one.", ["test -s limited.txt"]),
        task(10, "Choose a database.", ["grep -q sqlite db.txt"]),
    ]
    fails = {
        "task_id": "011",
        "name": "Deploy",
        "max_retries": 0,
        "run": {"command": "echo 'no route to staging' >&2; exit 3"},
    }
    last = {"task_id": "012", "name": "Sum it up", "run": {"command": "echo sum > sum.txt"}}
    last |= {"dependencies": [f"{n:03}" for n in range(1, 11)], "output_artifacts": ["sum.txt"]}
    limits = {
        "limit_wait_seconds": 1,
        "answer_timeout_seconds": 8,
        "human_intervention": "on_low_confidence",
    }
    order = {f"{n:03}": round(1 - n / 100, 2) for n in range(1, 13)}
    tasks = [
        {**task, "priority_score": order[task["task_id"]]}
        for task in [*commands, *agents, fails, last]
    ]
    return {"plan": "One night", "tasks": tasks, "config": limits, "review_points": ["012"]}  # fmt: skip


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """Run the night; return the project's bench, the journal, the report and the model's requests."""
    from support.real_agent import make_bench

    bench = make_bench(tmp_path_factory.mktemp("night") / "b")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q", "."], cwd=bench.project, check=True)
    (bench.project / "plan.yaml").write_text(json.dumps(night_plan()))
    with serve_scenario(parse_scenario({"rules": RULES})) as model:
        env = around(bench, model.url, retries="0")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [RALPH, "run", "--plan", "plan.yaml", "--autonomous", "--live"]
        runner = subprocess.Popen(words, cwd=bench.project, env=env, **pipes)
        until((bench.project / "once").exists, limit_s=90)
        until(lambda: "Bash" in activity(bench))
        os.kill(runner.pid, signal.SIGKILL)
        live = runner.communicate(timeout=30)[1].decode()
        notify = 'echo "$FLIGHTLOG_EVENT: $FLIGHTLOG_MESSAGE" >> "$HOME/notes.txt"'
        words = [RALPH, "resume", "--session", "session-001", "--notify", notify]
        runner = subprocess.Popen(words, cwd=bench.project, env=env, **pipes)
        shown = until(lambda: question(bench, model.url), limit_s=90)
        answered = conduct(bench, model.url, "answer", "--session", "session-001", ANSWER)
        assert (wait_for_exit(runner), answered.returncode) == (1, 0), answered.stderr
        requests = [seen.body for seen in select_message_requests(model)]
    directory = session_of(bench.project)
    return bench, directory, live, shown, requests


def activity(bench):
    path = session_of(bench.project) / "activity.json"
    return json.loads(path.read_text())["tool"] if path.exists() else ""


def question(bench, url):
    ran = conduct(bench, url, "status", "--session", "session-001", "--json")
    asked = json.loads(ran.stdout)["question"]
    return asked if asked and "SQLite?" in asked["text"] else None


def of_kind(directory, kind, **fields):
    events = [event for event in journal(directory) if event["kind"] == kind]
    return [event for event in events if fields.items() <= event.items()]


def test_the_report_holds_the_ten_facts_of_the_journal(night):
    _, directory, _, _, _ = night
    report = (directory / "final-report.md").read_text()
    done = [event["task"] for event in of_kind(directory, "task_complete", result="success")]
    usd = sum(event["cost_usd"] for event in of_kind(directory, "usage"))
    (cut,) = of_kind(directory, "attempt_end", result="cut")
    (limited,) = of_kind(directory, "attempt_end", result="limited")
    (failed,) = of_kind(directory, "task_complete", result="failure")
    asked = of_kind(directory, "question")[-1]
    runs = [event for event in of_kind(directory, "attempt_end") if event["task"] == "008"]
    checks = [event for event in of_kind(directory, "verify") if event["task"] == "008"]
    took = sum(event["duration_s"] for event in [*runs, *checks])
    calls = sum(event["calls"] for event in of_kind(directory, "usage"))

    facts = {
        "what was done": f"{len(done)} of 12 tasks completed, 5 of them verified",
        "what failed and why": f"Task {failed['task']} (Deploy) is failed: no route to staging",
        "what it cost": f"cost {usd:.4f} USD for {calls} model calls",
        "what waits for an answer": asked["text"],
        "what to type next": f"`flightlog loop answer --session {directory.name} continue` (or: pause)",
        "that it crashed, and where": "crash: the runner was killed during task 008, attempt 1",
        "that a limit was waited for": f"until {stamp(limited)}: the API's limit",
        "what changed": "- `parser.py` +2 -0, not committed (task 007)",
        "what the agent said": "Task 007: Wrote the parser and its test.",
        "how long and how often": f"| 008 | Do the long one. | verified | 2 (1 cut short) | {took:.1f} s |",
        "what was made": "- `sum.txt` [e",
    }
    assert {name: fact for name, fact in facts.items() if fact not in report} == {}, report
    assert len(done) == 11
    assert cut["duration_s"] > 0
    assert "calibrated" not in report


def stamp(event):
    from flightlog.model.text import format_utc_time, parse_utc_time

    return format_utc_time(parse_utc_time(event["ts"]) + event["limit_s"])


def test_the_answer_is_in_the_next_request_word_for_word(night):
    _, directory, _, shown, requests = night
    asked = [body for body in requests if ANSWER in json.dumps(body)]

    assert shown["text"].endswith("the agent asks: Postgres or SQLite?")
    assert asked, "the model was told the answer"
    assert ANSWER not in (directory / "journal.jsonl").read_text(), (
        "what is private stays out of the journal"
    )


def test_the_cut_attempt_is_on_record_and_its_session_goes_on(night):
    _, directory, live, _, _ = night
    runs = of_kind(directory, "run_start", task="008")
    (cut,) = of_kind(directory, "attempt_end", result="cut")

    assert [run["is_resumed"] for run in runs] == [False, True]
    assert runs[0]["agent_session"] == runs[1]["agent_session"] == cut["agent_session"]
    assert cut["changes"] == [["long.txt", 1, 0], ["once", 0, 0]]
    assert "+half" in (directory / cut["diff"]).read_text()
    assert "| Bash: echo half > long.txt" in live
    assert "| Wrote the parser and its test." in live


def test_status_names_each_task_its_cause_and_the_next_command(night):
    bench, directory, _, _, _ = night
    ran = conduct(bench, "http://127.0.0.1:9", "status", "--session", "session-001", "--json")

    status = json.loads(ran.stdout)

    rows = {row["id"]: row for row in status["tasks"]}
    resume = f"flightlog loop resume --session {directory.name}"
    assert set(rows["011"]) == {
        "id",
        "name",
        "status",
        "attempts",
        "duration_s",
        "cost_usd",
        "cause",
        "next",
    }
    assert (rows["011"]["cause"], rows["011"]["next"]) == ("no route to staging", resume)
    assert (rows["008"]["attempts"], rows["008"]["status"]) == (2, "completed")
    assert set(status["question"]) == {"id", "text", "asked_at"}
    notes = (bench.home / "notes.txt").read_text()
    assert "question: Choose a database.: the agent asks: Postgres or SQLite?" in notes
    assert "paused: review: no answer within 8 s, so it paused" in notes


def test_answer_after_the_night_lets_the_session_resume(night):
    bench, directory, _, _, _ = night

    answered = conduct(
        bench, "http://127.0.0.1:9", "answer", "--session", "session-001", "continue"
    )
    ran = conduct(bench, "http://127.0.0.1:9", "resume", "--session", "session-001")

    assert "flightlog" not in answered.stderr
    assert "loop resume --session session-001" in answered.stderr.replace("ralph-runtime", "loop")
    assert of_kind(directory, "answer")[-1]["answered_by"] == "person", ran.stderr
    assert open_loop_session(directory).state.reviewed_points == ["012"]
