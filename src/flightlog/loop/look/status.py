"""How a session stands, in a few lines and as a value; read from its checkpoint, so it is quick."""

from msgspec import Struct

from flightlog.loop.core.state import LoopState
from flightlog.loop.core.times import format_utc_time
from flightlog.loop.look.session import LoopSession
from flightlog.model.text import pluralize

_BAR = 30


class LoopStatus(Struct, frozen=True):
    """A session in one line."""

    session: str
    session_id: str
    status: str
    reason: str
    runner: str
    current_task: str
    tasks_completed: int
    tasks_total: int
    iterations: int
    errors: int
    model_calls: int
    tokens: int
    cost_usd: float | None
    breaker: str
    question: str
    last_updated: str | None


def build_status(seen: LoopSession) -> LoopStatus:
    """A session as a value."""
    state, totals = seen.state, seen.state.totals
    return LoopStatus(
        session=seen.directory.name,
        session_id=state.session_id,
        status=state.status,
        reason=state.why,
        runner=seen.runner,
        current_task=state.current,
        tasks_completed=state.completed_count,
        tasks_total=state.tasks_total,
        iterations=state.iterations,
        errors=totals.errors,
        model_calls=totals.calls,
        tokens=totals.tokens,
        cost_usd=None if totals.unpriced else round(totals.usd, 6),
        breaker=state.breaker.state,
        question=state.question.asked.text if state.question else "",
        last_updated=format_utc_time(state.last_at),
    )


def status_lines(seen: LoopSession) -> list[str]:
    """A session in a few lines."""
    state, told = seen.state, build_status(seen)
    at_work = f"held by {seen.runner}" if seen.runner else "nobody is at work on it"
    tries = f"{pluralize(told.iterations, 'iteration')}, {pluralize(told.errors, 'error')}"
    shown = [
        f"{told.session}: {told.status}" + (f" ({told.reason})" if told.reason else ""),
        f"  {at_work}; last event {told.last_updated}",
        f"  tasks {told.tasks_completed} of {told.tasks_total}, {tries}",
    ]
    if state.current:
        task = state.task_state(state.current)
        shown.append(f"  now: task {state.current}, attempt {task.attempt}, {task.stage}")
    if state.status == "in_progress" and not seen.runner:
        shown.append(f"  it was cut short: flightlog loop resume --session {told.session}")
    return [*shown, *_cost_lines(state), *_question_lines(state, told.session)]


def monitor_lines(seen: LoopSession) -> list[str]:
    """The live picture: progress, gates, breaker, cost, the current step."""
    state = seen.state
    total = max(state.tasks_total, 1)
    full = round(_BAR * state.completed_count / total)
    bar = "█" * full + "·" * (_BAR - full)
    gates = [
        f"  gate {name}: {'not evaluated' if gate.passed is None else 'passed' if gate.passed else 'failed'}"
        + ("" if gate.value is None else f" at {gate.value:g}")
        for name, gate in state.gates.items()
    ]
    reached = [f"  milestone {name} {format_utc_time(at)}" for name, at in state.milestones.items()]
    breaker = state.breaker
    why = f" ({breaker.condition})" if breaker.state != "closed" else ""
    head = [f"{seen.directory.name}  {state.status}", f"  [{bar}] {state.completed_count}/{state.tasks_total}"]
    return [
        *head,
        *status_lines(seen)[1:],
        f"  breaker {breaker.state}{why}, opened {pluralize(breaker.trips, 'time')}",
        *gates,
        *reached,
    ]


def _cost_lines(state: LoopState) -> list[str]:
    totals = state.totals
    if not totals.calls:
        return []
    cost = "cost not known" if totals.unpriced else f"{totals.usd:.4f} USD"
    limit = f" of {state.budgets.usd:g}" if state.budgets.usd else ""
    return [f"  {pluralize(totals.calls, 'model call')}, {pluralize(totals.tokens, 'token')}, {cost}{limit}"]


def _question_lines(state: LoopState, name: str) -> list[str]:
    if state.question is None:
        return []
    asked = state.question.asked
    until = format_utc_time(state.question.at + asked.timeout_s)
    answers = " | ".join(asked.options)
    return [
        f"  question {asked.question}: {asked.text}",
        f"  flightlog loop answer --session {name} {answers}   (without an answer: {asked.safe} at {until})",
    ]
