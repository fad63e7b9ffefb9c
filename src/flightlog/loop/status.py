"""Text for people: status lines, event lines, and the comparison of sessions."""

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
    """Figures of one session in a comparison."""

    session: str
    status: str
    tasks_completed: int
    tasks_total: int
    duration_seconds: float
    average_task_seconds: float
    success_rate: float
    errors: int
    breaker_trips: int
    help_requests: int
    human_interventions: int
    iterations: int
    model_calls: int
    total_tokens: int
    cost_usd: float | None
    brier_score: float | None


def compare_sessions(sessions: Iterable[tuple[str, Iterable[LoopEvent]]]) -> list[LoopColumn]:
    """Return the figures of each session, given by name and events."""
    columns = []
    for name, records in sessions:
        analysis = analyze_session(records)
        figures = analysis.performance
        columns.append(
            LoopColumn(
                session=name,
                status=analysis.status,
                tasks_completed=sum(task.status == "completed" for task in analysis.tasks),
                tasks_total=len(analysis.tasks),
                duration_seconds=figures["total_duration_seconds"],
                average_task_seconds=figures["average_task_duration"],
                success_rate=figures["success_rate"],
                errors=figures["error_count"],
                breaker_trips=analysis.breaker_trips,
                help_requests=figures["help_requests"],
                human_interventions=figures["human_interventions"],
                iterations=figures["iterations"],
                model_calls=figures["model_calls"],
                total_tokens=figures["total_tokens"],
                cost_usd=figures["cost_usd"],
                brier_score=analysis.calibration.brier_score,
            )
        )
    return columns


def comparison_rows(columns: Sequence[LoopColumn]) -> list[tuple[str, list[str]]]:
    """Return the rows of a comparison: a name, and a cell for each session."""
    names = [name for name in LoopColumn.__struct_fields__ if name != "session"]
    return [
        (name.replace("_", " "), [_format_cell(getattr(column, name)) for column in columns])
        for name in names
    ]


def _format_cell(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def describe_event(event: events.Event, names: Mapping[str, str], session: str) -> str:
    """Return an event in a line, or ""; a question includes the command that answers it."""
    line = why = ""
    match event:
        case events.TaskStarted():
            label = f"{event.task} {one_line(names.get(event.task, ''), _WORDS_MAX)}".strip()
            mode = "" if event.mode == "work" else f", {event.mode}"
            line = f"{label}: attempt {event.attempt}{mode}"
        case events.AttemptEnded() if event.result != "success":
            line = f"{event.task} attempt {event.attempt}: {event.result}"
            why = event.error_message or event.error_type
        case events.TaskVerified(passed=False):
            wrong = [command for command, code in event.commands if code != 0]
            line = f"{event.task} attempt {event.attempt}: not verified"
            why = ", ".join(wrong or event.missing_tools)
        case events.TaskEnded():
            line = f"{event.task} {_ENDS[event.result]} after {event.duration_s:.1f} s"
            why = event.reason
        case events.BreakerChanged():
            line, why = f"breaker {event.to_state.replace('_', ' ')}", event.condition
        case events.QuestionAsked():
            answers = " | ".join(event.options)
            line = (
                f"question: {one_line(event.text, _WORDS_MAX).strip()}\n"
                f"  flightlog loop answer --session {session} {answers}\n"
                f"  without an answer: {event.default_answer} after {event.timeout_s:.0f} s"
            )
        case events.QuestionAnswered(answered_by="timeout"):
            line = f"no answer came: {event.answer}"
        case events.WaitStarted():
            line, why = f"waiting until {format_utc_time(event.until)}", event.reason
        case _:
            pass
    return line + (f": {one_line(why, _WORDS_MAX)}" if why else "")


class LoopStatus(Struct, frozen=True):
    """Status of a session."""

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
    total_tokens: int
    cost_usd: float | None
    breaker_state: str
    question: str
    last_updated: str | None


def build_status(session: LoopSession) -> LoopStatus:
    """Return the status of a session."""
    state, totals = session.state, session.state.totals
    return LoopStatus(
        session=session.directory.name,
        session_id=state.session_id,
        status=state.status,
        reason=state.reason,
        runner=session.runner,
        current_task=state.current_task,
        tasks_completed=state.completed_count,
        tasks_total=state.tasks_total,
        iterations=state.iterations,
        errors=totals.errors,
        model_calls=totals.calls,
        total_tokens=totals.total_tokens,
        cost_usd=None if totals.unpriced_calls else round(totals.cost_usd, 6),
        breaker_state=state.breaker.state,
        question=state.question.event.text if state.question else "",
        last_updated=format_utc_time(state.last_at),
    )


def status_lines(session: LoopSession) -> list[str]:
    """Return the status of a session in a few lines."""
    state, status = session.state, build_status(session)
    runner = f"held by {session.runner}" if session.runner else "not running"
    counts = f"{pluralize(status.iterations, 'iteration')}, {pluralize(status.errors, 'error')}"
    lines = [
        f"{status.session}: {status.status}" + (f" ({status.reason})" if status.reason else ""),
        f"  {runner}; last event {status.last_updated}",
        f"  tasks {status.tasks_completed} of {status.tasks_total}, {counts}",
    ]
    if state.current_task:
        task = state.task_state(state.current_task)
        lines.append(f"  now: task {state.current_task}, attempt {task.attempt}, {task.stage}")
    if state.status == "in_progress" and not session.runner:
        lines.append(f"  it was cut short: flightlog loop resume --session {status.session}")
    return [*lines, *_cost_lines(state), *_question_lines(state, status.session)]


def monitor_lines(session: LoopSession) -> list[str]:
    """Return progress, status, breaker, gates and milestones of a session."""
    state = session.state
    total = max(state.tasks_total, 1)
    full = round(_BAR * state.completed_count / total)
    bar = "█" * full + "·" * (_BAR - full)
    gates = [
        f"  gate {name}: {'not evaluated' if gate.passed is None else 'passed' if gate.passed else 'failed'}"
        + ("" if gate.value is None else f" at {gate.value:g}")
        for name, gate in state.gates.items()
    ]
    breaker = state.breaker
    why = f" ({breaker.condition})" if breaker.state != "closed" else ""
    return [
        f"{session.directory.name}  {state.status}",
        f"  [{bar}] {state.completed_count}/{state.tasks_total}",
        *status_lines(session)[1:],
        f"  breaker {breaker.state}{why}, opened {pluralize(breaker.trips, 'time')}",
        *gates,
        *(f"  milestone {name} {format_utc_time(at)}" for name, at in state.milestones.items()),
    ]


def _cost_lines(state: LoopState) -> list[str]:
    totals = state.totals
    if not totals.calls:
        return []
    cost = "cost not known" if totals.unpriced_calls else f"{totals.cost_usd:.4f} USD"
    limit = f" of {state.budgets.usd:g}" if state.budgets.usd else ""
    calls, tokens = pluralize(totals.calls, "model call"), pluralize(totals.total_tokens, "token")
    return [f"  {calls}, {tokens}, {cost}{limit}"]


def _question_lines(state: LoopState, name: str) -> list[str]:
    if state.question is None:
        return []
    question = state.question.event
    until = format_utc_time(state.question.asked_at + question.timeout_s)
    command = f"flightlog loop answer --session {name} {' | '.join(question.options)}"
    return [
        f"  question {question.question_id}: {question.text}",
        f"  {command}   (without an answer: {question.default_answer} at {until})",
    ]
