"""Text for people: status lines, event lines, and the comparison of sessions."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from flightlog.loop import directories, events, session_overview
from flightlog.loop.analysis import analyze_session
from flightlog.loop.decide.recovery import explain_error
from flightlog.loop.state import LoopState
from flightlog.model.text import format_utc_time, one_line, parse_utc_time, pluralize

_WORDS_MAX = 200
_ENDS = {"success": "completed", "failure": "failed", "skipped": "skipped", "deferred": "put off"}
_BAR = 30
_ROWS_MAX = 60  # tasks on a terminal
_SECTION_MAX = 12  # lines of the other sections


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


def compare_sessions(
    sessions: Iterable[tuple[str, Iterable[directories.LoopEvent]]],
) -> list[LoopColumn]:
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
    return [
        (name.replace("_", " "), [_format_cell(getattr(column, name)) for column in columns])
        for name in LoopColumn.__struct_fields__[1:]
    ]


def _format_cell(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def describe_event(  # noqa: C901 - one case per event
    event: events.Event, names: Mapping[str, str], session: str
) -> str:
    """Return an event in a line, or ""; a question includes the command that answers it."""
    line = why = ""
    match event:
        case events.TaskStarted():
            label = f"{event.task} {one_line(names.get(event.task, ''), _WORDS_MAX)}".strip()
            mode = "" if event.mode == "work" else f", {event.mode}"
            line = f"{label}: attempt {event.attempt}{mode}"
        case events.AttemptEnded() if event.result != "success":
            line = f"{event.task} attempt {event.attempt}: {event.result}"
            why = explain_error(event.error_message) or event.error_type
            if event.result == "limited" and event.limit_s:
                line += f", waiting {event.limit_s:.0f} s"
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
            answers = " | ".join(event.options) or '"TEXT"'
            line = (
                f"question: {one_line(event.text, _WORDS_MAX).strip()}\n"
                f"  flightlog loop answer --session {session} {answers}\n"
                f"  without an answer: {event.default_answer} after {event.timeout_s:.0f} s"
            )
        case events.QuestionAnswered(answered_by="timeout"):
            line = f"no answer came: {event.answer}"
        case events.WaitStarted():
            line, why = f"waiting until {format_utc_time(event.until)}", event.reason
        case events.TaskCommitted() if event.commit or event.error_message:
            line = f"{event.task} committed as {event.commit[:12]}" if event.commit else ""
            line, why = line or f"{event.task} not committed", event.error_message
        case _:
            pass
    return line + (f": {one_line(why, _WORDS_MAX)}" if why else "")


class LoopStatus(Struct, frozen=True):
    """Status of a session; `next` is the command with which a person continues it."""

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
    waiting: session_overview.WaitRow | None
    tasks: tuple[session_overview.TaskRow, ...]
    question: session_overview.QuestionRow | None
    next: str
    damaged_lines: int
    last_updated: str | None


def build_status(session: directories.LoopSession, now: float) -> LoopStatus:
    """Return the status of a session."""
    state, totals = session.state, session.state.totals
    is_cut = state.status == "in_progress" and not session.runner
    return LoopStatus(
        session=session.directory.name,
        session_id=state.session_id,
        status=state.status,
        reason=state.reason or ("its runner was killed" if is_cut and state.epoch else ""),
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
        waiting=session_overview.find_wait(session, now),
        tasks=tuple(session_overview.task_rows(session)),
        question=session_overview.question_row(state),
        next=session_overview.next_command(session),
        damaged_lines=session.damaged_lines,
        last_updated=format_utc_time(state.last_at),
    )


def status_lines(session: directories.LoopSession, now: float) -> list[str]:
    """Return the status of a session as text: figures, tasks, causes, changes, what to type next."""
    state, status = session.state, build_status(session, now)
    project = (session.directory / state.project).resolve()
    files = [
        f"    {one_line(file.path, 60)}  {session_overview.describe_change(file)}"
        for file in session_overview.changed_files(state, project)
    ]
    statements = [f"    {task}  {text}" for task, text in session_overview.agent_statements(state)]
    timeline = [
        f"    {format_utc_time(entry.at)}  {entry.kind:<8}  {entry.text}"
        for entry in state.timeline
    ]
    return [
        *_head_lines(session, status),
        *_cost_lines(state),
        *_wait_lines(status, now),
        *_question_lines(state, status.session),
        *_table_lines(state, status.tasks),
        *_titled_lines("what the agent said", statements),
        *_titled_lines("changed files", files),
        *_titled_lines("timeline", timeline),
        *([f"  next: {status.next}"] if status.next else []),
    ]


def monitor_lines(session: directories.LoopSession, now: float) -> list[str]:
    """Return progress, what goes on now, breaker, gates and milestones of a session."""
    state, status = session.state, build_status(session, now)
    full = round(_BAR * state.completed_count / max(state.tasks_total, 1))
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
        *_head_lines(session, status)[1:],
        *_activity_lines(session, now),
        *_cost_lines(state),
        *_wait_lines(status, now),
        *_question_lines(state, status.session),
        f"  breaker {breaker.state}{why}, opened {pluralize(breaker.trips, 'time')}",
        *gates,
        *(f"  milestone {name} {format_utc_time(at)}" for name, at in state.milestones.items()),
        *([f"  next: {status.next}"] if status.next else []),
    ]


def _head_lines(session: directories.LoopSession, status: LoopStatus) -> list[str]:
    state = session.state
    runner = f"held by {session.runner}" if session.runner else "not running"
    counts = f"{pluralize(status.iterations, 'iteration')}, {pluralize(status.errors, 'error')}"
    lines = [
        f"{status.session}: {status.status}" + (f" ({status.reason})" if status.reason else ""),
        f"  {runner}; last event {status.last_updated}",
        f"  tasks {status.tasks_completed} of {status.tasks_total}, {counts}",
    ]
    if state.current_task and session.runner and status.waiting is None:
        task = state.task_state(state.current_task)
        lines.append(f"  now: task {state.current_task}, attempt {task.attempt}, {task.stage}")
    if session.damaged_lines:
        lost = pluralize(session.damaged_lines, "line")
        lines.append(f"  the journal is damaged: {lost} cannot be read and is missing here")
    return lines


def _activity_lines(session: directories.LoopSession, now: float) -> list[str]:
    activity, _ = directories.read_activity(session.directory, session.state)
    if activity is None or not activity.task or not session.runner:
        return []
    name = one_line(session.state.names.get(activity.task, ""), 40)
    tool = f": {one_line(activity.tool, 60)}" if activity.tool else ""
    return [f"  {activity.task} {name} for {_format_seconds(now - activity.since)}{tool}"]


def _wait_lines(status: LoopStatus, now: float) -> list[str]:
    if status.waiting is None:
        return []
    until = status.waiting.until or ""
    left = _format_seconds(parse_utc_time(until) - now)
    return [f"  waiting for {status.waiting.reason} until {until}, {left} left"]


def _format_seconds(seconds: float) -> str:
    return session_overview.format_duration(max(seconds, 0.0) // 1).replace(".0", "")


def _table_lines(state: LoopState, rows: Sequence[session_overview.TaskRow]) -> list[str]:
    """Return the tasks as aligned columns, and the cause and the next command of those that failed."""
    lines = [f"  {'task':<8} {'name':<28} {'outcome':<12} {'tries':>5} {'time':>12} {'USD':>9}"]
    for row in rows[:_ROWS_MAX]:
        figures = f"{row.attempts:>5} {session_overview.format_duration(row.duration_s):>12}"
        outcome = session_overview.task_outcome(state, row.id)
        cost = session_overview.format_cost(row.cost_usd)
        name = one_line(row.name, 28)
        lines.append(f"  {row.id:<8} {name:<28} {outcome:<12} {figures} {cost:>9}")
        if row.cause:
            lines.append(f"           cause: {row.cause}")
            lines += [f"           next: {row.next}"] if row.next else []
    left = len(rows) - _ROWS_MAX
    return [*lines, f"  … and {pluralize(left, 'task')} more: --json"] if left > 0 else lines


def _titled_lines(title: str, lines: list[str]) -> list[str]:
    """Return the last lines under a title, or nothing."""
    left = len(lines) - _SECTION_MAX
    more = [f"    … {left} more in final-report.md"] if left > 0 else []
    return [f"  {title}:", *more, *lines[-_SECTION_MAX:]] if lines else []


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
    default = f"  without an answer at {until}: {question.default_answer}"
    return [
        f"  question {question.question_id}: {question.text}",
        f"  {session_overview.answer_command(name, state)}{session_overview.other_answers(state)}",
        *([default] if state.status == "in_progress" else []),
    ]
