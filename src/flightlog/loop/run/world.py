"""What the driver needs of the world: time, processes, and what people ask of a running loop.

The real one is `run.machine`; the simulator's is made up. Nothing in here does anything.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from flightlog.loop.core.decide import RunTask, VerifyTask
from flightlog.loop.core.state import LoopState
from flightlog.loop.events import Event


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
