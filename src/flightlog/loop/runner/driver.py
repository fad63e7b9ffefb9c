"""`LoopDriver` carries out effects in a `LoopEnvironment` and appends events to an `EventLog`.

It uses no files or processes itself, so the simulator runs the same code: `executor.TaskExecutor`
is the real environment, `simulator.environment` the simulated one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, assert_never

from msgspec import Struct

from flightlog.loop import events
from flightlog.loop.decide import decide, gates, recovery
from flightlog.loop.events import Event
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import LoopState


class ControlRequest(Struct, frozen=True):
    """A request to a running loop: pause (after the task), stop (at once), or an answer."""

    action: str
    question_id: str = ""
    answer: str = ""
    reason: str = ""
    signal: str = ""


class TaskResult(NamedTuple):
    """Result of an attempt; `message` and `last_message` are the ends of its output."""

    result: str
    duration_s: float
    exit_code: int | None = None
    message: str = ""
    permission_denials: int = 0
    made_progress: bool | None = None
    exit_signal: bool = False
    indicators: tuple[str, ...] = ()
    limit_s: float | None = None
    agent_session: str = ""
    diff: str = ""
    last_message: str = ""
    question: str = ""
    denied_tools: tuple[str, ...] = ()
    changes: tuple[tuple[str, int | None, int | None], ...] = ()


class VerifyResult(NamedTuple):
    """Result of the verify commands; none if `interrupted`."""

    passed: bool
    commands: tuple[tuple[str, int | None], ...]
    missing_tools: tuple[str, ...]
    message: str
    duration_s: float
    artifacts: tuple[str, ...] = ()
    interrupted: bool = False


class LoopEnvironment(Protocol):
    """Clock, processes and people."""

    def now(self) -> float:
        """Return the time in seconds since 1970."""

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Wait until a time; return early if there is a request."""

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """Return the requests since the last call."""

    def run_attempt(
        self, effect: decide.RunTask, state: LoopState, emit: Callable[[Event], None]
    ) -> TaskResult:
        """Run an attempt to its end; `emit` appends events meanwhile, first a `AttemptRunStarted`."""

    def close_attempt(self, effect: decide.CloseAttempt, state: LoopState) -> TaskResult:
        """Return what is left of an attempt whose runner was killed."""

    def verify_task(self, effect: decide.VerifyTask, state: LoopState) -> VerifyResult:
        """Run the verify commands."""

    def commit_task(self, effect: decide.CommitTask, state: LoopState) -> events.TaskCommitted:
        """Commit the files that a task changed."""


class EventLog(Protocol):
    """Appends events and folds them into `state`."""

    state: LoopState

    def append(self, event: events.Event) -> None:
        """Append an event and apply it to `state`."""

    def refresh_output(self) -> None:
        """Bring the output files up to date before something slow."""


class LoopDriver:
    """Runs one session until it is no longer in progress."""

    def __init__(self, plan: Plan, log: EventLog, environment: LoopEnvironment) -> None:
        """Set up a driver for the session in `log`."""
        self._plan = plan
        self._log = log
        self._environment = environment
        self._pausing = ""

    def run(self) -> LoopState:
        """Run until the session is completed, in error or paused."""
        while self.step():
            pass
        return self._log.state

    def step(self) -> bool:  # noqa: C901 - one case per effect
        """Carry out one effect; return whether the session is still in progress."""
        log, environment = self._log, self._environment
        for request in environment.read_requests(log.state):
            self._handle_request(request)
        if self._pausing and self._may_rest(log.state):
            log.append(events.LoopPaused(self._pausing))
        effect = decide.decide_effect(log.state, self._plan, environment.now())
        match effect:
            case decide.StopRunner():
                return False
            case decide.AppendEvents():
                for event in effect.events:
                    log.append(event)
            case decide.RunTask():
                log.refresh_output()
                result = environment.run_attempt(effect, log.state, log.append)
                log.append(make_attempt_event(effect, result))
            case decide.CloseAttempt():
                left = environment.close_attempt(effect, log.state)
                log.append(
                    make_attempt_event(decide.RunTask(effect.task, effect.attempt, ""), left)
                )
            case decide.CommitTask():
                log.append(environment.commit_task(effect, log.state))
            case decide.VerifyTask():
                self._verify_task(effect)
            case decide.WaitUntil():
                log.refresh_output()
                environment.sleep_until(effect.until, log.state)
            case _:
                assert_never(effect)
        return True

    def _handle_request(self, request: ControlRequest) -> None:
        state = self._log.state
        if state.status != "in_progress":
            return
        if request.action == "stop":
            why = request.reason or "a person stopped it"
            self._log.append(events.LoopStopped(why, request.signal))
        elif request.action == "pause":
            self._pausing = request.reason or "a person paused it"
        elif request.action == "answer" and state.question:
            question = state.question.event
            is_open = request.question_id in {"", question.question_id}
            if is_open and gates.is_answer(question, request.answer):
                self._log.append(gates.make_answer_event(state, request.answer, person=True))

    def _may_rest(self, state: LoopState) -> bool:
        idle = not state.current_task or state.task_state(state.current_task).stage == "idle"
        return idle and state.status == "in_progress"

    def _verify_task(self, effect: decide.VerifyTask) -> None:
        result = self._environment.verify_task(effect, self._log.state)
        # The request that interrupts a verification is handled next; it runs again on resume.
        if not result.interrupted:
            self._log.append(events.TaskVerified(effect.task.task_id, effect.attempt, *result[:-1]))


def make_attempt_event(effect: decide.RunTask, ran: TaskResult) -> events.AttemptEnded:
    """Return the event for the result of an attempt."""
    failed = ran.result in {"failure", "timeout"}
    shared = ran._replace(duration_s=round(ran.duration_s, 3))._asdict()
    message = shared.pop("message")
    is_late = ran.result == "timeout"
    kind, severity = recovery.classify_error(message, ran.exit_code, timed_out=is_late)
    return events.AttemptEnded(
        task=effect.task.task_id,
        attempt=effect.attempt,
        error_type=kind if failed else "",
        error_message=message if failed or ran.result == "limited" else "",
        signature=recovery.error_signature(message) if failed else "",
        severity=severity if failed else "",
        asked_question=bool(ran.question),
        **shared,
    )
