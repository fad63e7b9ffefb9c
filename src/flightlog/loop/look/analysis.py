"""A session taken apart: figures by task, by error, by decision, and how sure we were."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from flightlog.loop.layout import pages
from flightlog.loop.look.account import build_account
from flightlog.loop.look.calibration import Calibration, measure_calibration
from flightlog.loop.look.session import LoopEvent
from flightlog.model.text import pluralize


class TaskFigures(Struct, frozen=True):
    """One task."""

    task_id: str
    status: str
    attempts: int
    failures: int
    duration_seconds: float | None
    wasted_seconds: float
    model_calls: int
    cost_usd: float
    events: tuple[str, ...]


class LoopAnalysis(Struct, frozen=True):
    """A whole session."""

    session_id: str
    status: str
    performance: dict[str, Any]
    tasks: tuple[TaskFigures, ...]
    errors_by_type: dict[str, int]
    recoveries: dict[str, int]
    breaker_trips: int
    questions: int
    runners: int
    events: dict[str, int]
    calibration: Calibration


def analyze_session(told: Iterable[LoopEvent]) -> LoopAnalysis:
    """Take a session apart."""
    whole = build_account(told)
    state = whole.state
    figures = []
    for task_id, task in state.tasks.items():
        own = whole.tasks.get(task_id)
        if own is None:
            continue
        seen = [*own.started, *(seq for seq, _, _ in own.failures), *([own.ended[0]] if own.ended else [])]
        figures.append(
            TaskFigures(
                task_id,
                task.status,
                task.attempt,
                len(own.failures),
                None if task.duration_s is None else round(task.duration_s, 3),
                round(own.wasted_s, 3),
                own.calls,
                round(own.usd, 6),
                tuple(f"e{seq}" for seq in sorted(seen)[:12]),
            )
        )
    return LoopAnalysis(
        session_id=state.session_id,
        status=state.status,
        performance=pages.performance_figures(state, state.last_at),
        tasks=tuple(figures),
        errors_by_type=dict(Counter(kind for task in whole.tasks.values() for _, kind, _ in task.failures)),
        recoveries=dict(Counter(action for task in whole.tasks.values() for _, action, _ in task.remedies)),
        breaker_trips=len(whole.trips),
        questions=len(whole.questions),
        runners=len(whole.runners),
        events=dict(whole.kinds),
        calibration=measure_calibration(whole.pairs),
    )


def render_text(told: LoopAnalysis) -> str:
    """The same as text."""
    lines = [f"{told.session_id}: {told.status}"]
    lines += [f"  {name}: {value}" for name, value in told.performance.items()]
    lines += ["tasks"]
    lines += [
        f"  {task.task_id}  {task.status}  {pluralize(task.attempts, 'attempt')}, "
        f"{pluralize(task.failures, 'failure')}, "
        f"{task.duration_seconds if task.duration_seconds is not None else '-'} s [{', '.join(task.events)}]"
        for task in told.tasks
    ]
    lines += ["errors", *(f"  {kind}: {count}" for kind, count in told.errors_by_type.items() or [("none", 0)])]
    people = f"{pluralize(told.questions, 'question')}, {pluralize(told.runners, 'runner')}"
    lines += [f"breaker opened {pluralize(told.breaker_trips, 'time')}, {people}"]
    sure = told.calibration
    if sure.brier is None:
        return "\n".join([*lines, "calibration: no decision has an outcome yet"])
    lines.append(
        f"calibration: Brier score {sure.brier:.3f} over {pluralize(sure.decisions, 'decision')}, "
        f"mean gap {sure.gap:.3f}"
    )
    lines += [
        f"  {each.low:.1f}-{each.high:.1f}: said {each.confidence:.2f}, right {each.right:.2f} ({each.count})"
        for each in sure.curve
    ]
    return "\n".join(lines)
