"""A session gone through once, every figure kept with the events it comes from."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply
from flightlog.loop.core.state import State
from flightlog.loop.look.calibration import Pair, pairs
from flightlog.loop.look.session import Told


@dataclass
class TaskAccount:
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
class Account:
    """A whole session, by event numbers."""

    state: State = field(default_factory=State)
    tasks: dict[str, TaskAccount] = field(default_factory=dict)
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
    pairs: list[Pair] = field(default_factory=list)


def account(told: Iterable[Told]) -> Account:
    """Go through a session."""
    whole = Account()
    kept = []
    for each in told:
        kept.append(each)
        apply(whole.state, each.at, each.event)
        whole.first, whole.last = whole.first or each.seq, each.seq
        whole.kinds[str(each.event.__struct_config__.tag)] += 1
        _take(whole, each.seq, each.event)
    whole.pairs = pairs(kept)
    return whole


def _take(whole: Account, seq: int, event: e.Event) -> None:
    match event:
        case e.SessionEnded() | e.Paused() | e.Stopped():
            whole.ending = (seq, event.why)
        case e.Resumed():
            whole.ending = None
        case e.RunnerTook():
            whole.runners.append(seq)
        case e.BreakerMoved(after="open"):
            whole.trips.append((seq, event.condition, 0))
        case e.BreakerMoved(after="closed"):
            whole.trips = [(at, why, closed or seq) for at, why, closed in whole.trips]
        case e.QuestionAsked():
            whole.questions.append((seq, event.text, "", "", 0))
        case e.QuestionAnswered() if whole.questions:
            at, text, *_ = whole.questions[-1]
            whole.questions[-1] = (at, text, event.answer, event.by, seq)
        case e.GateChecked():
            whole.gates.append((seq, event.name, event.value, event.passed))
        case _:
            _take_more(whole, seq, event)


def _take_more(whole: Account, seq: int, event: e.Event) -> None:
    match event:
        case e.MilestoneReached():
            whole.milestones.append((seq, event.name))
        case e.Alerted():
            whole.alerts.append((seq, event.condition, event.why))
        case e.Waited():
            whole.waits.append((seq, event.why))
        case e.TaskStarted() | e.AttemptEnded() | e.Verified() | e.TaskEnded() | e.Recovering() | e.UsageNoted():
            _take_task(whole.tasks.setdefault(event.task, TaskAccount()), seq, event)
        case e.Reported(what="artifact"):
            whole.tasks.setdefault(event.task, TaskAccount()).artifacts[event.name] = seq
        case _:
            pass


def _take_task(
    task: TaskAccount,
    seq: int,
    event: e.TaskStarted | e.AttemptEnded | e.Verified | e.TaskEnded | e.Recovering | e.UsageNoted,
) -> None:
    match event:
        case e.TaskStarted():
            task.started.append(seq)
        case e.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
            task.failures.append((seq, event.error_type or event.result, event.error_message))
            task.wasted_s += event.duration_s
        case e.Verified() if event.passed:
            task.verified.append(seq)
        case e.Verified():
            task.failures.append((seq, "validation", event.error_message))
        case e.TaskEnded():
            task.ended = (seq, event.result, event.duration_s, event.why)
        case e.Recovering():
            task.remedies.append((seq, event.action, event.why))
        case e.UsageNoted():
            task.calls += event.calls
            task.usd += event.usd or 0.0
        case _:
            pass
