"""What to do next: one pure function of the session and the time.

`decide` looks at the most pressing thing first and returns one effect. The driver carries it
out, writes down what happened, and asks again. The simulator does the same with made-up results.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flightlog.loop import events as e
from flightlog.loop.core import asking, breaker, recovery
from flightlog.loop.core.choose import chosen
from flightlog.loop.core.gates import gate_events, milestone_events
from flightlog.loop.core.state import State
from flightlog.loop.plan.schema import Plan, Task
from flightlog.model.text import counted


class Note(NamedTuple):
    """Write these down."""

    events: Sequence[e.Event]


class Attempt(NamedTuple):
    """Run a task."""

    task: Task
    attempt: int
    mode: str


class Check(NamedTuple):
    """Run a task's verify commands."""

    task: Task
    attempt: int


class Sleep(NamedTuple):
    """Wait until then, or until a person says something."""

    until: float
    why: str


class End(NamedTuple):
    """There is nothing more to do for this runner."""


Effect = Note | Attempt | Check | Sleep | End


def decide(state: State, plan: Plan, now: float) -> Effect:
    """Say what to do next."""
    if state.status != "in_progress":
        return End()
    if state.question is not None:
        deadline = state.question.at + state.question.asked.timeout_s
        if now < deadline:
            return Sleep(deadline, "waiting for an answer")
        return Note([asking.answered(state, state.question.asked.safe, person=False)])
    if state.verdict is not None:
        return Note(asking.follows(state, state.verdict))
    return _started(state, plan, now) or _unfinished(state, plan, now) or _next(state, plan, now)


def _started(state: State, plan: Plan, now: float) -> Effect | None:
    """Before anything is done a person may be asked."""
    del now
    if state.iterations or state.agreed or state.autonomous or not asking.asks(state, "start"):
        return None
    text = f"Carry out «{plan.plan}»: {counted(len(plan.tasks), 'task')}?"
    return Note([asking.question(state, "start", "", text)])


def _unfinished(state: State, plan: Plan, now: float) -> Effect | None:
    """A task in the middle of something comes before any other."""
    if not state.current:
        return None
    task, at = plan.task(state.current), state.task(state.current)
    match at.stage:
        case "running":
            return _held_back(state, now, begun=True) or Attempt(task, at.attempt, at.mode)
        case "ran":
            return _after_run(state, task)
        case "right":
            spent_s = state.last_at - (at.started_at or state.last_at)
            return Note([e.TaskEnded(task.task_id, "success", spent_s, "verified")])
        case "failed":
            return _recover(state, task)
        case _:
            return None


def _after_run(state: State, task: Task) -> Effect:
    at = state.task(task.task_id)
    if at.mode == "diagnose":
        return Note([e.Recovering(task.task_id, at.attempt, "retry", "the diagnosis is made")])
    if task.run.repeat and at.mode == "work" and not at.exit_ready:
        why = f"round {at.rounds}: the agent has not said it is done, with two signs of it"
        return Note([e.Recovering(task.task_id, at.attempt, "repeat", why)])
    return Check(task, at.attempt)


def _recover(state: State, task: Task) -> Effect:
    at = state.task(task.task_id)
    todo = recovery.remedy(state, task)
    spent = state.last_at - (at.started_at or state.last_at)
    told = e.Recovering(task.task_id, at.attempt, todo.action, todo.why, todo.wait_s)
    match todo.action:
        case "skip":
            return Note([told, e.TaskEnded(task.task_id, "skipped", spent, todo.why)])
        case "escalate" if asking.asks(state, "error"):
            text = f"{task.name}: {todo.why}. {at.error_message[-300:]}"
            return Note([told, asking.question(state, "error", task.task_id, text)])
        case "escalate":
            return Note([told, *asking.safe_choice(state, "error", task)])
        case _:
            return Note([told])


def _next(state: State, plan: Plan, now: float) -> Effect:
    """Nothing is in the middle: look at budgets, breaker, gates and reviews, then choose a task."""
    if noted := [*gate_events(state, plan), *milestone_events(state, plan), *_alerts(state, plan)]:
        return Note(noted)
    left = any(state.task(task.task_id).status in {"pending", "in_progress"} for task in plan.tasks)
    closing = state.breaker.state == "half_open" and state.breaker.probed is True
    if effect := (_breaker(state, plan, now) if left or closing else None) or _review(state, plan):
        return effect
    choice = chosen(state, plan, now)
    if isinstance(choice, float):
        return Sleep(choice, "until a task may be tried again")
    if choice and not isinstance(choice[0], e.SessionEnded | e.Paused | e.QuestionAsked):
        return _held_back(state, now, begun=False) or Note(choice)
    return Note(choice)


def _alerts(state: State, plan: Plan) -> list[e.Event]:
    if not plan.circuit_breaker.conditions or not state.totals.attempts:
        return []
    held = [e.Alerted(each, "the condition holds") for each in breaker.alerts(state, plan)]
    unknown = breaker.unknown_conditions(state, plan)
    return [*held, *(e.Alerted(each, "not evaluated: a name in it has no value") for each in unknown)]


def _held_back(state: State, now: float, *, begun: bool) -> Effect | None:
    """Budgets and limits, before each attempt and before one that was cut short goes on."""
    if spent := breaker.exhausted(state, now, begun=begun):
        return _out_of_budget(spent)
    if state.wait_until > now:
        return Sleep(state.wait_until, "until a limit is lifted")
    until = breaker.hour_full_until(state, now)
    if until > now:
        return Note([e.Waited(until, f"{counted(state.budgets.calls_per_hour or 0, 'model call')} an hour used")])
    return None


def _out_of_budget(spent: str) -> Effect:
    return Note([e.BreakerMoved("closed", "open", spent, "paused"), e.Paused(spent)])


def _breaker(state: State, plan: Plan, now: float) -> Effect | None:
    at, rules = state.breaker, plan.circuit_breaker
    if at.state == "closed":
        trip = breaker.tripped(state, plan)
        return _trip(state, trip) if trip else None
    if at.state == "open":
        return _opened(state, plan, now)
    if at.probed is True:
        return Note([e.BreakerMoved("half_open", "closed", at.condition, "a probe succeeded")])
    if at.probed is False or at.probes >= rules.half_open_max_calls:
        return _trip(state, breaker.Trip(at.condition or "a probe failed", at.action or breaker.HELP))
    return None


def _opened(state: State, plan: Plan, now: float) -> Effect:
    at, rules = state.breaker, plan.circuit_breaker
    if at.trips > rules.trips_max:
        return Note([e.SessionEnded("error", f"the breaker opened {counted(at.trips, 'time')}: {at.condition}")])
    if at.action == "stop":
        return Note([e.SessionEnded("error", f"stopped by the plan's condition: {at.condition}")])
    about = "breaker review" if at.action == "pause_and_review" else "breaker"
    if asking.asks(state, about) and not at.asked:
        text = f"The breaker opened: {at.condition}. Try again?"
        limit = None if about == "breaker review" else rules.recovery_timeout
        return Note([asking.question(state, about, "", text, limit)])
    if about == "breaker review" and not at.asked:
        return Note([e.Paused(f"for review, as the plan says: {at.condition}")])
    if now < at.since + rules.recovery_timeout:
        return Sleep(at.since + rules.recovery_timeout, f"the breaker is open: {at.condition}")
    return Note([e.BreakerMoved("open", "half_open", at.condition, "probing")])


def _trip(state: State, trip: breaker.Trip) -> Effect:
    return Note([e.BreakerMoved(state.breaker.state, "open", trip.condition, trip.action)])


def _review(state: State, plan: Plan) -> Effect | None:
    for task_id in plan.review_points:
        done = state.task(task_id).status == "completed" and task_id not in state.reviewed
        if done and asking.asks(state, "review"):
            text = f"Review after {task_id} ({plan.task(task_id).name}): go on?"
            return Note([asking.question(state, "review", task_id, text)])
    return None
