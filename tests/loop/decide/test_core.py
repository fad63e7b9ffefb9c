"""The pure core, one rule at a time."""

import pytest

from flightlog.loop import events
from flightlog.loop.decide import breaker, gates
from flightlog.loop.decide.choose import calibrate_confidence, score_actions
from flightlog.loop.decide.decide import AppendEvents, RunTask, StopRunner, WaitUntil, decide_effect
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.decide.recovery import classify_error, error_signature
from flightlog.loop.events import AttemptEnded, LoopStarted, TaskStarted, TaskVerified
from flightlog.loop.plan.load import parse_plan
from flightlog.loop.session_overview import task_cause
from flightlog.loop.state import LoopState, metric_value
from flightlog.model.text import format_utc_time, parse_utc_time


def session(text, *events, autonomous=True):
    plan = parse_plan(text.encode())
    start = LoopStarted(
        "session-001",
        "x",
        "x",
        "d",
        len(plan.tasks),
        plan.config,
        plan.budgets,
        is_autonomous=autonomous,
    )
    state = LoopState()
    for number, event in enumerate([start, *events]):
        apply_event(state, 1000.0 + number, event)
    return plan, state


TWO = """
plan: x
config: {human_intervention: SETTING}
tasks:
  - {task_id: a, name: low, run: {command: x}, priority_score: 0.1}
  - {task_id: b, name: high, run: {command: x}, priority_score: 0.9}
"""


def first_events(effect):
    assert isinstance(effect, AppendEvents), effect
    return [type(event).__name__ for event in effect.events]


def test_highest_priority_task_is_first_and_its_decision_is_recorded():
    plan, state = session(TWO.replace("SETTING", "never"))

    made, begun = decide_effect(state, plan, 2000.0).events

    assert (made.task, made.action, begun.task, begun.mode) == ("b", "execute", "b", "work")
    assert set(made.risks) == {"execution", "resource", "dependency", "permission", "time"}
    assert made.alternatives
    assert "low risk" in made.rationale


def test_a_denied_tool_of_a_completed_task_is_no_cause_and_no_redo():
    attempt = AttemptEnded("a", 1, "success", 1.0, permission_denials=1, denied_tools=("Bash",))
    done = (TaskVerified("a", 1, passed=True), events.TaskEnded("a", "success", 1.0, "verified"))
    _, state = session(
        TWO.replace("SETTING", "never"), TaskStarted("a", 1, "work", "k"), attempt, *done
    )
    cause = task_cause(state, "a")

    apply_event(state, 2000.0, events.LoopPaused("a limit"))
    apply_event(state, 2001.0, events.LoopResumed(allowed_tools=("Bash",)))

    assert (cause, state.task_state("a").status) == ("", "completed")


def test_deciding_changes_nothing():
    import msgspec

    plan, state = session(TWO.replace("SETTING", "always"))
    before = msgspec.json.encode(state)

    decide_effect(state, plan, 2000.0)

    assert msgspec.json.encode(state) == before


@pytest.mark.parametrize(
    ("setting", "autonomous", "asked"),
    [("ask_first", False, True), ("ask_first", True, False), ("always", True, True), ("never", False, False),
     ("on_error", False, False)],
)  # fmt: skip
def test_each_intervention_setting_asks_when_it_says(setting, autonomous, asked):
    plan, state = session(TWO.replace("SETTING", setting), autonomous=autonomous)

    assert ("QuestionAsked" in first_events(decide_effect(state, plan, 2000.0))) is asked


def test_a_question_waits_for_its_time_and_then_the_safe_choice_is_taken():
    question = events.QuestionAsked("q1", "review", "a", "?", ("continue", "pause"), "pause", 60.0)
    plan, state = session(TWO.replace("SETTING", "never"), question)

    waits, late = decide_effect(state, plan, 1010.0), decide_effect(state, plan, 1062.0)

    assert isinstance(waits, WaitUntil)
    assert waits.until == 1061.0
    (answer,) = late.events
    assert (answer.answer, answer.answered_by) == ("pause", "timeout")


def test_low_confidence_goes_on_where_no_person_is_asked():
    text = TWO.replace("SETTING", "never, confidence_threshold: 0.99")
    plan, state = session(text)

    made, ended = decide_effect(state, plan, 2000.0).events

    assert (made.action, ended.result) == ("wait", "deferred")


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("bash: permission denied", 126, "permission"),
        ("connection reset by peer", 1, "network"),
        ("OSError: No space left on device", 1, "resource"),
        ("ModuleNotFoundError: No module named x", 1, "dependency"),
        ("AssertionError", 1, "validation"),
        ("boom", 7, "execution"),
    ],
)
def test_errors_are_distinguished_by_their_text(message, code, kind):
    assert classify_error(message, code)[0] == kind


def test_the_same_error_has_the_same_name_whatever_its_numbers():
    assert error_signature("at 12:01 pid 77\nfailed at 0xdead in 3 s") == error_signature(
        "other\nfailed at 0xbeef in 9 s\n\n"
    )
    assert error_signature("one") != error_signature("two")


FAILURES = """
plan: x
config: {human_intervention: never}
circuit_breaker: {RULE}
tasks: [{task_id: a, name: a, run: {command: x}, max_retries: 99}]
"""


def make_failure(number, **more):
    fields = {
        "error_type": "execution",
        "error_message": f"m{number}",
        "signature": f"m{number}",
        **more,
    }
    return [events.TaskStarted("a", number, "work", "k"), events.AttemptEnded("a", number, "failure", 1.0, 1, **fields),
            events.RecoveryStarted("a", number, "retry", "x")]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "events", "sentence"),
    [
        ("failure_threshold: 2", [*make_failure(1), *make_failure(2)], "2 failures in a row"),
        (
            "same_error: 2",
            [*make_failure(1, signature="s"), *make_failure(2, signature="s")],
            "the same error 2 times in a row",
        ),
        (
            "no_progress: 2",
            [*make_failure(1, made_progress=False), *make_failure(2, made_progress=False)],
            "no progress in 2 attempts",
        ),
        (
            "permission_denials: 1",
            make_failure(1, permission_denials=2),
            "permission denied in 1 attempt",
        ),
        (
            "error_rate_over: 2",
            [*make_failure(1), *make_failure(2)],
            "error_rate > 0.5 (2 of the last 2",
        ),
        (
            "low_confidence_times: 1",
            [events.DecisionMade("a", "execute", 0.1, 0.1, "x")],
            "confidence < 0.3 1 time",
        ),
        ("conditions: [{when: errors >= 1}]", make_failure(1), "errors >= 1"),
    ],
)
def test_the_breaker_opens_on_each_rule_and_says_which(rule, events, sentence):
    plan, state = session(FAILURES.replace("RULE", rule), *events)

    (moved,) = decide_effect(state, plan, 2000.0).events

    assert moved.to_state == "open"
    assert moved.condition.startswith(sentence)


def test_an_agent_that_asks_a_question_is_not_idle():
    plan, state = session(
        FAILURES.replace("RULE", "no_progress: 1"),
        *make_failure(1, made_progress=False, asked_question=True),
    )

    assert breaker.find_trip(state, plan) is None


def test_an_open_breaker_waits_probes_and_closes():
    opened = events.BreakerChanged("closed", "open", "x", "pause_and_request_help")
    plan, state = session(FAILURES.replace("RULE", "failure_threshold: 5"), opened)

    assert isinstance(decide_effect(state, plan, 1002.0), WaitUntil)
    (probing,) = decide_effect(state, plan, 1062.0).events
    apply_event(state, 1062.0, probing)
    assert first_events(decide_effect(state, plan, 1063.0)) == ["DecisionMade", "TaskStarted"]
    for event in (
        events.TaskStarted("a", 1, "work", "k"),
        events.AttemptEnded("a", 1, "success", 1.0),
        events.TaskVerified("a", 1, passed=True),
    ):
        apply_event(state, 1064.0, event)
    apply_event(state, 1065.0, events.TaskEnded("a", "success", 1.0))
    (closed,) = decide_effect(state, plan, 1066.0).events
    assert (closed.from_state, closed.to_state) == ("half_open", "closed")


@pytest.mark.parametrize(
    ("budget", "event"),
    [
        ("calls: 1", events.UsageRecorded("a", 1, "m", "x", 5, 0.1)),
        ("tokens: 5", events.UsageRecorded("a", 1, "m", "x", 5, 0.1)),
        ("usd: 0.1", events.UsageRecorded("a", 1, "m", "x", 5, 0.1)),
        ("usd: 100", events.UsageRecorded("a", 1, "m", "unheard of", 5, None)),
        ("wall_time_seconds: 1", events.WaitStarted(0.0, "x")),
    ],
)
def test_a_budget_that_is_used_up_pauses_before_the_next_attempt(budget, event):
    text = TWO.replace("SETTING", "never") + f"budgets: {{{budget}}}\n"
    plan, state = session(text, event)

    opened, paused = decide_effect(state, plan, 1010.0).events

    assert opened.condition.startswith("budget: ")
    assert isinstance(paused, events.LoopPaused)


def test_interrupted_attempt_resumes_with_its_number_and_key():
    plan, state = session(TWO.replace("SETTING", "never"), events.TaskStarted("a", 1, "work", "k"))

    effect = decide_effect(state, plan, 2000.0)

    assert isinstance(effect, RunTask)
    assert (effect.task.task_id, effect.attempt) == ("a", 1)


def test_ended_session_decides_nothing_more():
    plan, state = session(TWO.replace("SETTING", "never"), events.LoopEnded("error", "x"))

    assert isinstance(decide_effect(state, plan, 2000.0), StopRunner)


def test_learning_moves_the_estimate_towards_the_outcome():
    events = [
        TaskStarted("a", 1, "work", "k"),
        AttemptEnded("a", 1, "success", 1.0),
        TaskVerified("a", 1, passed=True),
    ]
    _, good = session(TWO.replace("SETTING", "never"), *events)
    _, bad = session(TWO.replace("SETTING", "never"), *make_failure(1))

    assert good.history > 0.7 > bad.history
    assert (good.learning_rate, bad.learning_rate) == (pytest.approx(0.11), pytest.approx(0.09))


def test_confidence_falls_with_failures_risks_and_what_the_task_says():
    plan, fresh = session(TWO.replace("SETTING", "never"))
    _, once = session(TWO.replace("SETTING", "never"), *make_failure(1))
    _, unsure = session(
        TWO.replace("SETTING", "never"), events.TaskReported("a", 1, "confidence", "", 0.4)
    )
    task = plan.tasks[0]

    assert score_actions(once, plan, task).confidence < score_actions(fresh, plan, task).confidence
    assert score_actions(unsure, plan, task).confidence == 0.4
    assert calibrate_confidence(0.5, ((0.4, 0.2), (0.6, 0.4))) == pytest.approx(0.3)


def test_a_metric_is_reported_or_unknown_never_zero():
    _, state = session(
        TWO.replace("SETTING", "never"),
        events.TaskReported("a", 1, "context", "", {"found": ["x", "y"]}),
    )

    assert metric_value(state, "found") == 2.0
    assert metric_value(state, "unheard_of") is None


def test_times_are_written_and_read_back():
    assert format_utc_time(1768816800.0) == "2026-01-19T10:00:00Z"
    assert parse_utc_time(format_utc_time(1768816800.125)) == 1768816800.125
    assert format_utc_time(None) is None


def test_every_question_offers_its_safe_choice():
    closed = [(options, safe) for _, options, safe in gates.ABOUT.values() if options]

    assert len(closed) == len(gates.ABOUT) - 1, "only an agent's own question takes any text"
    assert all(safe in options for options, safe in closed)
