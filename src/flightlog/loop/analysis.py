"""Figures of a loop session by task, and calibration of its decisions.

Calibration compares confidence with outcome: a reliability curve, the Brier score, and a table
with which the next session corrects its confidence.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.loop import events, layout
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.directories import JOURNAL, LoopEvent, iter_events
from flightlog.loop.plan.load import redact_events
from flightlog.loop.state import LoopState, TimelineEntry
from flightlog.model.text import pluralize
from flightlog.privacy.json_redactor import JsonRedactor

BINS = 10
_BATCH = 500  # events that are redacted together
_PRIOR = 5.0  # weight of the raw confidence, in decisions, against few observed outcomes
CALIBRATION_MIN = 20  # decisions; with fewer the figures say nothing, so none are shown
_PAIRS_MIN = 10  # with fewer decisions there is no correction
_FAILED = ("failure", "timeout")
_TASK_EVENTS = (
    events.TaskStarted | events.AttemptEnded | events.TaskVerified | events.TaskEnded
) | (events.RecoveryStarted | events.UsageRecorded | events.TaskReported)


class ConfidenceOutcome(Struct, frozen=True):
    """Confidence of a decision, and whether its outcome was right."""

    raw_confidence: float
    confidence: float
    is_correct: bool
    event: int


class CalibrationBin(Struct, frozen=True):
    """One bin of the reliability curve."""

    low: float
    high: float
    count: int
    mean_confidence: float
    accuracy: float


class Calibration(Struct, frozen=True):
    """Agreement of confidence and outcome; None without decisions."""

    decisions: int
    brier_score: float | None
    calibration_gap: float | None
    curve: tuple[CalibrationBin, ...]


def pair_outcomes(records: Iterable[LoopEvent]) -> list[ConfidenceOutcome]:
    """Pair each decision to start an attempt with the outcome of that attempt."""
    waiting: dict[str, tuple[int, events.DecisionMade]] = {}
    pairs: list[ConfidenceOutcome] = []

    def settle(task: str, *, right: bool) -> None:
        if task in waiting:
            seq, decision = waiting.pop(task)
            pairs.append(
                ConfidenceOutcome(decision.raw_confidence, decision.confidence, right, seq)
            )

    for record in records:
        match record.event:
            case events.DecisionMade() as event if event.action in {"execute", "retry", "delegate"}:
                waiting[event.task] = (record.seq, event)
            case events.TaskStarted(mode="diagnose") as event:
                waiting.pop(event.task, None)
            case events.AttemptEnded() as event if event.result in _FAILED:
                settle(event.task, right=False)
            case events.TaskVerified() as event:
                settle(event.task, right=event.passed)
            case _:
                pass
    return pairs


def measure_calibration(pairs: Sequence[ConfidenceOutcome]) -> Calibration:
    """Compare confidence with outcome."""
    if not pairs:
        return Calibration(0, None, None, ())
    brier = sum((pair.confidence - pair.is_correct) ** 2 for pair in pairs) / len(pairs)
    curve = []
    for number, inside in _fill_bins(pairs, lambda pair: pair.confidence):
        mean = sum(pair.confidence for pair in inside) / len(inside)
        right = sum(pair.is_correct for pair in inside) / len(inside)
        low, high = number / BINS, (number + 1) / BINS
        curve.append(CalibrationBin(low, high, len(inside), round(mean, 4), round(right, 4)))
    gap = sum(part.count * abs(part.mean_confidence - part.accuracy) for part in curve) / len(pairs)
    return Calibration(len(pairs), round(brier, 4), round(gap, 4), tuple(curve))


def calibration_table(directories: Iterable[Path]) -> tuple[tuple[float, float], ...]:
    """Return pairs of raw confidence and observed success rate in these sessions."""
    sessions = [path for path in directories if (path / JOURNAL).is_file()]
    pairs = [pair for path in sessions for pair in pair_outcomes(iter_events(path))]
    if len(pairs) < _PAIRS_MIN:
        return ()
    points = []
    for _, inside in _fill_bins(pairs, lambda pair: pair.raw_confidence):
        mean = sum(pair.raw_confidence for pair in inside) / len(inside)
        rate = (sum(pair.is_correct for pair in inside) + _PRIOR * mean) / (len(inside) + _PRIOR)
        points.append((round(mean, 4), round(rate, 4)))
    return tuple(points)


def _fill_bins(
    pairs: Sequence[ConfidenceOutcome], value_of: Callable[[ConfidenceOutcome], float]
) -> Iterator[tuple[int, list[ConfidenceOutcome]]]:
    """Yield the number and the pairs of each bin that is not empty; 1.0 is in the last bin."""
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        last = number == BINS - 1
        inside = [
            pair for pair in pairs if low <= value_of(pair) < high or (last and value_of(pair) == 1)
        ]
        if inside:
            yield number, inside


@dataclass
class TaskHistory:
    """What happened to one task, with event numbers."""

    start_events: list[int] = field(default_factory=list)
    cuts: list[tuple[int, float]] = field(default_factory=list)
    last_end: int = 0
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    remedies: list[tuple[int, str, str]] = field(default_factory=list)
    ended: tuple[int, str, float, str] | None = None
    artifacts: dict[str, int] = field(default_factory=dict)
    wasted_s: float = 0.0
    cost_usd: float = 0.0
    calls: int = 0


@dataclass
class LoopAccount:
    """What happened in a session, with event numbers."""

    state: LoopState = field(default_factory=LoopState)
    tasks: dict[str, TaskHistory] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    ending: tuple[int, str] | None = None
    trips: list[tuple[int, str, int]] = field(default_factory=list)
    questions: list[tuple[int, str, str, str, int]] = field(default_factory=list)
    gates: list[tuple[int, str, float | None, bool | None]] = field(default_factory=list)
    milestones: list[tuple[int, str]] = field(default_factory=list)
    timeline: list[tuple[int, TimelineEntry]] = field(default_factory=list)
    runners: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: list[ConfidenceOutcome] = field(default_factory=list)


def redact_records(records: Iterator[LoopEvent], clean: JsonRedactor) -> Iterator[LoopEvent]:
    """Yield the events redacted, many together: a search takes 0.1 ms at least."""
    while batch := list(islice(records, _BATCH)):
        cleaned = redact_events([record.event for record in batch], clean)
        for (seq, timestamp, _), event in zip(batch, cleaned, strict=True):
            yield LoopEvent(seq, timestamp, event)


def build_account(records: Iterable[LoopEvent]) -> LoopAccount:
    """Fold the events of a session into an account."""
    account = LoopAccount()
    records = list(records)
    for record in records:
        last = account.state.timeline[-1] if account.state.timeline else None
        apply_event(account.state, record.timestamp, record.event)
        new = list(takewhile(partial(operator.is_not, last), reversed(account.state.timeline)))
        account.timeline += [(record.seq, entry) for entry in reversed(new)]
        account.first, account.last = account.first or record.seq, record.seq
        account.kinds[str(record.event.__struct_config__.tag)] += 1
        if isinstance(record.event, _TASK_EVENTS):
            history = account.tasks.setdefault(record.event.task, TaskHistory())
            _add_task_event(history, record.seq, record.event)
            if isinstance(record.event, events.AttemptEnded):
                history.last_end = record.seq
        else:
            _add_event(account, record.seq, record.event)
    account.pairs = pair_outcomes(records)
    return account


def _add_event(account: LoopAccount, seq: int, event: events.Event) -> None:
    match event:
        case events.LoopEnded() | events.LoopPaused() | events.LoopStopped():
            account.ending = (seq, event.reason)
        case events.LoopResumed():
            account.ending = None
        case events.RunnerAcquired():
            account.runners.append(seq)
        case events.BreakerChanged(to_state="open"):
            account.trips.append((seq, event.condition, 0))
        case events.BreakerChanged(to_state="closed"):
            account.trips = [(at, why, closed or seq) for at, why, closed in account.trips]
        case events.QuestionAsked():
            account.questions.append((seq, event.text, "", "", 0))
        case events.QuestionAnswered() if account.questions:
            at, text, *_ = account.questions[-1]
            account.questions[-1] = (at, text, event.answer, event.answered_by, seq)
        case events.GateChecked():
            account.gates.append((seq, event.name, event.value, event.passed))
        case events.MilestoneReached():
            account.milestones.append((seq, event.name))
        case _:
            pass


def _add_task_event(task: TaskHistory, seq: int, event: events.Event) -> None:
    match event:
        case events.TaskStarted():
            task.start_events.append(seq)
        case events.AttemptEnded(result="cut"):
            task.cuts.append((seq, event.duration_s))
        case events.AttemptEnded() if event.result in (*_FAILED, "limited"):
            task.failures.append((seq, event.error_type or event.result, event.error_message))
            task.wasted_s += event.duration_s
        case events.TaskVerified(passed=True):
            task.artifacts |= dict.fromkeys(event.artifacts, seq)
        case events.TaskVerified(passed=False):
            task.failures.append((seq, "validation", event.error_message))
        case events.TaskEnded():
            task.ended = (seq, event.result, event.duration_s, event.reason)
        case events.RecoveryStarted():
            task.remedies.append((seq, event.action, event.reason))
        case events.UsageRecorded():
            task.calls += event.calls
            task.cost_usd += event.cost_usd or 0.0
        case events.TaskReported(report_type="artifact"):
            task.artifacts[event.name] = seq
        case _:
            pass


class TaskFigures(Struct, frozen=True):
    """Figures of one task."""

    task_id: str
    status: str
    attempts: int
    failures: int
    duration_seconds: float | None
    wasted_seconds: float
    model_calls: int
    cost_usd: float
    event_ids: tuple[str, ...]


class LoopAnalysis(Struct, frozen=True):
    """Figures of a session."""

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


def analyze_session(records: Iterable[LoopEvent]) -> LoopAnalysis:
    """Return the figures of a session."""
    account = build_account(records)
    state, histories = account.state, account.tasks.values()
    failures = Counter(kind for history in histories for _, kind, _ in history.failures)
    recoveries = Counter(action for history in histories for _, action, _ in history.remedies)
    return LoopAnalysis(
        session_id=state.session_id,
        status=state.status,
        performance=layout.performance_figures(state, state.last_at),
        tasks=tuple(
            _task_figures(task_id, state, account.tasks[task_id])
            for task_id in state.tasks
            if task_id in account.tasks
        ),
        errors_by_type=dict(failures),
        recoveries=dict(recoveries),
        breaker_trips=len(account.trips),
        questions=len(account.questions),
        runners=len(account.runners),
        events=dict(account.kinds),
        calibration=measure_calibration(account.pairs),
    )


def _task_figures(task_id: str, state: LoopState, history: TaskHistory) -> TaskFigures:
    task = state.tasks[task_id]
    numbers = [*history.start_events, *(seq for seq, _, _ in history.failures)]
    numbers += [history.ended[0]] if history.ended else []
    duration_s = None if task.duration_s is None else round(task.duration_s, 3)
    spent = (duration_s, round(history.wasted_s, 3), history.calls, round(history.cost_usd, 6))
    event_ids = tuple(f"e{seq}" for seq in sorted(numbers)[:12])
    return TaskFigures(task_id, task.status, task.attempt, len(history.failures), *spent, event_ids)


def render_text(analysis: LoopAnalysis) -> str:
    """Render the figures as text."""
    lines = [f"{analysis.session_id}: {analysis.status}"]
    lines += [f"  {name}: {value}" for name, value in analysis.performance.items()]
    lines += ["tasks"]
    for task in analysis.tasks:
        counts = f"{pluralize(task.attempts, 'attempt')}, {pluralize(task.failures, 'failure')}"
        duration = "-" if task.duration_seconds is None else task.duration_seconds
        evidence = ", ".join(task.event_ids)
        lines += [f"  {task.task_id}  {task.status}  {counts}, {duration} s [{evidence}]"]
    errors = analysis.errors_by_type.items() or [("none", 0)]
    lines += ["errors", *(f"  {kind}: {count}" for kind, count in errors)]
    people = f"{pluralize(analysis.questions, 'question')}, {pluralize(analysis.runners, 'runner')}"
    lines += [f"breaker opened {pluralize(analysis.breaker_trips, 'time')}, {people}"]
    score = analysis.calibration
    if score.decisions < CALIBRATION_MIN or score.brier_score is None:
        known = pluralize(score.decisions, "decision")
        few = f"calibration: {known} with an outcome, {CALIBRATION_MIN} are needed"
        return "\n".join([*lines, few])
    decisions = pluralize(score.decisions, "decision")
    lines += [
        f"calibration: Brier score {score.brier_score:.3f} over {decisions}, mean gap {score.calibration_gap:.3f}"
    ]
    for part in score.curve:
        span = f"{part.low:.1f}-{part.high:.1f}"
        lines += [
            f"  {span}: said {part.mean_confidence:.2f}, right {part.accuracy:.2f} ({part.count})"
        ]
    return "\n".join(lines)
