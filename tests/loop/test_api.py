"""The document's Python call, the example plan and retention, as a person uses them."""

import json
import subprocess
import sys

from loop.loops import environment, journal, project, ralph, session_of

CALL = """
from ralph_runtime import RalphRuntime

runtime = RalphRuntime(
    session_dir=".blackbox5/roadmap/first-principles/ralph-loop-sessions/session-001",
    max_iterations=50,
    confidence_threshold=0.7
)

runtime.execute_plan(
    plan_path=".blackbox5/roadmap/first-principles/RALPH-LOOP-PLAN.yaml",
    autonomous_mode=True
)
print(runtime.status()["status"])
"""


def python(root, code):
    return subprocess.run([sys.executable, "-c", code], cwd=root, env=environment(root), capture_output=True, text=True,
                          timeout=120, check=False, stdin=subprocess.DEVNULL)  # fmt: skip


def test_the_documents_call_works_word_for_word(tmp_path):
    place = tmp_path / "p" / ".blackbox5" / "roadmap" / "first-principles"
    place.mkdir(parents=True)
    (place / "RALPH-LOOP-PLAN.yaml").write_text(
        "plan: x\ntasks: [{task_id: a, name: b, run: {command: touch it}}]\n"
    )
    root = tmp_path / "p"

    ran = python(root, CALL)

    assert ran.stdout == "completed\n", ran.stderr
    directory = place / "ralph-loop-sessions" / "session-001"
    assert (directory / "session-metadata.yaml").exists(), "exactly the path that was given"
    assert (root / "it").exists(), "tasks work where the call was made"
    assert journal(directory)[0]["config"]["max_iterations"] == 50
    again = python(root, CALL)
    assert "is completed" in again.stderr


def test_the_example_runs_offline_to_its_end_with_every_gate_passed(tmp_path):
    root = tmp_path / "p"
    root.mkdir()

    made = ralph(root, "example")
    ran = ralph(root, "run", "--plan", "RALPH-LOOP-PLAN.yaml", "--autonomous")

    assert made.stdout.split() == ["RALPH-LOOP-PLAN.yaml", "first_principles.py"]
    assert ran.returncode == 0, ran.stderr
    gates = [event for event in journal(session_of(root)) if event["kind"] == "quality_gate"]
    assert [event["passed"] for event in gates] == [True, True, True]
    assert ralph(root, "example").returncode == 2, "what is there stays"


def test_a_plan_can_be_looked_over_without_being_run(tmp_path):
    root = project(tmp_path / "p", """
        plan: x
        tasks:
          - {task_id: a, name: later, run: {command: touch a}, dependencies: [b]}
          - {task_id: b, name: first, run: {command: touch b}}
        """)  # fmt: skip

    ran = ralph(root, "run", "--plan", "plan.yaml", "--dry-run", "--json")

    assert [task["task_id"] for task in json.loads(ran.stdout)["tasks"]] == ["b", "a"]
    assert {path.name for path in root.iterdir()} == {"plan.yaml"}


def test_retain_leaves_young_sessions(tmp_path):
    root = project(
        tmp_path / "p", "plan: x\ntasks: [{task_id: a, name: b, run: {command: 'true'}}]\n"
    )
    ralph(root, "run", "--plan", "plan.yaml", "--autonomous")

    ran = ralph(root, "retain", "--yes")

    assert ran.stdout == "nothing is old enough\n"
    assert session_of(root).exists()


def test_a_plan_that_is_wrong_is_refused_on_one_line_with_its_place(tmp_path):
    root = project(
        tmp_path / "p", "plan: x\ntasks: [{task_id: a, name: b, rum: {command: 'true'}}]\n"
    )

    ran = ralph(root, "run", "--plan", "plan.yaml")

    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "ralph-runtime: plan.yaml:2:31: there is no `rum` here",
        "  did you mean `run`?",
    ]


def test_a_key_of_a_task_is_not_suggested_where_it_is_refused(tmp_path):
    root = project(tmp_path / "p", "name: x\ntasks: []\n")

    ran = ralph(root, "run", "--plan", "plan.yaml")

    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "ralph-runtime: plan.yaml:1:1: there is no `name` here",
        "  see every key: ralph-runtime schema",
    ]
