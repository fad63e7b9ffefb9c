"""What a person needs of a session: tasks, causes, changed files, timeline, the next command.

`status`, `final-report.md` and the page of a loop show these values; all come from the folded state.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code import allow_tools
from flightlog.loop.decide.breaker import find_used_budget
from flightlog.loop.decide.recovery import denied_tools, explain_error
from flightlog.loop.directories import LoopSession
from flightlog.loop.runner.work_tree import uncommitted_paths
from flightlog.loop.state import LoopState, add_counts
from flightlog.model.text import format_utc_time, one_line

_NAME_CHARS = 120
_SAID_CHARS = 400
_CAUSE_CHARS = 300
# Options of `resume` for each limit, and what a limit is raised by.
_LIMIT_OPTIONS = {
    "usd": "budget",
    "wall_time_seconds": "max-wall",
    "max_iterations": "max-iterations",
}
_RAISE = 2


class TaskRow(Struct, frozen=True):
    """One task; `duration_s` is the time in which something ran, `next` the command that helps."""

    id: str
    name: str
    status: str
    attempts: int
    duration_s: float | None
    cost_usd: float | None
    cause: str
    next: str


class QuestionRow(Struct, frozen=True):
    """The open question."""

    id: str
    text: str
    asked_at: str | None


class WaitRow(Struct, frozen=True):
    """What the loop waits for, and until when."""

    until: str | None
    reason: str


class LoopFileChange(Struct, frozen=True):
    """A file that tasks changed; counts are None if it is binary, `is_committed` if unknown."""

    path: str
    added: int | None
    removed: int | None
    tasks: tuple[str, ...]
    is_committed: bool | None


def task_rows(session: LoopSession) -> Iterator[TaskRow]:
    """Yield the tasks in the order of the plan."""
    state = session.state
    for task_id in state.names or state.tasks:
        task = state.task_state(task_id)
        yield TaskRow(
            id=task_id,
            name=one_line(state.names.get(task_id, ""), _NAME_CHARS),
            status=task.status,
            attempts=task.attempt + task.cut_count,
            duration_s=round(task.active_s, 3) if task.attempt else None,
            cost_usd=None if task.unpriced_calls else round(task.cost_usd, 6),
            cause=task_cause(state, task_id),
            next=_task_command(session, task_id),
        )


def task_outcome(state: LoopState, task_id: str) -> str:
    """Return a word for a task; `verified` only if a verifier passed."""
    task = state.task_state(task_id)
    if task.status == "completed" and task.reason == "verified":
        return "verified"
    return task.status.replace("_", " ")


def task_cause(state: LoopState, task_id: str) -> str:
    """Return why a task is not completed, or ""."""
    task = state.task_state(task_id)
    if task.status in {"completed", "pending"} and not task.denied_tools:
        return ""
    if denied := denied_tools(state, task_id):
        option = ", ".join(allow_tools(denied))
        return f"permission denied: {', '.join(denied)}; allowed by `arguments: [{option}]`"
    error = explain_error(task.error_message, _CAUSE_CHARS)
    if task.status == "failed" and error:
        return error
    reason = explain_error(task.reason, _CAUSE_CHARS)
    return f"{reason}: {error}" if error and reason not in {"", error} else reason or error


def question_row(state: LoopState) -> QuestionRow | None:
    """Return the open question; it stays open while a session is paused."""
    if state.question is None:
        return None
    event = state.question.event
    return QuestionRow(event.question_id, event.text, format_utc_time(state.question.asked_at))


def answer_command(session: str, state: LoopState) -> str:
    """Return a command that answers the open question, with its first option."""
    assert state.question is not None, "there is no question"
    options = state.question.event.options or ('"TEXT"',)
    return f"flightlog loop answer --session {session} {options[0]}"


def other_answers(state: LoopState) -> str:
    """Return a phrase about the other answers to the open question, or ""."""
    others = state.question.event.options[1:] if state.question else ()
    return f" (or: {', '.join(others)})" if others else ""


def find_wait(session: LoopSession, now: float) -> WaitRow | None:
    """Return what a running loop waits for, or None."""
    state = session.state
    if state.status != "in_progress" or not session.runner:
        return None
    if state.question is not None:
        until = state.question.asked_at + state.question.event.timeout_s
        return WaitRow(format_utc_time(until), "an answer")
    if state.wait_until > now:
        return WaitRow(format_utc_time(state.wait_until), state.wait_reason)
    task = state.task_state(state.current_task)
    if task.stage == "idle" and task.retry_at > now:
        reason = f"task {state.current_task} to be tried again"
        return WaitRow(format_utc_time(task.retry_at), reason)
    return None


def next_command(session: LoopSession) -> str:
    """Return the command with which a person continues the session; "" if there is none to type."""
    state, name = session.state, session.directory.name
    if state.question is not None:
        return answer_command(name, state)
    if session.runner or state.status == "completed":
        return ""
    resume = f"flightlog loop resume --session {name}"
    ended = state.ended_at or state.resting_since or state.last_at
    if state.status == "paused" and (used := find_used_budget(state, ended)):
        option = _LIMIT_OPTIONS.get(used.name, f"max-{used.name}")
        return f"{resume} --{option} {used.limit * _RAISE:g}"
    blocked = [gate for gate, at in state.gates.items() if not (at.passed or at.is_accepted)]
    if state.status == "paused" and state.reason.startswith("the gate") and blocked:
        return f"flightlog loop accept --session {name} {shlex.quote(blocked[0])}"
    if state.status == "error" and state.breaker.state == "open":
        return f"flightlog loop reset-breaker --session {name}"
    denied = {tool for task in state.tasks for tool in denied_tools(state, task)}
    return " --allow ".join([resume, *map(shlex.quote, sorted(denied))])


def changed_files(state: LoopState, project: Path) -> list[LoopFileChange]:
    """Return the files that tasks changed, in order of path, and whether they are committed."""
    tasks: dict[str, list[str]] = {}
    counts: dict[str, tuple[int | None, int | None]] = {}
    for task_id, task in state.tasks.items():
        for path, (added, removed) in task.changes.items():
            tasks.setdefault(path, []).append(task_id)
            before = counts.get(path, (0, 0))
            counts[path] = (add_counts(before[0], added), add_counts(before[1], removed))
    if not tasks:
        return []
    uncommitted = uncommitted_paths(project, tasks)
    files = []
    for path in sorted(tasks):
        is_committed = None if uncommitted is None else path not in uncommitted
        files.append(LoopFileChange(path, *counts[path], tuple(tasks[path]), is_committed))
    return files


def agent_statements(state: LoopState) -> list[tuple[str, str]]:
    """Return what the agents said at last about each task."""
    spoken = ((name, task.last_message) for name, task in state.tasks.items() if task.sessions)
    return [(name, one_line(text, _SAID_CHARS)) for name, text in spoken if text]


def format_duration(seconds: float | None) -> str:
    """Return a duration as people write it."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return (
        f"{hours} h {minutes % 60:02} min" if hours else f"{minutes} min {int(seconds) % 60:02} s"
    )


def format_cost(cost_usd: float | None) -> str:
    """Return a cost in USD."""
    return "unknown" if cost_usd is None else f"{cost_usd:.4f}"


def describe_change(file: LoopFileChange) -> str:
    """Return the counts of a changed file, and whether it is committed."""
    counts = "binary" if file.added is None else f"+{file.added} -{file.removed}"
    if file.is_committed is None:
        return counts
    return f"{counts}, {'committed' if file.is_committed else 'not committed'}"


def _task_command(session: LoopSession, task_id: str) -> str:
    state, name = session.state, session.directory.name
    task = state.task_state(task_id)
    if state.question is not None and state.question.event.task == task_id:
        return answer_command(name, state)
    if session.runner or task.status == "completed":
        return ""
    if task.status in {"skipped", "deferred"}:
        return f"flightlog loop redo --session {name} {task_id}"
    denied = denied_tools(state, task_id)
    if denied or task.status == "failed":
        resume = f"flightlog loop resume --session {name}"
        return " --allow ".join([resume, *map(shlex.quote, denied)])
    return next_command(session)
