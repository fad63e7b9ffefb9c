"""No dead ends: every session that stopped can go on, and says with which command."""

import json
import subprocess
import sys

import pytest

from flightlog.loop.directories import open_loop_session
from flightlog.loop.plan.importer import import_plan
from flightlog.loop.plan.load import load_plan, parse_plan
from loop.loops import (
    TWO,
    environment,
    journal,
    kinds,
    project,
    ralph,
    session_of,
    start,
    wait_for_exit,
)
from support.cpu_time import measure_cpu
from support.waiting import alive, until

THREE = """
plan: three
config: {human_intervention: never}
tasks:
  - {task_id: a, name: first, run: {command: "echo $FLIGHTLOG_KEY >> keys; echo 1 > one"}, verify: ["test -s one"]}
  - {task_id: b, name: second, dependencies: [a], run: {command: "echo 2 > two; echo 9 >> one"},
     verify: ["test -s two"]}
  - {task_id: c, name: third, dependencies: [b], run: {command: "echo 3 > three"}}
"""


def carry_out(root, plan, *words, **more):
    project(root, plan)
    return ralph(root, "run", "--plan", "plan.yaml", "--autonomous", *words, **more)


def outside(tmp_path):
    """A home beside the project: one that holds a person's home gets no snapshots."""
    return {"HOME": str(tmp_path / "home"), "FLIGHTLOG_HOME": str(tmp_path / "flightlog")}


def next_words(root):
    """The words of the command that `status` says to type."""
    command = json.loads(ralph(root, "status", "--session", "session-001", "--json").stdout)["next"]
    assert command.startswith("flightlog loop ")
    return command.split()[2:]


def test_a_used_up_limit_names_the_option_that_raises_it(tmp_path):
    root = tmp_path / "p"
    carry_out(root, THREE, "--max-iterations", "1")

    words = next_words(root)
    ran = ralph(root, *words)
    once_more = ralph(root, *next_words(root))

    assert words == ["resume", "--session", "session-001-three", "--max-iterations", "2"]
    assert (ran.returncode, once_more.returncode) == (1, 0), once_more.stderr
    assert ralph(root, "resume", "--session", "session-001").returncode == 2, "it is completed"


def test_time_limit_is_raised_and_zero_removes_it(tmp_path):
    root = tmp_path / "p"
    plan = THREE + "budgets: {wall_time_seconds: 0.001, usd: 1}\n"
    carry_out(root, plan)

    ran = ralph(root, "resume", "--session", "session-001", "--max-wall", "0", "--budget", "2")

    assert ran.returncode == 0, ran.stderr
    budgets = open_loop_session(session_of(root)).state.budgets
    assert (budgets.wall_time_seconds, budgets.usd) == (None, 2)


def test_settings_of_a_begun_session_are_refused_not_ignored(tmp_path):
    root = tmp_path / "p"
    carry_out(root, THREE, "--max-iterations", "1")
    again = ("run", "--plan", "plan.yaml", "--session", "session-001")

    refused = ralph(root, *again, "--max-iterations", "9")
    dry = ralph(root, "run", "--plan", "plan.yaml", "--dry-run", "--live")
    phase = ralph(root, "run", "--plan", "plan.yaml", "--dry-run", "--phase", "9")
    tool = ralph(root, "resume", "--session", "session-001", "--allow", "Write; id")

    assert refused.returncode == dry.returncode == phase.returncode == tool.returncode == 2
    assert "one of: 1" in phase.stderr
    assert "not a tool: 'Write; id'" in tool.stderr
    assert "resume --session session-001-three --max-iterations N" in refused.stderr
    assert "no effect" in dry.stderr


def test_consent_to_a_copied_session_names_the_tools_its_journal_allows(tmp_path):
    root = tmp_path / "p"
    carry_out(root, THREE, "--max-iterations", "1")
    ralph(root, "resume", "--session", "session-001", "--allow", "Bash(git log *)")

    asked = ralph(root, "resume", "--session", "session-001", FLIGHTLOG_HOME=str(tmp_path / "new"))

    assert asked.returncode != 0
    assert 'agents may use = ["Bash(git log *)"]' in asked.stderr


def test_redo_runs_a_completed_task_again_under_a_new_key(tmp_path):
    root = tmp_path / "p"
    assert carry_out(root, THREE).returncode == 0

    refused = ralph(root, "redo", "--session", "session-001", "d")
    redone = ralph(root, "redo", "--session", "session-001", "a")
    ran = ralph(root, "resume", "--session", "session-001")

    assert (refused.returncode, redone.returncode, ran.returncode) == (1, 0, 0), ran.stderr
    keys = (root / "keys").read_text().split()
    assert (len(keys), len(set(keys))) == (2, 2)
    assert (root / "three").exists()
    assert kinds(session_of(root)).count("task_complete") == 4


def test_a_failed_gate_is_accepted_and_a_tripped_breaker_reset(tmp_path):
    gate = 'quality_gates: [{name: "Coverage high", metric: coverage, threshold: 1}]\n'
    gated, tripped = tmp_path / "gated", tmp_path / "tripped"
    carry_out(gated, THREE + gate)
    stop = 'circuit_breaker: {conditions: [{when: "tasks_completed >= 1 and errors >= 1", action: stop}]}\n'
    flaky = THREE.replace(
        "echo 2 > two;", "test -e tried || { touch tried; exit 1; }; echo 2 > two;"
    )
    carry_out(tripped, flaky + stop)

    words = next_words(gated)
    accepted = ralph(gated, *words[:3], "Coverage high")
    reset = ralph(tripped, *next_words(tripped))

    assert words == ["accept", "--session", "session-001-three", "'Coverage", "high'"]
    assert (accepted.returncode, reset.returncode) == (0, 0), reset.stderr
    assert ralph(gated, "resume", "--session", "session-001").returncode == 0
    assert open_loop_session(session_of(tripped)).state.breaker.trips == 0
    assert ralph(gated, "accept", "--session", "session-001", "Nothing").returncode == 1
    assert ralph(gated, "accept", "--session", "session-001", "Coverage high").returncode == 2


def test_rollback_restores_the_files_before_a_task(tmp_path):
    root, own = tmp_path / "p", outside(tmp_path)
    assert carry_out(root, THREE, **own).returncode == 0
    (root / "note.txt").write_text("mine, written after the task\n")

    shown = ralph(root, "rollback", "--session", "session-001", "b", **own)
    untouched = (root / "two").exists()
    done = ralph(root, "rollback", "--session", "session-001", "b", "--yes", "--json", **own)
    status = ralph(root, "status", "--session", "session-001", **own)

    assert "note.txt  +0 -1" in shown.stdout, "what a rollback takes from the person, too"
    assert "    one  +1 -0" in status.stdout
    assert "    two  " not in status.stdout, "the file is gone"
    assert (shown.returncode, untouched, done.returncode) == (1, True, 0), done.stderr
    assert json.loads(done.stdout)["reopened_tasks"] == ["b", "c"]
    assert ((root / "one").read_text(), (root / "two").exists()) == ("1\n", False)
    assert ralph(root, "resume", "--session", "session-001", **own).returncode == 0
    assert (root / "one").read_text() == "1\n9\n"
    assert len((root / "keys").read_text().split()) == 1, "the task before it was not done again"


def test_rollback_reopens_what_ran_later_and_names_what_was_cut(tmp_path):
    root, own, name = tmp_path / "p", outside(tmp_path), ("--session", "session-001")
    cut = THREE.replace("echo 3 > three", "test -e flag && echo 3 > three || kill -9 $PPID")
    carry_out(root, cut, **own)

    of_cut = ralph(root, "rollback", *name, "c", "--yes", "--json", **own)
    (root / "flag").touch()
    codes = [
        ralph(root, *words, **own).returncode
        for words in (("resume", *name), ("redo", *name, "a"), ("resume", *name))
    ]
    of_redone = ralph(root, "rollback", *name, "b", "--json", **own)

    assert json.loads(of_cut.stdout)["reopened_tasks"] == ["c"], of_cut.stderr
    assert codes == [0, 0, 0]
    assert [event.get("result") for event in journal(session_of(root))].count("cut") == 1
    assert json.loads(of_redone.stdout)["reopened_tasks"] == ["a", "b", "c"]


def test_each_verified_task_is_committed_with_its_files_only(tmp_path):
    root = tmp_path / "p"
    root.mkdir()

    def git(*words):
        own = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *own, *words], cwd=root, capture_output=True, text=True, check=True
        ).stdout

    git("init", "-q")
    git("config", "user.name", "A")
    git("config", "user.email", "a@example.org")
    (root / "mine.txt").write_text("1\n")
    (root / ".gitignore").write_text(".env\n")
    git("add", "mine.txt", ".gitignore")
    git("commit", "-qm", "start")
    (root / "mine.txt").write_text("2\n")

    plan = THREE.replace("{human_", "{commit_per_task: true, human_")
    plan = plan.replace("echo 2 > two;", "echo 2 > two; echo KEY=1 > .env; echo 2 > ':!two';")
    ran = carry_out(root, plan, **outside(tmp_path))

    assert ran.returncode == 0, ran.stderr
    assert git("log", "--format=%s").split() == ["second", "first", "start"]
    assert git("show", "--name-only", "--format=", "HEAD").split() == [":!two", "one", "two"]
    assert " M mine.txt" in git("status", "--porcelain")
    report = (session_of(root) / "final-report.md").read_text()
    assert "- `two` +1 -0, committed (task b)" in report
    assert "- `.env` +1 -0, not committed (task b)" in report
    assert "- `three` +1 -0, not committed (task c)" in report


def test_retries_of_a_command_that_fails_alike_are_those_of_the_plan(tmp_path):
    root = project(tmp_path / "p", """
        plan: x
        config: {human_intervention: never, retry_base_seconds: 0.01}
        circuit_breaker: {error_rate: 0, failure_threshold: 0, same_error: 0, low_confidence_times: 0}
        tasks: [{task_id: a, name: a, run: {command: "echo no; exit 1"}, max_retries: 5}]
        """)  # fmt: skip

    ralph(root, "run", "--plan", "plan.yaml", "--autonomous", "--confidence-threshold", "0")

    assert kinds(session_of(root)).count("attempt_end") == 6


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_missing_or_unknown_agent_is_refused_before_anything_runs(tmp_path, words):
    task = "plan: x\ntasks: [{task_id: a, name: a, run: {agent: AGENT, prompt: x}, verify: ['true']}]\n"
    unknown = project(tmp_path / "unknown", task.replace("AGENT", "codex"))
    missing = project(tmp_path / "missing", task.replace("AGENT", "claude-code"))

    first = ralph(unknown, "run", "--plan", "plan.yaml", *words)
    second = ralph(missing, "run", "--plan", "plan.yaml", *words, FLIGHTLOG_CLAUDE="/no/such")

    assert "no driver for 'codex'" in first.stderr
    assert "export FLIGHTLOG_CLAUDE=" in second.stderr
    assert not list(tmp_path.glob("*/ralph-loop-sessions/session-*"))


def test_phases_run_as_sessions_of_their_own_in_order(tmp_path):
    root = tmp_path / "p"
    root.mkdir()
    ralph(root, "example")
    run = ("run", "--plan", "RALPH-LOOP-PLAN.yaml", "--autonomous", "--phase")

    early = ralph(root, *run, "2")
    codes = [ralph(root, *run, str(phase)).returncode for phase in range(1, 8)]

    assert "first run it with: --phase 1" in early.stderr
    assert codes == [0] * 7
    names = sorted(path.name for path in (root / "ralph-loop-sessions").glob("session-*"))
    assert names[0] == "session-001-autonomous-discovery"
    assert names[6] == "session-007-learning-integration"
    assert "features_discovered" in journal(session_of(root, 2))[0]["context"]


def test_a_detached_session_ends_by_itself_and_is_notified(tmp_path):
    root = project(tmp_path / "p", TWO)
    notify = 'echo "$FLIGHTLOG_EVENT $FLIGHTLOG_SESSION" > note.txt'

    ran = ralph(
        root, "run", "--plan", "plan.yaml", "--autonomous", "--detach", "--notify", notify, "--json"
    )

    started = json.loads(ran.stdout)
    until(lambda: not alive(started["pid"]))
    assert open_loop_session(session_of(root)).state.status == "completed"
    assert (root / "note.txt").read_text() == "completed session-001-two\n"
    assert "completed" in (session_of(root) / "runner.log").read_text()


def test_a_wait_for_an_answer_is_shown_with_the_time_left(tmp_path):
    root = project(tmp_path / "p", TWO)
    runner = start(root, "run", "--plan", "plan.yaml")
    until(lambda: list(root.glob("ralph-loop-sessions/*/question.yaml")))
    shown = until(lambda: waiting_line(root))
    runner.terminate()
    wait_for_exit(runner)

    assert " left" in shown


def waiting_line(root):
    lines = ralph(root, "monitor", "--session", "session-001", "--once").stdout.splitlines()
    return next((line for line in lines if "waiting for an answer until" in line), "")


CALL = """
from ralph_runtime import RalphRuntime
runtime = RalphRuntime(session_dir="work/session-044")
runtime.execute_plan("plan.yaml", autonomous_mode=True)
"""


def test_a_session_made_from_python_prints_progress_and_is_found_by_name(tmp_path):
    root = project(tmp_path / "p", TWO)

    ran = subprocess.run([sys.executable, "-c", CALL], cwd=root, env=environment(root), text=True,
                         capture_output=True, timeout=60, check=False)  # fmt: skip
    status = ralph(root, "status", "--session", "session-044", "--json")
    listed = ralph(root, "status")

    assert "a first: attempt 1" in ran.stderr
    assert json.loads(status.stdout)["status"] == "completed", status.stderr
    assert "session-044" in listed.stdout


def test_checklist_prd_and_issues_become_plans(tmp_path):
    files = {
        "todo.md": "# Shop\n\n- [x] done\n- [ ] cart\n  - keeps items\n  - [ ] empties\n## Pay\n- [ ] pay by card\n",
        "prd.json": json.dumps({"project": "Shop", "userStories": [
            {"id": "US-2", "title": "pay", "priority": 2, "description": "by card", "passes": False},
            {"id": "US-1", "title": "cart", "priority": 1, "acceptanceCriteria": ["keeps items"]},
            {"id": "US-0", "title": "login", "passes": True}]}),
        "issues.json": json.dumps([{"number": 12, "title": "cart: lost", "body": "On reload.", "state": "OPEN"},
                                   {"number": 9, "title": "old", "state": "CLOSED"}]),
    }  # fmt: skip
    plans = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        plans[name] = parse_plan(
            import_plan(tmp_path / name, ("make test",), "claude-code", []).encode()
        )

    todo, prd, issues = plans.values()
    assert [(task.name, task.phase, task.acceptance_criteria) for task in todo.tasks] == [
        ("cart", 1, ("keeps items", "empties")), ("pay by card", 2, ())]  # fmt: skip
    assert [task.task_id for task in sorted(prd.tasks, key=lambda task: -task.priority_score)] == [
        "US-1",
        "US-2",
    ]
    assert (issues.tasks[0].task_id, issues.tasks[0].run.prompt) == (
        "issue-12",
        "cart: lost\n\nOn reload.",
    )
    assert "nothing would check" in ralph(tmp_path, "import", "todo.md").stderr


def test_an_import_keeps_every_open_item_and_invents_none(tmp_path):
    todo, prd = tmp_path / "todo.md", tmp_path / "prd.json"
    todo.write_text("1. [ ] one\n2) [x] two\n```\n- [ ] an example\n```\n-  [ ]\tthree\n")
    stories = [{"id": name, "title": "x"} for name in ("002", "no id", "002")]
    prd.write_text(json.dumps({"userStories": [*stories, {"title": " "}]}))

    plans = [
        parse_plan(import_plan(path, ("true",), "claude-code", []).encode()) for path in (todo, prd)
    ]
    unchecked = ralph(tmp_path, "import", "todo.md", "--verify", " ")
    endless = ralph(tmp_path, "import", "/dev/zero", "--verify", "true")

    assert [task.name for task in plans[0].tasks] == ["one", "three"]
    assert [task.task_id for task in plans[1].tasks] == ["002", "002-1", "003"]
    assert (unchecked.returncode, endless.returncode) == (2, 2)


def test_a_plan_of_5_000_tasks_loads_within_a_second(tmp_path):
    boxes = "\n".join(f"- [ ] Write module {n} and its test." for n in range(5000))
    (tmp_path / "todo.md").write_text(f"# Big\n\n{boxes}\n")
    words = ("import", "todo.md", "--verify", "make test", "--out", "plan.json")
    assert ralph(tmp_path, *words).returncode == 0

    with measure_cpu() as seconds:
        plan, _ = load_plan(tmp_path / "plan.json")

    assert seconds[0] < 1
    assert len(plan.tasks) == 5000


def test_a_session_is_found_by_the_name_that_run_gave_it(tmp_path):
    root = tmp_path / "p"
    carry_out(root, TWO, "--session", "night")

    shown = ralph(root, "status", "--session", "night", "--json")

    assert json.loads(shown.stdout)["session"] == "session-001-night", shown.stderr


def test_a_damaged_line_of_the_journal_is_reported(tmp_path):
    root = tmp_path / "p"
    carry_out(root, THREE)
    path = session_of(root) / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b'{"v":1,"id":\xff\n', *lines[6:]]))
    (session_of(root) / "checkpoint.json").unlink()

    status = ralph(root, "status", "--session", "session-001").stdout
    report = ralph(root, "generate-report", "--session", "session-001").stdout

    assert "the journal is damaged: 1 line cannot be read" in status
    assert "The journal is damaged: 1 line cannot be read" in report
