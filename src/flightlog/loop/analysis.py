"""Figures by task and decision; calibration.

Pairs of confidence and outcome, a reliability curve, the Brier score; and the table with which
the next session reads its confidence.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.loop import events, layout
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.directories import JOURNAL, LoopEvent, iter_events
from flightlog.loop.state import LoopState
from flightlog.model.text import pluralize

BINS = 10
_PRIOR = 5.0
_PAIRS_MIN = 10


class ConfidenceOutcome(Struct, frozen=True):
    """How sure we were, and whether it was right."""

    raw: float
    confidence: float
    right: bool
    event: int


class CalibrationBin(Struct, frozen=True):
    """A stretch of the reliability curve."""

    low: float
    high: float
    count: int
    confidence: float
    right: float


class Calibration(Struct, frozen=True):
    """How well confidence and outcome went together; nothing is said of no decisions."""

    decisions: int
    brier: float | None
    gap: float | None
    curve: tuple[CalibrationBin, ...]


def pair_outcomes(told: Iterable[LoopEvent]) -> list[ConfidenceOutcome]:
    """Each decision to do something, with how the attempt that followed came out."""
    waiting: dict[str, tuple[int, events.DecisionMade]] = {}
    found: list[ConfidenceOutcome] = []

    def settle(task: str, *, right: bool) -> None:
        if task in waiting:
            seq, made = waiting.pop(task)
            found.append(ConfidenceOutcome(made.raw, made.confidence, right, seq))

    for each in told:
        match each.event:
            case events.DecisionMade() as made if made.action in {"execute", "retry", "delegate"}:
                waiting[made.task] = (each.seq, made)
            case events.TaskStarted(mode="diagnose") as begun:
                waiting.pop(begun.task, None)
            case events.AttemptEnded() as ended if ended.result in {"failure", "timeout"}:
                settle(ended.task, right=False)
            case events.TaskVerified() as checked:
                settle(checked.task, right=checked.passed)
            case _:
                pass
    return found


def measure_calibration(found: Sequence[ConfidenceOutcome]) -> Calibration:
    """Hold confidence against outcome."""
    if not found:
        return Calibration(0, None, None, ())
    brier = sum((pair.confidence - pair.right) ** 2 for pair in found) / len(found)
    curve = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [
            pair for pair in found if low <= pair.confidence < high or (number == BINS - 1 and pair.confidence == 1)
        ]
        if inside:
            mean = sum(pair.confidence for pair in inside) / len(inside)
            right = sum(pair.right for pair in inside) / len(inside)
            curve.append(CalibrationBin(low, high, len(inside), round(mean, 4), round(right, 4)))
    gap = sum(each.count * abs(each.confidence - each.right) for each in curve) / len(found)
    return Calibration(len(found), round(brier, 4), round(gap, 4), tuple(curve))


def calibration_table(directories: Iterable[Path]) -> tuple[tuple[float, float], ...]:
    """What raw confidence was worth in these sessions, drawn towards itself where there is little evidence."""
    found = [pair for path in directories if (path / JOURNAL).is_file() for pair in pair_outcomes(iter_events(path))]
    if len(found) < _PAIRS_MIN:
        return ()
    points = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [pair for pair in found if low <= pair.raw < high or (number == BINS - 1 and pair.raw == 1)]
        if inside:
            middle = sum(pair.raw for pair in inside) / len(inside)
            worth = (sum(pair.right for pair in inside) + _PRIOR * middle) / (len(inside) + _PRIOR)
            points.append((round(middle, 4), round(worth, 4)))
    return tuple(points)


@dataclass
class TaskHistory:
    """What happened to one task, by event numbers."""

    started: list[int] = field(default_factory=list)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    remedies: list[tuple[int, str, str]] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    ended: tuple[int, str, float, str] | None = None
    artifacts: dict[str, int] = field(default_factory=dict)
    wasted_s: float = 0.0
    usd: float = 0.0
    calls: int = 0


@dataclass
class LoopAccount:
    """A whole session, by event numbers."""

    state: LoopState = field(default_factory=LoopState)
    tasks: dict[str, TaskHistory] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    ending: tuple[int, str] | None = None
    trips: list[tuple[int, str, int]] = field(default_factory=list)
    questions: list[tuple[int, str, str, str, int]] = field(default_factory=list)
    gates: list[tuple[int, str, float | None, bool | None]] = field(default_factory=list)
    milestones: list[tuple[int, str]] = field(default_factory=list)
    alerts: list[tuple[int, str, str]] = field(default_factory=list)
    waits: list[tuple[int, str]] = field(default_factory=list)
    runners: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: list[ConfidenceOutcome] = field(default_factory=list)


def build_account(told: Iterable[LoopEvent]) -> LoopAccount:
    """Go through a session."""
    whole = LoopAccount()
    kept = []
    for each in told:
        kept.append(each)
        apply_event(whole.state, each.at, each.event)
        whole.first, whole.last = whole.first or each.seq, each.seq
        whole.kinds[str(each.event.__struct_config__.tag)] += 1
        _add_event(whole, each.seq, each.event)
    whole.pairs = pair_outcomes(kept)
    return whole


def _add_event(whole: LoopAccount, seq: int, event: events.Event) -> None:
    match event:
        case events.LoopEnded() | events.LoopPaused() | events.LoopStopped():
            whole.ending = (seq, event.why)
        case events.LoopResumed():
            whole.ending = None
        case events.RunnerAcquired():
            whole.runners.append(seq)
        case events.BreakerChanged(after="open"):
            whole.trips.append((seq, event.condition, 0))
        case events.BreakerChanged(after="closed"):
            whole.trips = [(at, why, closed or seq) for at, why, closed in whole.trips]
        case events.QuestionAsked():
            whole.questions.append((seq, event.text, "", "", 0))
        case events.QuestionAnswered() if whole.questions:
            at, text, *_ = whole.questions[-1]
            whole.questions[-1] = (at, text, event.answer, event.by, seq)
        case events.GateChecked():
            whole.gates.append((seq, event.name, event.value, event.passed))
        case _:
            _add_other_event(whole, seq, event)


def _add_other_event(whole: LoopAccount, seq: int, event: events.Event) -> None:
    match event:
        case events.MilestoneReached():
            whole.milestones.append((seq, event.name))
        case events.AlertRaised():
            whole.alerts.append((seq, event.condition, event.why))
        case events.WaitStarted():
            whole.waits.append((seq, event.why))
        case (
            events.TaskStarted()
            | events.AttemptEnded()
            | events.TaskVerified()
            | events.TaskEnded()
            | events.RecoveryStarted()
            | events.UsageRecorded()
        ):
            _add_task_event(whole.tasks.setdefault(event.task, TaskHistory()), seq, event)
        case events.TaskReported(what="artifact"):
            whole.tasks.setdefault(event.task, TaskHistory()).artifacts[event.name] = seq
        case _:
            pass


def _add_task_event(
    task: TaskHistory,
    seq: int,
    event: events.TaskStarted
    | events.AttemptEnded
    | events.TaskVerified
    | events.TaskEnded
    | events.RecoveryStarted
    | events.UsageRecorded,
) -> None:
    match event:
        case events.TaskStarted():
            task.started.append(seq)
        case events.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
            task.failures.append((seq, event.error_type or event.result, event.error_message))
            task.wasted_s += event.duration_s
        case events.TaskVerified() if event.passed:
            task.verified.append(seq)
        case events.TaskVerified():
            task.failures.append((seq, "validation", event.error_message))
        case events.TaskEnded():
            task.ended = (seq, event.result, event.duration_s, event.why)
        case events.RecoveryStarted():
            task.remedies.append((seq, event.action, event.why))
        case events.UsageRecorded():
            task.calls += event.calls
            task.usd += event.usd or 0.0
        case _:
            pass


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
        performance=layout.performance_figures(state, state.last_at),
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
