"""The files of a session against the source document's templates, key by key."""

import json
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from flightlog.loop import events
from flightlog.loop.directories import iter_events, prepare_root
from flightlog.loop.layout import build_templates, dump_yaml, readme_text
from flightlog.loop.logs import ErrorLog
from loop.loops import conduct, project

PLAN = """
plan: everything
config: {human_intervention: never, retry_base_seconds: 0.01, max_retries: 1}
phases: [{phase: 1, name: Only phase}]
milestones: [{name: Feature Discovery Complete, target: "2026-01-19T12:00:00Z", phase: 1}]
quality_gates: [{name: Feature Count Threshold, metric: features_discovered, threshold: 1}]
circuit_breaker: {failure_threshold: 1, recovery_timeout: 0.1}
tasks:
  - task_id: "001"
    name: Scan agents directory
    run: {command: 'cat lines.jsonl >> "$FLIGHTLOG_REPORT"'}
    output_artifacts: [plan.yaml]
  - task_id: "002"
    name: Fails once
    run: {command: "test -e second || { touch second; echo Permission is missing; exit 1; }"}
    dependencies: ["001"]
"""
LINES = [
    {"feature": {"feature_id": "F001", "name": "Agent Loader", "category": "core"}},
    {"context": {"features_discovered": ["F001"]}},
    {"artifact": "path/to/artifact1"},
]
# The templates of the source document: every key they show, with the type of its value.
METADATA = {
    "session_id": str, "session_name": str, "start_time": str, "end_time": str, "status": str, "phase": int,
    "phase_name": str, "tasks_completed": int, "tasks_total": int,
    "ralph_runtime_config": {"max_iterations": int, "confidence_threshold": float, "human_intervention": str,
                             "learning_rate": float},
    "context_variables": {"features_discovered": list, "features_documented": list, "assumptions_identified": int,
                          "challenges_generated": list, "validations_planned": list, "validations_executed": list},
    "performance_metrics": {"total_duration_seconds": float, "average_task_duration": float, "success_rate": float,
                            "error_count": int, "help_requests": int, "human_interventions": int},
}  # fmt: skip
LOG = {"session_id": str, "events": [{"timestamp": str, "event_type": str, "details": dict}]}
PROGRESS = {
    "session_id": str, "last_updated": str,
    "progress": {"current_task_id": (str, type(None)), "current_phase": int, "overall_progress": float,
                 "phase_progress": float},
    "tasks": [{"task_id": str, "status": str, "started_at": str, "completed_at": str, "duration_seconds": float,
               "result": str, "artifacts": list}],
    "milestones": [{"name": str, "target": str, "achieved": bool, "achieved_at": str}],
    "quality_gates": [{"name": str, "metric": str, "threshold": (int, float), "operator": str, "passed": bool}],
}  # fmt: skip
DECISIONS = {
    "session_id": str,
    "decisions": [{
        "timestamp": str, "task_id": str, "decision_type": str,
        "context": {"current_task": str, "available_actions": list,
                    "risk_assessment": {"execution": float, "resource": float, "dependency": float}},
        "decision": {"action": str, "confidence": float, "rationale": str,
                     "alternative_actions": [{"action": str, "score": float}]},
        "outcome": str,
    }],
}  # fmt: skip
INVENTORY = {
    "session_id": str, "generated_at": str,
    "features": [{"feature_id": str, "name": str, "category": str, "directory": str, "purpose": str, "key_files": list,
                  "dependencies": list, "status": str, "documented": bool, "challenges_generated": bool,
                  "assumptions_count": int}],
    "statistics": {"total_features": int, "by_category": dict, "by_status": dict, "documentation_coverage": float},
}  # fmt: skip
ERRORS = {
    "session_id": str,
    "errors": [{"timestamp": str, "task_id": str, "error_type": str, "error_message": str, "severity": str,
                "retry_count": int, "recovery_action": str, "resolved": bool, "resolution_time_seconds": float}],
    "circuit_breaker_trips": [{"timestamp": str, "condition": str, "action_taken": str, "duration_seconds": float,
                               "resolved": bool}],
}  # fmt: skip
HEADINGS = ["Executive Summary", "Progress", "Tasks", "What the Agents Said", "Changed Files", "Timeline",
            "Artifacts Generated", "Metrics", "Challenges & Solutions",
            "Lessons Learned", "Next Steps", "Raw Data"]  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = project(
        tmp_path_factory.mktemp("layout") / "p",
        PLAN,
        lines__jsonl="\n".join(map(json.dumps, LINES)),
    )
    return conduct(root)


def fits(value, shape, where="$"):
    """Every key of the template is there, with a value of its type, and in the template's order."""
    if isinstance(shape, dict):
        shared = [key for key in value if key in shape]
        assert shared == list(shape), where
        for key, inner in shape.items():
            fits(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert value, f"{where} is empty"
        for item in value:
            fits(item, shape[0], f"{where}[]")
    else:
        wanted = (int, float) if shape is float else shape
        assert isinstance(value, wanted), f"{where}: {value!r}"


def read(path):
    return (
        YAML(typ="safe", pure=True).load(path.read_text())
        if path.suffix == ".yaml"
        else json.loads(path.read_text())
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("session-metadata.yaml", METADATA),
        ("execution-log.json", LOG),
        ("progress-tracking.yaml", PROGRESS),
        ("decision-history.json", DECISIONS),
        ("feature-inventory.json", INVENTORY),
        ("errors-and-retries.json", ERRORS),
    ],
)
def test_each_file_has_every_key_of_its_template(directory, name, shape):
    fits(read(directory / name), shape)


def test_report_has_the_documents_headings_and_cites_events(directory):
    text = (directory / "final-report.md").read_text()
    numbers = {event.seq for event in iter_events(directory)}

    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    assert text.startswith("# Session Final Report: session-001\n")
    for line in text.partition("## Executive")[2].partition("## Raw Data")[0].splitlines():
        if line.startswith(("- ", "The ", "Reason")):
            cited = [int(number) for number in _find_citations(line)]
            assert cited, line
            assert set(cited) <= numbers, line


def _find_citations(line):
    import re

    return re.findall(r"\be(\d+)\b", line.rpartition("[")[2])


def test_the_two_pages_without_a_template_have_the_schema_we_gave_them(directory):
    quality = json.loads((directory / "quality-metrics.json").read_text())
    docs = json.loads((directory / "feature-docs-generated.json").read_text())

    assert list(quality) == [
        "session_id",
        "generated_at",
        "metrics",
        "quality_gates",
        "verification",
    ]
    assert list(docs) == ["session_id", "generated_at", "documents", "statistics"]
    assert docs["statistics"]["features_without_document"] == ["F001"]


def test_an_error_that_was_overcome_says_so_and_the_breaker_closed(directory):
    page = json.loads((directory / "errors-and-retries.json").read_text())

    assert [error["resolved"] for error in page["errors"]] == [True]
    assert [trip["resolved"] for trip in page["circuit_breaker_trips"]] == [True]
    assert page["circuit_breaker_trips"][0]["condition"] == "1 failure in a row"


@pytest.mark.parametrize(("is_asked", "action"), [(True, "requested_help"), (False, "gave_up")])
def test_help_is_requested_only_where_a_person_was_asked(is_asked, action):
    log = ErrorLog()
    asked = events.QuestionAsked("q1", "failure", "001", "Again?", ("retry",), "fail", 1.0)
    happened = [
        events.AttemptEnded("001", 1, "failure", 0.1, 1),
        events.RecoveryStarted("001", 1, "escalate", "1 failure"),
        *([asked] if is_asked else []),
        events.TaskEnded("001", "failure", 0.1),
    ]

    for seq, event in enumerate(happened, 1):
        log.add_event(seq, float(seq), event)

    assert [error["recovery_action"] for error in log.errors] == [action]


def test_the_templates_are_empty_pages_of_the_same_shape():
    made = build_templates()

    assert set(made) >= {
        "session-metadata.yaml",
        "execution-log.json",
        "progress-tracking.yaml",
        "decision-history.json",
    }
    metadata = YAML(typ="safe", pure=True).load(made["session-metadata.yaml"])
    assert [key for key in metadata if key in METADATA] == list(METADATA)
    assert "ralph-runtime status" in readme_text()


def test_yaml_is_read_back_as_it_was():
    value = {
        "a": 'x: "y" # no\n\u2028',
        "b": [],
        "c": {"d e": [1, {"f": None, "g": [True, []]}], "h": {}},
        "1": 0.5,
    }

    assert YAML(typ="safe", pure=True).load(dump_yaml(value)) == value


def test_prepare_root_removes_partial_files_and_restores_templates(tmp_path):
    root = tmp_path / "ralph-loop-sessions"
    prepare_root(root)
    (root / "templates" / "quality-metrics.json").unlink()
    (root / "templates" / "execution-log.json").write_text("mine")
    dead = subprocess.run(
        [sys.executable, "-c", "from flightlog.store.files import process_tag; print(process_tag())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    half = root / "templates" / f".quality-metrics.json.{dead}-7.tmp"
    half.write_text("{")

    prepare_root(root)

    assert not half.exists()
    assert (root / "templates" / "quality-metrics.json").exists()
    assert (root / "templates" / "execution-log.json").read_text() == "mine"
