"""Looking at sessions: checkpoint and journal agree, calibration, insights, comparison, retention."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from flightlog.loop import events
from flightlog.loop.analysis import (
    ConfidenceOutcome,
    analyze_session,
    build_account,
    calibration_table,
    measure_calibration,
    pair_outcomes,
    render_text,
)
from flightlog.loop.decide.choose import calibrate_confidence
from flightlog.loop.directories import LoopEvent, iter_events, open_loop_session
from flightlog.loop.report import find_insights
from flightlog.loop.retention import POLICY, list_retention_items, summarize_quarter
from flightlog.loop.status import (
    build_status,
    compare_sessions,
    comparison_rows,
    monitor_lines,
    status_lines,
)
from flightlog.model.retention import RetentionAction, plan_retention
from flightlog.privacy.redactor import Redactor
from flightlog.store.directories import carry_out_moves
from loop.loops import conduct, journal, project, ralph, session_of

PLAN = """
plan: looked at
config: {human_intervention: never, retry_base_seconds: 0.01}
tasks:
  - {task_id: a, name: right at once, run: {command: "true"}}
  - {task_id: b, name: right at last, run: {command: "test -e x || { touch x; echo connection lost; exit 1; }"}}
  - {task_id: c, name: waits, run: {command: "true"}, dependencies: [b]}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = project(tmp_path_factory.mktemp("look") / "p", PLAN)
    conduct(root)
    return root


def test_the_checkpoint_and_the_journal_say_the_same(root):
    directory = session_of(root)
    quick = open_loop_session(directory)
    checkpoint = (directory / "checkpoint.json").read_bytes()
    (directory / "checkpoint.json").unlink()

    slow = open_loop_session(directory)

    (directory / "checkpoint.json").write_bytes(checkpoint)
    assert slow.state == quick.state
    assert quick.build_metadata(Redactor(bytes(32)))["status"] == "completed"


def test_a_checkpoint_of_another_journal_is_not_believed(root, tmp_path):
    directory = tmp_path / "session-009-x"
    directory.mkdir()
    for name in ("plan.yaml", "checkpoint.json"):
        (directory / name).write_bytes((session_of(root) / name).read_bytes())
    first = (session_of(root) / "journal.jsonl").read_bytes().splitlines(keepends=True)[0]
    (directory / "journal.jsonl").write_bytes(first)

    assert open_loop_session(directory).state.completed_count == 0


def test_every_command_of_the_document_answers(root):
    for words in (
        ("status", "--session", "session-001"),
        ("monitor", "--session", "session-001", "--once"),
        ("logs", "--session", "session-001"),
        ("generate-report", "--session", "session-001"),
        ("analyze", "--session", "session-001"),
        ("insights", "--session", "session-001"),
        ("compare", "--sessions", "session-001,session-{001}"),
    ):
        ran = ralph(root, *words)
        assert ran.returncode == 0, (words, ran.stderr)
        assert ran.stdout.strip(), words
    assert (
        json.loads(ralph(root, "status", "--session", "session-001", "--json").stdout)[
            "tasks_completed"
        ]
        == 3
    )
    seen = json.loads(ralph(root, "monitor", "--session", "session-001", "--once", "--json").stdout)
    assert (seen["status"], seen["tasks_completed"]) == ("completed", 3)
    one = ralph(root, "logs", "--session", "session-001", "--event", "e3", "--json").stdout
    assert json.loads(one)["details"]["event"] == "e3"


def test_a_session_that_is_not_there_is_named_with_those_that_are(root):
    ran = ralph(root, "status", "--session", "session-077")

    assert ran.returncode == 1
    assert "session-001-looked-at" in ran.stderr


def test_the_figures_of_an_analysis_are_those_of_the_journal(root):
    analysis = analyze_session(iter_events(session_of(root)))
    written = journal(session_of(root))

    assert sum(analysis.events.values()) == len(written)
    assert analysis.errors_by_type == {"network": 1}
    assert [task.attempts for task in analysis.tasks] == [1, 2, 1]
    assert analysis.calibration.decisions == 4
    assert "4 decisions with an outcome, 20 are needed" in render_text(analysis)


def test_each_insight_has_events_as_evidence(root):
    insights = find_insights(build_account(iter_events(session_of(root))))
    by_id = {f"e{event['seq']}": event for event in journal(session_of(root))}

    assert any(
        "2 of 3 completed tasks were right at the first attempt" in insight.text
        for insight in insights
    )
    (error,) = [insight for insight in insights if "error of kind network" in insight.text]
    assert [by_id[event_id]["result"] for event_id in error.event_ids] == ["failure"]
    assert all(insight.event_ids and set(insight.event_ids) <= set(by_id) for insight in insights)


def test_session_without_events_has_no_insights():
    assert find_insights(build_account([])) == []


def test_comparison_has_a_column_for_each_session(root):
    session_events = list(iter_events(session_of(root)))
    columns = compare_sessions(
        [("one", session_events), ("two", session_events), ("three", session_events)]
    )

    assert [column.tasks_completed for column in columns] == [3, 3, 3]
    assert dict(comparison_rows(columns))["errors"] == ["1", "1", "1"]


def test_status_and_monitor_say_what_is_going_on(root):
    seen = open_loop_session(session_of(root))

    assert build_status(seen, 0.0).tasks_total == 3
    completed = "completed (all 3 tasks were completed, none verified)"
    assert status_lines(seen, 0.0)[0].endswith(completed)
    assert any("breaker closed" in line for line in monitor_lines(seen, 0.0))


def test_calibration_compares_confidence_with_outcome():
    outcomes = [ConfidenceOutcome(0.85, 0.85, right, 1) for right in [True] * 17 + [False] * 3]

    calibration = measure_calibration(outcomes)

    assert calibration.brier_score == pytest.approx(0.1275)
    assert calibration.calibration_gap == pytest.approx(0.0)
    assert [(bucket.count, bucket.accuracy) for bucket in calibration.curve] == [(20, 0.85)]
    assert measure_calibration([]).brier_score is None


def test_a_decision_is_paired_with_the_attempt_that_followed():
    def make_decision(action="execute"):
        return events.DecisionMade("a", action, 0.9, 0.8, "x")

    history = [make_decision(), events.TaskStarted("a", 1, "work", "k"), events.AttemptEnded("a", 1, "success", 1.0),
            events.TaskVerified("a", 1, passed=False), make_decision("retry"), events.TaskStarted("a", 2, "work", "k"),
            events.AttemptEnded("a", 2, "success", 1.0), events.TaskVerified("a", 2, passed=True),
            make_decision("escalate")]  # fmt: skip

    outcomes = pair_outcomes(LoopEvent(n, 0.0, event) for n, event in enumerate(history))

    assert [(pair.raw_confidence, pair.is_correct) for pair in outcomes] == [
        (0.8, False), (0.8, True),
    ]  # fmt: skip


def test_next_session_corrects_its_confidence_by_earlier_outcomes(tmp_path):
    wrong = "\n".join(
        f'  - {{task_id: t{n}, name: wrong, run: {{command: "false"}}, error_handling: {{on_failure: skip}}}}'
        for n in range(12)
    )
    breaker = "circuit_breaker: {error_rate: 0, failure_threshold: 0, same_error: 0, low_confidence_times: 0}\n"
    settings = "config: {human_intervention: never, max_retries: 0, confidence_threshold: 0.0}\n"
    root = project(tmp_path / "p", f"plan: wrong\n{settings}{breaker}tasks:\n{wrong}\n")
    conduct(root)
    assert calibration_table([]) == ()

    taught = calibration_table([session_of(root)])
    directory = conduct(root, calibration=taught)

    assert taught
    assert all(worth < raw for raw, worth in taught), "all of it was wrong"
    made = [event for event in journal(directory) if event["kind"] == "decision"]
    assert all(
        event["confidence"]
        == calibrate_confidence(event["raw_confidence"], taught)
        < event["raw_confidence"]
        for event in made
    )


def test_old_sessions_are_archived_and_summed_up_before_their_raw_logs_go(root, tmp_path):
    top = tmp_path / "ralph-loop-sessions"
    (top / "session-001-old").mkdir(parents=True)
    for path in session_of(root).iterdir():
        if path.is_file():
            (top / "session-001-old" / path.name).write_bytes(path.read_bytes())
    now = datetime.now(UTC)

    def carry_out(days):
        moves = plan_retention(
            POLICY, list_retention_items(top), int((now + timedelta(days=days)).timestamp() * 1000)
        )
        return moves, carry_out_moves(
            top, moves, lambda name, learned, before: summarize_quarter(top, name, learned, before)
        )

    assert carry_out(100)[0] == ()
    moves, outcome = carry_out(200)
    assert [(move.action, move.item.name) for move in moves] == [
        (RetentionAction.ARCHIVE, "session-001-old")
    ]
    assert outcome.completed == moves
    _, later = carry_out(400)

    assert later.failed == ()
    left = {path.name for path in (top / "archive" / "session-001-old").iterdir()}
    assert "journal.jsonl" not in left
    assert {"final-report.md", "session-metadata.yaml"} <= left
    (page,) = (top / "summaries").iterdir()
    assert "| session-001-old | completed | 3 of 3 |" in page.read_text()
