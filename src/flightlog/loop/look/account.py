"""A session gone through once, every figure kept with the events it comes from."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply_event
from flightlog.loop.core.state import LoopState
from flightlog.loop.look.calibration import ConfidenceOutcome, pair_outcomes
from flightlog.loop.look.session import LoopEvent


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


def _add_event(whole: LoopAccount, seq: int, event: e.Event) -> None:
    match event:
        case e.LoopEnded() | e.LoopPaused() | e.LoopStopped():
            whole.ending = (seq, event.why)
        case e.LoopResumed():
            whole.ending = None
        case e.RunnerAcquired():
            whole.runners.append(seq)
        case e.BreakerChanged(after="open"):
            whole.trips.append((seq, event.condition, 0))
        case e.BreakerChanged(after="closed"):
            whole.trips = [(at, why, closed or seq) for at, why, closed in whole.trips]
        case e.QuestionAsked():
            whole.questions.append((seq, event.text, "", "", 0))
        case e.QuestionAnswered() if whole.questions:
            at, text, *_ = whole.questions[-1]
            whole.questions[-1] = (at, text, event.answer, event.by, seq)
        case e.GateChecked():
            whole.gates.append((seq, event.name, event.value, event.passed))
        case _:
            _add_other_event(whole, seq, event)


def _add_other_event(whole: LoopAccount, seq: int, event: e.Event) -> None:
    match event:
        case e.MilestoneReached():
            whole.milestones.append((seq, event.name))
        case e.AlertRaised():
            whole.alerts.append((seq, event.condition, event.why))
        case e.WaitStarted():
            whole.waits.append((seq, event.why))
        case (
            e.TaskStarted()
            | e.AttemptEnded()
            | e.TaskVerified()
            | e.TaskEnded()
            | e.RecoveryStarted()
            | e.UsageRecorded()
        ):
            _add_task_event(whole.tasks.setdefault(event.task, TaskHistory()), seq, event)
        case e.TaskReported(what="artifact"):
            whole.tasks.setdefault(event.task, TaskHistory()).artifacts[event.name] = seq
        case _:
            pass


def _add_task_event(
    task: TaskHistory,
    seq: int,
    event: e.TaskStarted | e.AttemptEnded | e.TaskVerified | e.TaskEnded | e.RecoveryStarted | e.UsageRecorded,
) -> None:
    match event:
        case e.TaskStarted():
            task.started.append(seq)
        case e.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
            task.failures.append((seq, event.error_type or event.result, event.error_message))
            task.wasted_s += event.duration_s
        case e.TaskVerified() if event.passed:
            task.verified.append(seq)
        case e.TaskVerified():
            task.failures.append((seq, "validation", event.error_message))
        case e.TaskEnded():
            task.ended = (seq, event.result, event.duration_s, event.why)
        case e.RecoveryStarted():
            task.remedies.append((seq, event.action, event.why))
        case e.UsageRecorded():
            task.calls += event.calls
            task.usd += event.usd or 0.0
        case _:
            pass
