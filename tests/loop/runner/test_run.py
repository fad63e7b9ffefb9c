"""Sessions carried out for real: files, verification, gates, reports, questions, torn pages."""

import json
import shutil
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from flightlog.loop.runner.control import ControlInbox
from loop.loops import (
    RALPH,
    TWO,
    conduct,
    environment,
    journal,
    kinds,
    project,
    ralph,
    read_answer,
    session_of,
    start,
    wait_for_exit,
)
from support.waiting import until


def yaml(path):
    return YAML(typ="safe", pure=True).load(path.read_text())


def test_a_plan_is_carried_out_and_every_file_of_the_document_is_there(tmp_path):
    root = project(tmp_path / "p", TWO)

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous")

    assert ran.returncode == 0, ran.stderr
    directory = session_of(root)
    assert (root / "two.txt").read_text() == "one\n"
    assert yaml(directory / "session-metadata.yaml")["status"] == "completed"
    for name in (
        "execution-log.json",
        "decision-history.json",
        "errors-and-retries.json",
        "feature-inventory.json",
    ):
        assert json.loads((directory / name).read_text())["session_id"] == "session-001"
    logged = json.loads((directory / "execution-log.json").read_text())["events"]
    assert [entry["event_type"] for entry in logged] == kinds(directory)
    assert "## Lessons Learned" in (directory / "final-report.md").read_text()
    assert {path.name for path in directory.parent.iterdir()} >= {
        "README.md",
        "templates",
        "archive",
        "summaries",
    }


def test_completed_needs_every_task_verified(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: one is wrong
        config: {human_intervention: never, max_retries: 0}
        tasks:
          - {task_id: a, name: right, run: {command: "true"}}
          - {task_id: b, name: wrong, run: {command: "true"}, verify: ["false"]}
          - {task_id: c, name: waits, run: {command: "touch never"}, dependencies: [b]}
        """,
    )

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous", "--json")

    assert ran.returncode == 1
    report = json.loads(ran.stdout)
    assert (report["status"], report["tasks_completed"]) == ("error", 1)
    assert not (root / "never").exists()


def test_a_command_that_fails_without_a_word_has_its_exit_code_as_cause(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: silent
        config: {human_intervention: never, max_retries: 0}
        tasks: [{task_id: a, name: x, run: {command: "exit 3"}}]
        """,
    )

    directory = conduct(root)

    status = ralph(root, "status", "--session", directory.name, "--json")
    assert [task["cause"] for task in json.loads(status.stdout)["tasks"]] == ["exit code 3"]


def test_a_verify_tool_that_is_missing_is_no_pass(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: missing tool
        config: {human_intervention: never, max_retries: 0}
        tasks: [{task_id: a, name: x, run: {command: "true"}, verify: [no-such-tool-anywhere]}]
        """,
    )

    directory = conduct(root)

    checked = next(event for event in journal(directory) if event["kind"] == "verify")
    assert checked["passed"] is False
    assert checked["commands"] == [["no-such-tool-anywhere", None]]


def test_a_gate_without_its_metric_is_not_evaluated_and_blocks(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: gate
        config: {human_intervention: never}
        quality_gates: [{name: coverage, metric: coverage, threshold: 0.8, phase: 1}]
        tasks:
          - {task_id: a, name: x, run: {command: "true"}}
          - {task_id: b, name: y, phase: 2, run: {command: "touch later"}}
        """,
    )

    directory = conduct(root)

    assert not (root / "later").exists()
    gate = yaml(directory / "progress-tracking.yaml")["quality_gates"][0]
    assert (gate["passed"], gate["state"]) == (False, "not evaluated")
    assert yaml(directory / "session-metadata.yaml")["status"] == "paused"


def test_reports_reach_the_inventory_and_their_statistics_equal_a_recount(tmp_path):
    lines = [
        {
            "feature": {
                "feature_id": f"F{n}",
                "name": f"f{n}",
                "category": "core" if n % 2 else "edge",
            }
        }
        for n in range(5)
    ]
    lines += [
        {"feature": {"feature_id": "F1", "documented": True, "status": "documented"}},
        {"artifact": "docs/f1.md"},
    ]
    lines += [
        {"metric": "coverage", "value": 0.9},
        {"context": {"features_discovered": ["F1", "F2"]}},
    ]
    root = project(
        tmp_path / "p",
        """
        plan: reports
        tasks: [{task_id: a, name: x, run: {command: 'cat lines.jsonl >> "$FLIGHTLOG_REPORT"'}}]
        """,
        lines__jsonl="".join(json.dumps(line) + "\n" for line in lines) + "nonsense\n",
    )  # fmt: skip

    directory = conduct(root)

    page = json.loads((directory / "feature-inventory.json").read_text())
    features, counted = page["features"], page["statistics"]
    assert counted["total_features"] == len(features) == 5
    for name, key in (("by_category", "category"), ("by_status", "status")):
        assert counted[name] == {
            value: sum(feature[key] == value for feature in features)
            for value in {feature[key] for feature in features}
        }
    assert counted["documentation_coverage"] == sum(
        feature["documented"] for feature in features
    ) / len(features)
    assert yaml(directory / "progress-tracking.yaml")["tasks"][0]["artifacts"] == ["docs/f1.md"]
    assert any(
        event["kind"] == "alert" and "nonsense" in event["reason"] for event in journal(directory)
    )


def test_a_plan_changed_under_a_session_is_refused(tmp_path):
    root = project(
        tmp_path / "p",
        TWO.replace("echo one > one.txt", "false")
        + "config: {human_intervention: never, max_retries: 0}\n",
    )
    ralph(root, "run", "--plan", "plan.yaml", "--autonomous")
    directory = session_of(root)

    changed = directory / "plan.yaml"
    changed.write_text(changed.read_text() + "# another word\n")
    resumed = ralph(root, "resume", "--session", "session-001")
    (root / "plan.yaml").write_text(TWO)
    again = ralph(root, "run", "--plan", "plan.yaml", "--session", directory.name)

    assert (resumed.returncode, again.returncode) == (75, 75)
    assert "changed under the session" in resumed.stderr
    assert "another plan" in again.stderr


def test_a_session_made_by_hand_from_the_templates_can_be_run(tmp_path):
    root = project(tmp_path / "p", TWO)
    ralph(root, "run", "--plan", "plan.yaml", "--autonomous")
    own = root / "ralph-loop-sessions" / "session-004-by-hand"
    own.mkdir()
    for template in (root / "ralph-loop-sessions" / "templates").iterdir():
        (own / template.name).write_bytes(template.read_bytes())
    metadata = own / "session-metadata.yaml"
    metadata.write_text(metadata.read_text().replace("max_iterations: 300", "max_iterations: 7"))

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous", "--session", "session-004")

    assert ran.returncode == 0, ran.stderr
    assert yaml(metadata)["ralph_runtime_config"]["max_iterations"] == 7
    assert yaml(metadata)["status"] == "completed"


def test_a_question_is_answered_by_command_by_file_or_not_at_all(tmp_path):
    plan = """
    plan: asks
    config: {human_intervention: ask_first, answer_timeout_seconds: SECONDS}
    review_points: [a]
    tasks:
      - {task_id: a, name: x, run: {command: "true"}}
      - {task_id: b, name: y, run: {command: "touch b"}, dependencies: [a]}
    """
    by_command = project(tmp_path / "command", plan.replace("SECONDS", "60"))
    by_file = project(tmp_path / "file", plan.replace("SECONDS", "60"))
    unanswered = project(tmp_path / "unanswered", plan.replace("SECONDS", "0.5"))

    runner = start(by_command, "run", "--plan", "plan.yaml", "--autonomous")
    until(lambda: "question" in _kinds(by_command))
    wrong = ralph(by_command, "answer", "--session", "session-001", "perhaps")
    right = ralph(by_command, "answer", "--session", "session-001", "continue")
    assert wait_for_exit(runner) == 0
    runner = start(by_file, "run", "--plan", "plan.yaml", "--autonomous")
    until(lambda: "question" in _kinds(by_file))
    page = session_of(by_file) / "question.yaml"
    until(lambda: "answer" in page.read_text())
    page.write_text(page.read_text().replace('answer: ""', "answer: continue"))
    assert wait_for_exit(runner) == 0
    alone = ralph(unanswered, "run", "--plan", "plan.yaml", "--autonomous")

    assert (wrong.returncode, right.returncode, alone.returncode) == (2, 0, 1)
    assert [read_answer(root) for root in (by_command, by_file, unanswered)] == [
        ("continue", "person"), ("continue", "person"), ("pause", "timeout"),
    ]  # fmt: skip
    assert not (unanswered / "b").exists()
    assert not list(by_command.glob("*/session-001-*/control.jsonl")), (
        "answers are not redacted there"
    )


def test_a_task_that_reports_low_confidence_asks_before_the_next(tmp_path):
    plan = """
    plan: unsure
    config: {human_intervention: WHEN, answer_timeout_seconds: 0.5}
    tasks:
      - {task_id: a, name: x, run: {command: 'cat sure.jsonl >> "$FLIGHTLOG_REPORT"'}}
      - {task_id: b, name: y, run: {command: "touch b"}, dependencies: [a]}
    """
    sure = {"sure__jsonl": '{"confidence": 0.2}\n'}
    asking = project(tmp_path / "asking", plan.replace("WHEN", "on_low_confidence"), **sure)
    silent = project(tmp_path / "silent", plan.replace("WHEN", "never"), **sure)

    paused = ralph(asking, "run", "--plan", "plan.yaml", "--autonomous")
    done = ralph(silent, "run", "--plan", "plan.yaml", "--autonomous")

    assert (paused.returncode, done.returncode) == (1, 0), paused.stderr + done.stderr
    assert read_answer(asking) == ("pause", "timeout")
    assert not (asking / "b").exists()
    assert "confidence 0.20, below 0.7" in (session_of(asking) / "journal.jsonl").read_text()
    assert "question" not in _kinds(silent)


def test_without_autonomous_the_first_question_is_whether_to_begin(tmp_path):
    root = project(tmp_path / "p", TWO + "config: {answer_timeout_seconds: 0.3}\n")

    ran = ralph(root, "run", "--plan", "plan.yaml")

    assert ran.returncode == 1
    assert not (root / "one.txt").exists()


def test_a_failure_that_repeats_is_diagnosed_instead_of_tried_again(tmp_path):
    root = project(
        tmp_path / "p",
        """
        plan: stubborn
        config: {human_intervention: never, retry_base_seconds: 0.01, max_retries: 5}
        tasks:
          - task_id: a
            name: x
            run: {command: "echo ran >> ran.txt; echo it is broken 123; exit 3"}
            diagnose: "echo the disk is upside down"
        """,
    )

    directory = conduct(root)

    events = journal(directory)
    assert [event["action"] for event in events if event["kind"] == "error_recovery"][:2] == [
        "retry",
        "diagnose",
    ]
    modes = [event["mode"] for event in events if event["kind"] == "task_start"]
    assert modes[:3] == ["work", "work", "diagnose"]
    assert (root / "ran.txt").read_text().count("ran") < 6


def test_a_page_that_is_torn_is_made_again_from_the_journal(tmp_path):
    root = project(
        tmp_path / "p",
        TWO.replace("cat one.txt", "cat none.txt")
        + "config: {human_intervention: never, max_retries: 0}\n",
    )
    ralph(root, "run", "--plan", "plan.yaml", "--autonomous")
    directory = session_of(root)
    page = directory / "execution-log.json"
    page.write_bytes(page.read_bytes()[:200])
    (directory / "checkpoint.json").write_text("{")
    (root / "none.txt").write_text("x")

    resumed = ralph(root, "resume", "--session", "session-001")

    assert resumed.returncode == 0, resumed.stderr
    logged = json.loads(page.read_text())["events"]
    assert [entry["event_type"] for entry in logged] == kinds(directory)


def _kinds(root):
    journals = list((root / "ralph-loop-sessions").glob("session-001-*/journal.jsonl"))
    return kinds(journals[0].parent) if journals else []


def repository(root, plan=TWO):
    subprocess.run(["git", "init", "-q", root], check=True)
    return project(root, plan)


def files(root, *without):
    """Every file of a project but git's, the machine's and those below `without`."""
    apart = [root / name for name in (".git", "home", "config", "flightlog", *without)]
    paths = [path for path in root.rglob("*") if path.is_file()]
    return sorted(
        path.name for path in paths if not any(path.is_relative_to(folder) for folder in apart)
    )


@pytest.mark.parametrize(
    "name", ["./my-session", "deep/er/session-007-x"], ids=["at the top", "below"]
)
def test_session_elsewhere_writes_nothing_outside_its_directory(tmp_path, name):
    root = repository(tmp_path / "p")

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous", "--session", name)

    assert ran.returncode == 0, ran.stderr
    assert files(root, name) == ["one.txt", "plan.yaml", "two.txt"]
    ignored = subprocess.run(["git", "check-ignore", "new.py", f"{name}/journal.jsonl"], cwd=root, capture_output=True,
                             text=True, check=False).stdout  # fmt: skip
    assert ignored.splitlines() == [f"{name}/journal.jsonl"]


def test_session_directory_from_python_stays_inside_it(tmp_path):
    root = repository(tmp_path / "p")
    call = "from ralph_runtime import RalphRuntime\nruntime = RalphRuntime(session_dir='session-001')\n"
    call += "print(runtime.execute_plan('plan.yaml', autonomous_mode=True)['status'], runtime.status()['status'])"

    ran = subprocess.run([sys.executable, "-c", call], cwd=root, env=environment(root), capture_output=True, text=True,
                         check=False)  # fmt: skip

    assert ran.stdout == "completed completed\n", ran.stderr
    assert files(root, "session-001") == ["one.txt", "plan.yaml", "two.txt"]


def test_session_outside_the_project_is_refused(tmp_path):
    root = repository(tmp_path / "p")

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous", "--session", "../evil")

    assert (ran.returncode, "outside the project" in ran.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_foreign_session_runs_nothing_until_its_plan_is_allowed(tmp_path):
    plan = TWO.replace("cat one.txt", "touch PWNED; exit 1; cat one.txt")
    theirs = repository(
        tmp_path / "theirs", plan + "config: {human_intervention: never, max_retries: 0}\n"
    )
    ralph(theirs, "run", "--plan", "plan.yaml", "--autonomous")
    root = tmp_path / "clone"
    shutil.copytree(theirs, root, ignore=shutil.ignore_patterns("flightlog", "PWNED"))

    refused = ralph(root, "resume", "--session", "session-001")

    assert refused.returncode == 4
    assert 'task b = "touch PWNED' in refused.stderr
    assert not (root / "PWNED").exists()
    (session,) = (root / "ralph-loop-sessions").glob("session-001-*")
    assert f"flightlog trust --yes {session}" in refused.stderr
    allowed = subprocess.run([RALPH.with_name("flightlog"), "trust", "--yes", session.name], cwd=root,
                             env=environment(root), check=False)  # fmt: skip
    assert (allowed.returncode, ralph(root, "resume", "--session", "session-001").returncode) == (
        0,
        1,
    )
    assert (root / "PWNED").exists()


@pytest.mark.parametrize("answer", ["0", "false", "2.50", "no", "001"])
def test_an_answer_in_the_file_is_taken_as_written(tmp_path, answer):
    (tmp_path / "question.yaml").write_text(f"question_id: q1\nanswer: {answer}\n")

    (request,) = ControlInbox(tmp_path).drain("q1")

    assert (request.question_id, request.answer) == ("q1", answer)
