"""How a session stands, in a few lines and as a value; read from its checkpoint, so it is quick."""

from msgspec import Struct

from flightlog.loop.core.state import State
from flightlog.loop.core.times import stamp
from flightlog.loop.look.session import Look
from flightlog.model.text import counted

_BAR = 30


class Brief(Struct, frozen=True):
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


def brief(seen: Look) -> Brief:
    """A session as a value."""
    state, totals = seen.state, seen.state.totals
    return Brief(
        session=seen.directory.name,
        session_id=state.session_id,
        status=state.status,
        reason=state.why,
        runner=seen.runner,
        current_task=state.current,
        tasks_completed=state.completed,
        tasks_total=state.tasks_total,
        iterations=state.iterations,
        errors=totals.errors,
        model_calls=totals.calls,
        tokens=totals.tokens,
        cost_usd=None if totals.unpriced else round(totals.usd, 6),
        breaker=state.breaker.state,
        question=state.question.asked.text if state.question else "",
        last_updated=stamp(state.last_at),
    )


def lines(seen: Look) -> list[str]:
    """A session in a few lines."""
    state, told = seen.state, brief(seen)
    at_work = f"held by {seen.runner}" if seen.runner else "nobody is at work on it"
    tries = f"{counted(told.iterations, 'iteration')}, {counted(told.errors, 'error')}"
    shown = [
        f"{told.session}: {told.status}" + (f" ({told.reason})" if told.reason else ""),
        f"  {at_work}; last event {told.last_updated}",
        f"  tasks {told.tasks_completed} of {told.tasks_total}, {tries}",
    ]
    if state.current:
        task = state.task(state.current)
        shown.append(f"  now: task {state.current}, attempt {task.attempt}, {task.stage}")
    if state.status == "in_progress" and not seen.runner:
        shown.append(f"  it was cut short: flightlog loop resume --session {told.session}")
    return [*shown, *_spent(state), *_waiting(state, told.session)]


def monitor_lines(seen: Look) -> list[str]:
    """The live picture: progress, gates, breaker, cost, the current step."""
    state = seen.state
    total = max(state.tasks_total, 1)
    full = round(_BAR * state.completed / total)
    bar = "█" * full + "·" * (_BAR - full)
    gates = [
        f"  gate {name}: {'not evaluated' if gate.passed is None else 'passed' if gate.passed else 'failed'}"
        + ("" if gate.value is None else f" at {gate.value:g}")
        for name, gate in state.gates.items()
    ]
    reached = [f"  milestone {name} {stamp(at)}" for name, at in state.milestones.items()]
    breaker = state.breaker
    why = f" ({breaker.condition})" if breaker.state != "closed" else ""
    head = [f"{seen.directory.name}  {state.status}", f"  [{bar}] {state.completed}/{state.tasks_total}"]
    return [
        *head,
        *lines(seen)[1:],
        f"  breaker {breaker.state}{why}, opened {counted(breaker.trips, 'time')}",
        *gates,
        *reached,
    ]


def _spent(state: State) -> list[str]:
    totals = state.totals
    if not totals.calls:
        return []
    cost = "cost not known" if totals.unpriced else f"{totals.usd:.4f} USD"
    limit = f" of {state.budgets.usd:g}" if state.budgets.usd else ""
    return [f"  {counted(totals.calls, 'model call')}, {counted(totals.tokens, 'token')}, {cost}{limit}"]


def _waiting(state: State, name: str) -> list[str]:
    if state.question is None:
        return []
    asked = state.question.asked
    until = stamp(state.question.at + asked.timeout_s)
    answers = " | ".join(asked.options)
    return [
        f"  question {asked.question}: {asked.text}",
        f"  flightlog loop answer --session {name} {answers}   (without an answer: {asked.safe} at {until})",
    ]
