"""Made-up sessions by the thousand, and a referee that does notice."""

import pytest

from flightlog.loop import events
from flightlog.loop.plan.load import parse_plan
from flightlog.loop.simulator.simulation import InvariantChecker, run_simulation

PLAN = parse_plan(b"""
plan: watched
config: {max_iterations: 2, max_retries: 0}
budgets: {calls: 1}
quality_gates: [{name: gate, metric: m, threshold: 1, phase: 1}]
tasks:
  - {task_id: a, name: a, run: {command: x}}
  - {task_id: b, name: b, run: {command: x}, dependencies: [a]}
  - {task_id: c, name: c, run: {command: x}, phase: 2}
""")


def make_start(task, key="k"):
    return events.TaskStarted(task, 1, "work", key)


def end_task(task, result="success"):
    return events.TaskEnded(task, result, 1.0)


RIGHT = events.TaskVerified("a", 1, passed=True)
ASKED = events.QuestionAsked("q1", "review", "a", "?", ("x", "y"), "x", 1.0)
CALL = events.UsageRecorded("a", 1, "m", "x", 1, 0.0)


@pytest.mark.parametrize(
    ("events", "violation"),
    [
        ([make_start("b")], "before what it depends on"),
        ([make_start("a"), end_task("a")], "without verification"),
        ([make_start("a"), RIGHT, end_task("a"), make_start("a")], "began again"),
        ([make_start("a"), make_start("a", "other")], "the key of a changed"),
        ([make_start("a"), make_start("a"), make_start("a")], "more iterations"),
        ([events.BreakerChanged("closed", "open", "x"), make_start("a")], "while the breaker was open"),
        ([CALL, CALL], "after a budget was used up"),
        ([make_start("c")], "a gate was not passed"),
        ([events.RecoveryStarted("a", 1, "retry", "x", 60.0), make_start("a")], "did not wait"),
        ([events.LoopEnded("completed", "x")], "the session ended as completed"),
        ([events.LoopEnded("error", "x"), make_start("a")], "after the session was error"),
        ([ASKED, events.QuestionAnswered("q1", "y", "timeout")], "safe"),
    ],
)  # fmt: skip
def test_the_referee_sees_a_broken_promise(events, violation):
    referee = InvariantChecker(PLAN)

    for number, event in enumerate(events):
        referee.check_event(1000.0 + number, event)

    assert any(violation in message for message in referee.violations), referee.violations


@pytest.mark.parametrize("safety", [True, False])
def test_no_promise_is_broken_in_hundreds_of_sessions(safety):
    games = [run_simulation(seed, safety=safety) for seed in range(300)]

    assert [game for game in games if game.violations] == []
    assert {game.status for game in games} == {"completed", "error", "paused"}
    assert (sum(game.crashes for game in games) > 300) is safety


def test_same_seed_simulates_the_same_session():
    assert [run_simulation(seed).digest for seed in range(40)] == [
        run_simulation(seed).digest for seed in range(40)
    ]
    assert len({run_simulation(seed).digest for seed in range(40)}) == 40


@pytest.mark.soak
@pytest.mark.parametrize("safety", [True, False])
def test_no_promise_is_broken_in_10_000_sessions(safety):
    assert [
        game for seed in range(10_000) if (game := run_simulation(seed, safety=safety)).violations
    ] == []
