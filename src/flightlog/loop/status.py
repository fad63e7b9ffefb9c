"""Status lines, event lines, comparison."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from flightlog.loop import events
from flightlog.loop.analysis import analyze_session
from flightlog.loop.directories import LoopEvent, LoopSession
from flightlog.loop.state import LoopState
from flightlog.model.text import format_utc_time, one_line, pluralize

_WORDS_MAX = 200
_ENDS = {"success": "completed", "failure": "failed", "skipped": "skipped", "deferred": "put off"}
_BAR = 30


class LoopColumn(Struct, frozen=True):
    """One session among others."""

    session: str
    status: str
    tasks_completed: int
    tasks: int
    duration_seconds: float
    average_task_seconds: float
    success_rate: float
    errors: int
    breaker_trips: int
    help_requests: int
    human_interventions: int
    iterations: int
    model_calls: int
    tokens: int
    cost_usd: float | None
    brier: float | None


def compare_sessions(sessions: Iterable[tuple[str, Iterable[LoopEvent]]]) -> list[LoopColumn]:
    """Take each session apart and keep what can be compared."""
    columns = []
    for name, told in sessions:
        one = analyze_session(told)
        figures = one.performance
        columns.append(
            LoopColumn(
                session=name,
                status=one.status,
                tasks_completed=sum(task.status == "completed" for task in one.tasks),
                tasks=len(one.tasks),
                duration_seconds=figures["total_duration_seconds"],
                average_task_seconds=figures["average_task_duration"],
                success_rate=figures["success_rate"],
                errors=figures["error_count"],
                breaker_trips=one.breaker_trips,
                help_requests=figures["help_requests"],
                human_interventions=figures["human_interventions"],
                iterations=figures["iterations"],
                model_calls=figures["model_calls"],
                tokens=figures["tokens"],
                cost_usd=figures["cost_usd"],
                brier=one.calibration.brier,
            )
        )
    return columns


def comparison_rows(columns: Sequence[LoopColumn]) -> list[tuple[str, list[str]]]:
    """The rows of a table."""
    names = [name for name in LoopColumn.__struct_fields__ if name != "session"]
    return [(name.replace("_", " "), [_format_cell(getattr(column, name)) for column in columns]) for name in names]


def _format_cell(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def describe_event(event: events.Event, names: Mapping[str, str], session: str) -> str:
    """One event in a line, or nothing; a question comes with the command that answers it."""
    match event:
        case events.TaskStarted():
            mode = "" if event.mode == "work" else f", {event.mode}"
            line = f"{_task_label(event.task, names)}: attempt {event.attempt}{mode}"
        case events.AttemptEnded() if event.result != "success":
            why = event.error_message or event.error_type
            line = f"{event.task} attempt {event.attempt}: {event.result}" + _reason_suffix(why)
        case events.TaskVerified(passed=False):
            wrong = [command for command, code in event.commands if code != 0] or list(event.missing)
            line = f"{event.task} attempt {event.attempt}: not verified" + _reason_suffix(", ".join(wrong))
        case events.TaskEnded():
            line = f"{event.task} {_ENDS[event.result]} after {event.duration_s:.1f} s" + _reason_suffix(event.why)
        case events.BreakerChanged():
            line = f"breaker {event.after.replace('_', ' ')}" + _reason_suffix(event.condition)
        case events.QuestionAsked():
            answers = " | ".join(event.options)
            line = (
                f"question: {one_line(event.text, _WORDS_MAX).strip()}\n"
                f"  flightlog loop answer --session {session} {answers}\n"
                f"  without an answer: {event.safe} after {event.timeout_s:.0f} s"
            )
        case events.QuestionAnswered(by="timeout"):
            line = f"no answer came: {event.answer}"
        case events.WaitStarted():
            line = f"waiting until {format_utc_time(event.until)}" + _reason_suffix(event.why)
        case _:
            line = ""
    return line


def _task_label(task: str, names: Mapping[str, str]) -> str:
    return f"{task} {one_line(names.get(task, ''), _WORDS_MAX)}".strip()


def _reason_suffix(why: str) -> str:
    return f": {one_line(why, _WORDS_MAX)}" if why else ""


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
