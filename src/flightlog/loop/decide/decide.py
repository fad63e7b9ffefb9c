"""Decide what to do next: a pure function of state, plan and time.

`decide_effect` returns one effect. The driver carries it out, appends the resulting events and
calls it again. The simulator does the same with simulated results.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flightlog.loop import events
from flightlog.loop.decide import breaker, gates, recovery
from flightlog.loop.decide.choose import choose_next, has_ready_task
from flightlog.loop.decide.gates import gate_events, milestone_events
from flightlog.loop.plan.schema import Plan, Task
from flightlog.loop.state import LoopState
from flightlog.model.text import pluralize

# Reports in the log entry of a task's end; the source document counts `features_found`.
_REPORTED = {"feature": "features_found", "doc": "documents_written", "artifact": "artifacts"}
_REPORTED |= {"metric": "metrics", "effect": "effects", "context": "context_updates"}


class AppendEvents(NamedTuple):
    """Append these events."""

    events: Sequence[events.Event]


class RunTask(NamedTuple):
    """Run a task."""

    task: Task
    attempt: int
    mode: str


class VerifyTask(NamedTuple):
    """Run a task's verify commands."""

    task: Task
    attempt: int


class CloseAttempt(NamedTuple):
    """Record the attempt that a killed runner left behind."""

    task: Task
    attempt: int


class CommitTask(NamedTuple):
    """Commit the files of a verified task."""

    task: Task


class WaitUntil(NamedTuple):
    """Wait until a time or a request."""

    until: float
    reason: str


class StopRunner(NamedTuple):
    """End the runner: the session is not in progress."""


Effect = AppendEvents | RunTask | VerifyTask | CloseAttempt | CommitTask | WaitUntil | StopRunner


def decide_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    """Return the next effect."""
    if state.status != "in_progress":
        return StopRunner()
    if state.question is not None:
        deadline = state.question.asked_at + state.question.event.timeout_s
        if now < deadline:
            return WaitUntil(deadline, "waiting for an answer")
        answer = state.question.event.default_answer
        return AppendEvents([gates.make_answer_event(state, answer, person=False)])
    if state.verdict is not None:
        return AppendEvents(gates.events_after_answer(state, state.verdict))
    agreed = state.iterations or state.is_start_approved or state.is_autonomous
    if not agreed and gates.should_ask(state, "start"):
        text = f"Carry out «{plan.plan}»: {pluralize(len(plan.tasks), 'task')}?"
        return AppendEvents([gates.make_question(state, "start", "", text)])
    return _continue_task(state, plan, now) or _choose_effect(state, plan, now)


def _continue_task(  # noqa: PLR0911 - one per stage
    state: LoopState, plan: Plan, now: float
) -> Effect | None:
    """Return the next effect for a task that is running, to be verified or to be recovered."""
    if not state.current_task:
        return None
    task, at = plan.find_task(state.current_task), state.task_state(state.current_task)
    match at.stage:
        case "running":
            return _limit_effect(state, now, begun=True) or RunTask(task, at.attempt, at.mode)
        case "cut":
            return CloseAttempt(task, at.attempt)
        case "ran":
            return _effect_after_run(state, task)
        case "right":
            return _finish_task(state, task)
        case "failed":
            return _recover_task(state, task)
        case _:
            return None


def _finish_task(state: LoopState, task: Task) -> Effect:
    at = state.task_state(task.task_id)
    if state.config.commit_per_task and task.has_verifier and at.commit is None:
        return CommitTask(task)
    why = "verified" if task.has_verifier else "its run succeeded; it has no verifier"
    counts = {_REPORTED.get(kind, kind): count for kind, count in at.reports.items()}
    return AppendEvents([events.TaskEnded(task.task_id, "success", at.active_s, why, counts)])


def _effect_after_run(state: LoopState, task: Task) -> Effect:
    at = state.task_state(task.task_id)
    if at.mode == "diagnose":
        why = "the diagnosis is made"
        return AppendEvents([events.RecoveryStarted(task.task_id, at.attempt, "retry", why)])
    if task.run.repeat and at.mode == "work" and not at.exit_ready:
        if at.question and gates.should_ask(state, "agent"):
            return _ask_for_agent(state, task, "the agent asks a question")
        why = f"round {at.round_count}: no exit signal with two indicators yet"
        return AppendEvents([events.RecoveryStarted(task.task_id, at.attempt, "repeat", why)])
    return VerifyTask(task, at.attempt)


def _recover_task(state: LoopState, task: Task) -> Effect:
    at = state.task_state(task.task_id)
    action, wait_s, why = recovery.choose_recovery(state, task)
    spent = at.active_s
    started = events.RecoveryStarted(task.task_id, at.attempt, action, why, wait_s)
    match action:
        case "skip":
            return AppendEvents([started, events.TaskEnded(task.task_id, "skipped", spent, why)])
        case "ask":
            return _ask_for_agent(state, task, why)
        case "escalate" if gates.should_ask(state, "error"):
            about = "denied" if recovery.denied_tools(state, task.task_id) else "error"
            last = "" if about == "denied" else f" {recovery.explain_error(at.error_message)}"
            text = f"{task.name}: {why}.{last}"
            return AppendEvents([started, gates.make_question(state, about, task.task_id, text)])
        case "escalate":
            return AppendEvents([started, *gates.safe_choice(state, "error", task)])
        case _:
            return AppendEvents([started])


def _ask_for_agent(state: LoopState, task: Task, why: str) -> Effect:
    at = state.task_state(task.task_id)
    text = f"{task.name}: the agent asks: {at.question}"
    question = gates.make_question(state, "agent", task.task_id, text)
    return AppendEvents([events.RecoveryStarted(task.task_id, at.attempt, "ask", why), question])


def _choose_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    """Check gates, milestones, alerts, breaker and reviews, then choose a task."""
    notes: list[events.Event] = [*gate_events(state, plan), *milestone_events(state, plan)]
    if notes := [*notes, *_alert_events(state, plan)]:
        return AppendEvents(notes)
    closing = state.breaker.state == "half_open" and state.breaker.probe_result is True
    effect = None
    if closing or has_ready_task(state, plan):
        effect = _breaker_effect(state, plan, now)
    if effect := effect or _review_effect(state, plan):
        return effect
    choice = choose_next(state, plan, now)
    if isinstance(choice, float):
        return WaitUntil(choice, "until a task may be tried again")
    waits = events.LoopEnded | events.LoopPaused | events.QuestionAsked
    if choice and not isinstance(choice[0], waits):
        return _limit_effect(state, now, begun=False) or AppendEvents(choice)
    return AppendEvents(choice)


def _alert_events(state: LoopState, plan: Plan) -> list[events.Event]:
    if not plan.circuit_breaker.conditions or not state.totals.attempts:
        return []
    unknown = "not evaluated: a name in it has no value"
    reasons = dict.fromkeys(breaker.find_alerts(state, plan), "the condition holds")
    reasons |= dict.fromkeys(breaker.unknown_conditions(state, plan), unknown)
    return [events.AlertRaised(when, reason) for when, reason in reasons.items()]


def _limit_effect(state: LoopState, now: float, *, begun: bool) -> Effect | None:
    """Check budgets and rate limits before an attempt starts or, if `begun`, continues."""
    if used := breaker.find_used_budget(state, now, begun=begun):
        opened = events.BreakerChanged("closed", "open", used.sentence, "paused")
        return AppendEvents([opened, events.LoopPaused(used.sentence)])
    if state.wait_until > now:
        return WaitUntil(state.wait_until, "until a limit is lifted")
    until = breaker.hour_full_until(state, now)
    if until > now:
        calls = pluralize(state.budgets.calls_per_hour or 0, "model call")
        return AppendEvents([events.WaitStarted(until, f"{calls} an hour used")])
    return None


def _breaker_effect(state: LoopState, plan: Plan, now: float) -> Effect | None:
    at, rules = state.breaker, plan.circuit_breaker
    if at.state == "closed":
        trip = breaker.find_trip(state, plan)
        return _trip_breaker(state, trip) if trip else None
    if at.state == "open":
        return _open_breaker_effect(state, plan, now)
    if at.probe_result is True:
        closed = events.BreakerChanged("half_open", "closed", at.condition, "a probe succeeded")
        return AppendEvents([closed])
    if at.probe_result is False or at.probes >= rules.half_open_max_calls:
        trip = breaker.BreakerTrip(at.condition or "a probe failed", at.action or breaker.HELP)
        return _trip_breaker(state, trip)
    return None


def _open_breaker_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    at, rules = state.breaker, plan.circuit_breaker
    if at.trips > rules.trips_max:
        why = f"the breaker opened {pluralize(at.trips, 'time')}: {at.condition}"
        return AppendEvents([events.LoopEnded("error", why)])
    if at.action == "stop":
        why = f"stopped by the plan's condition: {at.condition}"
        return AppendEvents([events.LoopEnded("error", why)])
    about = "breaker review" if at.action == "pause_and_review" else "breaker"
    if gates.should_ask(state, about) and not at.asked_question:
        text = f"The breaker opened: {at.condition}. Try again?"
        limit = None if about == "breaker review" else rules.recovery_timeout
        return AppendEvents([gates.make_question(state, about, "", text, limit)])
    if about == "breaker review" and not at.asked_question:
        return AppendEvents([events.LoopPaused(f"for review, as the plan says: {at.condition}")])
    if now < at.since + rules.recovery_timeout:
        return WaitUntil(at.since + rules.recovery_timeout, f"the breaker is open: {at.condition}")
    return AppendEvents([events.BreakerChanged("open", "half_open", at.condition, "probing")])


def _trip_breaker(state: LoopState, trip: breaker.BreakerTrip) -> Effect:
    before = state.breaker.state
    return AppendEvents([events.BreakerChanged(before, "open", trip.condition, trip.action)])


def _review_effect(state: LoopState, plan: Plan) -> Effect | None:
    """Ask after a task that is a review point, or that completed and reported low confidence."""
    limit = state.config.confidence_threshold
    for task in plan.tasks:
        at, label = state.task_state(task.task_id), f"{task.task_id} ({task.name})"
        reported = 1.0 if at.reported_confidence is None else at.reported_confidence
        if at.status != "completed" or task.task_id in state.reviewed_points:
            continue
        if task.task_id in plan.review_points and gates.should_ask(state, "review"):
            text = f"Review after {label}: go on?"
        elif reported < limit and gates.should_ask(state, "confidence"):
            text = (
                f"{label} is done, but reports confidence {reported:.2f}, below {limit:g}: go on?"
            )
        else:
            continue
        return AppendEvents([gates.make_question(state, "review", task.task_id, text)])
    return None
