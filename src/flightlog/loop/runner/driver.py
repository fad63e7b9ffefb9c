"""LoopDriver and the LoopEnvironment protocol.

The real one is `run.machine`; the simulator's is made up. Nothing in here does anything.

It knows neither files nor processes: a book to write in and a world to act on are given, so
the simulator drives with this very code.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, assert_never

from msgspec import Struct

from flightlog.loop import events
from flightlog.loop.decide import gates, recovery
from flightlog.loop.decide.decide import AppendEvents, RunTask, StopRunner, VerifyTask, WaitUntil, decide_effect
from flightlog.loop.events import Event
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import LoopState


class ControlRequest(Struct, frozen=True):
    """What somebody asks of a running loop: pause (after the task), stop (at once), or an answer."""

    what: str
    question: str = ""
    answer: str = ""
    why: str = ""


class TaskResult(NamedTuple):
    """How an attempt went; words are tails of what was said, not yet redacted."""

    result: str
    duration_s: float
    exit_code: int | None = None
    message: str = ""
    denials: int = 0
    progress: bool | None = None
    asked: bool = False
    exit_signal: bool = False
    indicators: tuple[str, ...] = ()
    limit_s: float | None = None
    agent_session: str = ""
    diff: str = ""
    said: str = ""


class VerifyResult(NamedTuple):
    """What the verify commands said; `interrupted` means that nothing is known."""

    passed: bool
    commands: tuple[tuple[str, int | None], ...]
    missing: tuple[str, ...]
    message: str
    duration_s: float
    interrupted: bool = False


class LoopEnvironment(Protocol):
    """Everything outside."""

    def now(self) -> float:
        """The time, in seconds since 1970."""

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Wait until then; come back early when there is a request."""

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """What was asked since the last call."""

    def run_attempt(self, effect: RunTask, state: LoopState, emit: Callable[[Event], None]) -> TaskResult:
        """Carry out an attempt to its end; `emit` writes down what happens on the way."""

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Run the verify commands."""


class EventLog(Protocol):
    """Where events are written; `state` is what they add up to."""

    state: LoopState

    def append(self, event: events.Event) -> None:
        """Write one event down and take it into account."""

    def refresh_output(self) -> None:
        """Bring what people see up to date: something long comes now."""


class LoopDriver:
    """Drives one session until there is nothing more to do."""

    def __init__(self, plan: Plan, book: EventLog, world: LoopEnvironment) -> None:
        """Take a plan, a book and a world."""
        self._plan = plan
        self._book = book
        self._world = world
        self._pausing = ""

    def run(self) -> LoopState:
        """Go on until the session is completed, in error, or rests."""
        while self.step():
            pass
        return self._book.state

    def step(self) -> bool:
        """Do one thing; say whether there is more."""
        state = self._book.state
        for request in self._world.read_requests(state):
            self._handle_request(request)
        if self._pausing and self._may_rest(state):
            self._append_events([events.LoopPaused(self._pausing)])
        effect = decide_effect(state, self._plan, self._world.now())
        match effect:
            case StopRunner():
                return False
            case AppendEvents():
                self._append_events(effect.events)
            case RunTask():
                self._book.refresh_output()
                self._run_attempt(effect)
            case VerifyTask():
                self._verify_task(effect)
            case WaitUntil():
                self._book.refresh_output()
                self._world.sleep_until(effect.until, state)
            case _:
                assert_never(effect)
        return True

    def _append_events(self, events: Iterable[events.Event]) -> None:
        for event in events:
            self._book.append(event)

    def _handle_request(self, request: ControlRequest) -> None:
        state = self._book.state
        if state.status != "in_progress":
            return
        match request.what:
            case "stop":
                self._append_events([events.LoopStopped(request.why or "a person stopped it")])
            case "pause":
                self._pausing = request.why or "a person paused it"
            case "answer":
                open_one = state.question
                wanted = request.question or (open_one.asked.question if open_one else "")
                if open_one and open_one.asked.question == wanted and request.answer in open_one.asked.options:
                    self._append_events([gates.make_answer_event(state, request.answer, person=True)])
            case _:
                pass

    def _may_rest(self, state: LoopState) -> bool:
        return state.status == "in_progress" and (not state.current or state.task_state(state.current).stage == "idle")

    def _run_attempt(self, effect: RunTask) -> None:
        ran = self._world.run_attempt(effect, self._book.state, self._book.append)
        self._book.append(make_attempt_event(effect, ran))

    def _verify_task(self, effect: VerifyTask) -> None:
        told = self._world.verify_task(effect, self._book.state)
        if told.interrupted:
            return  # the request that interrupted it is obeyed next; verification is made again
        event = events.TaskVerified(
            effect.task.task_id,
            effect.attempt,
            told.passed,
            told.commands,
            told.missing,
            told.message,
            told.duration_s,
        )
        self._book.append(event)


def make_attempt_event(effect: RunTask, ran: TaskResult) -> events.AttemptEnded:
    """Make the event of an attempt that came to its end."""
    failed = ran.result in {"failure", "timeout"}
    kind, severity = recovery.classify_error(ran.message, ran.exit_code, timed_out=ran.result == "timeout")
    return events.AttemptEnded(
        task=effect.task.task_id,
        attempt=effect.attempt,
        result=ran.result,  # type: ignore[arg-type]
        duration_s=round(ran.duration_s, 3),
        exit_code=ran.exit_code,
        error_type=kind if failed else "",
        error_message=ran.message if failed or ran.result == "limited" else "",
        signature=recovery.error_signature(ran.message) if failed else "",
        severity=severity if failed else "",
        denials=ran.denials,
        progress=ran.progress,
        asked=ran.asked,
        exit_signal=ran.exit_signal,
        indicators=ran.indicators,
        limit_s=ran.limit_s,
        agent_session=ran.agent_session,
        diff=ran.diff,
        said=ran.said,
    )
