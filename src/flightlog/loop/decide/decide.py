"""What to do next: one pure function of the session and the time.

`decide` looks at the most pressing thing first and returns one effect. The driver carries it
out, writes down what happened, and asks again. The simulator does the same with made-up results.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flightlog.loop import events
from flightlog.loop.decide import breaker, gates, recovery
from flightlog.loop.decide.choose import choose_next
from flightlog.loop.decide.gates import gate_events, milestone_events
from flightlog.loop.plan.schema import Plan, Task
from flightlog.loop.state import LoopState
from flightlog.model.text import pluralize


class AppendEvents(NamedTuple):
    """Write these down."""

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


class WaitUntil(NamedTuple):
    """Wait until then, or until a person says something."""

    until: float
    why: str


class StopRunner(NamedTuple):
    """There is nothing more to do for this runner."""


Effect = AppendEvents | RunTask | VerifyTask | WaitUntil | StopRunner


def decide_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    """Say what to do next."""
    if state.status != "in_progress":
        return StopRunner()
    if state.question is not None:
        deadline = state.question.at + state.question.asked.timeout_s
        if now < deadline:
            return WaitUntil(deadline, "waiting for an answer")
        return AppendEvents([gates.make_answer_event(state, state.question.asked.safe, person=False)])
    if state.verdict is not None:
        return AppendEvents(gates.events_after_answer(state, state.verdict))
    return _ask_before_start(state, plan, now) or _continue_task(state, plan, now) or _choose_effect(state, plan, now)


def _ask_before_start(state: LoopState, plan: Plan, now: float) -> Effect | None:
    """Before anything is done a person may be asked."""
    del now
    if state.iterations or state.agreed or state.autonomous or not gates.should_ask(state, "start"):
        return None
    text = f"Carry out «{plan.plan}»: {pluralize(len(plan.tasks), 'task')}?"
    return AppendEvents([gates.make_question(state, "start", "", text)])


def _continue_task(state: LoopState, plan: Plan, now: float) -> Effect | None:
    """A task in the middle of something comes before any other."""
    if not state.current:
        return None
    task, at = plan.find_task(state.current), state.task_state(state.current)
    match at.stage:
        case "running":
            return _limit_effect(state, now, begun=True) or RunTask(task, at.attempt, at.mode)
        case "ran":
            return _effect_after_run(state, task)
        case "right":
            spent_s = state.last_at - (at.started_at or state.last_at)
            return AppendEvents([events.TaskEnded(task.task_id, "success", spent_s, "verified")])
        case "failed":
            return _recover_task(state, task)
        case _:
            return None


def _effect_after_run(state: LoopState, task: Task) -> Effect:
    at = state.task_state(task.task_id)
    if at.mode == "diagnose":
        return AppendEvents([events.RecoveryStarted(task.task_id, at.attempt, "retry", "the diagnosis is made")])
    if task.run.repeat and at.mode == "work" and not at.exit_ready:
        why = f"round {at.rounds}: the agent has not said it is done, with two signs of it"
        return AppendEvents([events.RecoveryStarted(task.task_id, at.attempt, "repeat", why)])
    return VerifyTask(task, at.attempt)


def _recover_task(state: LoopState, task: Task) -> Effect:
    at = state.task_state(task.task_id)
    todo = recovery.choose_recovery(state, task)
    spent = state.last_at - (at.started_at or state.last_at)
    told = events.RecoveryStarted(task.task_id, at.attempt, todo.action, todo.why, todo.wait_s)
    match todo.action:
        case "skip":
            return AppendEvents([told, events.TaskEnded(task.task_id, "skipped", spent, todo.why)])
        case "escalate" if gates.should_ask(state, "error"):
            text = f"{task.name}: {todo.why}. {at.error_message[-300:]}"
            return AppendEvents([told, gates.make_question(state, "error", task.task_id, text)])
        case "escalate":
            return AppendEvents([told, *gates.safe_choice(state, "error", task)])
        case _:
            return AppendEvents([told])


def _choose_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    """Nothing is in the middle: look at budgets, breaker, gates and reviews, then choose a task."""
    if noted := [*gate_events(state, plan), *milestone_events(state, plan), *_alert_events(state, plan)]:
        return AppendEvents(noted)
    left = any(state.task_state(task.task_id).status in {"pending", "in_progress"} for task in plan.tasks)
    closing = state.breaker.state == "half_open" and state.breaker.probed is True
    if effect := (_breaker_effect(state, plan, now) if left or closing else None) or _review_effect(state, plan):
        return effect
    choice = choose_next(state, plan, now)
    if isinstance(choice, float):
        return WaitUntil(choice, "until a task may be tried again")
    if choice and not isinstance(choice[0], events.LoopEnded | events.LoopPaused | events.QuestionAsked):
        return _limit_effect(state, now, begun=False) or AppendEvents(choice)
    return AppendEvents(choice)


def _alert_events(state: LoopState, plan: Plan) -> list[events.Event]:
    if not plan.circuit_breaker.conditions or not state.totals.attempts:
        return []
    held = [events.AlertRaised(each, "the condition holds") for each in breaker.find_alerts(state, plan)]
    unknown = breaker.unknown_conditions(state, plan)
    return [*held, *(events.AlertRaised(each, "not evaluated: a name in it has no value") for each in unknown)]


def _limit_effect(state: LoopState, now: float, *, begun: bool) -> Effect | None:
    """Budgets and limits, before each attempt and before one that was cut short goes on."""
    if spent := breaker.exhausted_budget(state, now, begun=begun):
        return _out_of_budget(spent)
    if state.wait_until > now:
        return WaitUntil(state.wait_until, "until a limit is lifted")
    until = breaker.hour_full_until(state, now)
    if until > now:
        return AppendEvents(
            [events.WaitStarted(until, f"{pluralize(state.budgets.calls_per_hour or 0, 'model call')} an hour used")]
        )
    return None


def _out_of_budget(spent: str) -> Effect:
    return AppendEvents([events.BreakerChanged("closed", "open", spent, "paused"), events.LoopPaused(spent)])


def _breaker_effect(state: LoopState, plan: Plan, now: float) -> Effect | None:
    at, rules = state.breaker, plan.circuit_breaker
    if at.state == "closed":
        trip = breaker.find_trip(state, plan)
        return _trip_breaker(state, trip) if trip else None
    if at.state == "open":
        return _open_breaker_effect(state, plan, now)
    if at.probed is True:
        return AppendEvents([events.BreakerChanged("half_open", "closed", at.condition, "a probe succeeded")])
    if at.probed is False or at.probes >= rules.half_open_max_calls:
        return _trip_breaker(state, breaker.BreakerTrip(at.condition or "a probe failed", at.action or breaker.HELP))
    return None


def _open_breaker_effect(state: LoopState, plan: Plan, now: float) -> Effect:
    at, rules = state.breaker, plan.circuit_breaker
    if at.trips > rules.trips_max:
        return AppendEvents(
            [events.LoopEnded("error", f"the breaker opened {pluralize(at.trips, 'time')}: {at.condition}")]
        )
    if at.action == "stop":
        return AppendEvents([events.LoopEnded("error", f"stopped by the plan's condition: {at.condition}")])
    about = "breaker review" if at.action == "pause_and_review" else "breaker"
    if gates.should_ask(state, about) and not at.asked:
        text = f"The breaker opened: {at.condition}. Try again?"
        limit = None if about == "breaker review" else rules.recovery_timeout
        return AppendEvents([gates.make_question(state, about, "", text, limit)])
    if about == "breaker review" and not at.asked:
        return AppendEvents([events.LoopPaused(f"for review, as the plan says: {at.condition}")])
    if now < at.since + rules.recovery_timeout:
        return WaitUntil(at.since + rules.recovery_timeout, f"the breaker is open: {at.condition}")
    return AppendEvents([events.BreakerChanged("open", "half_open", at.condition, "probing")])


def _trip_breaker(state: LoopState, trip: breaker.BreakerTrip) -> Effect:
    return AppendEvents([events.BreakerChanged(state.breaker.state, "open", trip.condition, trip.action)])


def _review_effect(state: LoopState, plan: Plan) -> Effect | None:
    for task_id in plan.review_points:
        done = state.task_state(task_id).status == "completed" and task_id not in state.reviewed
        if done and gates.should_ask(state, "review"):
            text = f"Review after {task_id} ({plan.find_task(task_id).name}): go on?"
            return AppendEvents([gates.make_question(state, "review", task_id, text)])
    return None
