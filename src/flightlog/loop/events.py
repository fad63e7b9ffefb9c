"""What can happen in a loop session: the closed union its `journal.jsonl` holds.

Facts only, each written once and never changed; what they add up to is `core.state`. Times
are in the journal's header; durations and deadlines are seconds. Words from outside were
redacted before they became part of an event.
"""

from typing import Any, Literal

from msgspec import Struct

from flightlog.loop.plan.schema import Budgets, LoopConfig

Result = Literal["success", "failure", "timeout", "interrupted", "limited", "budget"]


class LoopStarted(Struct, frozen=True, tag_field="kind", tag="session_start"):
    """A session begins; everything that decides how it goes is in here or in the plan beside it."""

    session_id: str
    session_name: str
    plan: str
    plan_digest: str
    tasks_total: int
    config: LoopConfig
    budgets: Budgets
    autonomous: bool = False
    context: dict[str, Any] = {}
    calibration: tuple[tuple[float, float], ...] = ()
    project: str = ""
    mark: str = ""


class RunnerAcquired(Struct, frozen=True, tag_field="kind", tag="runner_took"):
    """A runner holds the session from here on; one with a lower epoch is fenced."""

    runner: str
    epoch: int
    resumed: bool = False


class DecisionMade(Struct, frozen=True, tag_field="kind", tag="decision"):
    """What was decided about a task, why, and what else could have been."""

    task: str
    action: str
    confidence: float
    raw: float
    rationale: str
    alternatives: tuple[tuple[str, float], ...] = ()
    risks: dict[str, float] = {}
    decision_type: str = "action_selection"


class TaskStarted(Struct, frozen=True, tag_field="kind", tag="task_start"):
    """An attempt begins; `key` stays the same for all attempts, so that effects can be done once."""

    task: str
    attempt: int
    mode: Literal["work", "diagnose", "delegate"]
    key: str
    agent_session: str = ""


class UsageRecorded(Struct, frozen=True, tag_field="kind", tag="usage"):
    """One answer of a model; `usd` is None when its price is not known."""

    task: str
    attempt: int
    message: str
    model: str
    tokens: int
    usd: float | None
    calls: int = 1


class TaskReported(Struct, frozen=True, tag_field="kind", tag="report"):
    """One line a task wrote to `$FLIGHTLOG_REPORT`."""

    task: str
    attempt: int
    what: str
    name: str = ""
    value: Any = None


class AttemptEnded(Struct, frozen=True, tag_field="kind", tag="attempt_end"):
    """A run came to its end; whether it was right is for the verify commands to say."""

    task: str
    attempt: int
    result: Result
    duration_s: float
    exit_code: int | None = None
    error_type: str = ""
    error_message: str = ""
    signature: str = ""
    severity: str = ""
    denials: int = 0
    progress: bool | None = None
    asked: bool = False
    exit_signal: bool = False
    indicators: tuple[str, ...] = ()
    limit_s: float | None = None
    agent_session: str = ""
    diff: str = ""
    said: str = ""


class TaskVerified(Struct, frozen=True, tag_field="kind", tag="verify"):
    """What the verify commands said: each with its exit code; None is a tool that is not there."""

    task: str
    attempt: int
    passed: bool
    commands: tuple[tuple[str, int | None], ...] = ()
    missing: tuple[str, ...] = ()
    error_message: str = ""
    duration_s: float = 0.0


class TaskEnded(Struct, frozen=True, tag_field="kind", tag="task_complete"):
    """The end of a task; only `success` counts as completed, and only after verification."""

    task: str
    result: Literal["success", "failure", "skipped", "deferred"]
    duration_s: float
    why: str = ""


class RecoveryStarted(Struct, frozen=True, tag_field="kind", tag="error_recovery"):
    """What is done about a failure."""

    task: str
    attempt: int
    action: str
    why: str
    wait_s: float = 0.0


class BreakerChanged(Struct, frozen=True, tag_field="kind", tag="breaker"):
    """The breaker changed its state."""

    before: str
    after: Literal["closed", "open", "half_open"]
    condition: str
    action: str = ""


class AlertRaised(Struct, frozen=True, tag_field="kind", tag="alert"):
    """A condition that only asks to be told, or one that could not be evaluated."""

    condition: str
    why: str


class QuestionAsked(Struct, frozen=True, tag_field="kind", tag="question"):
    """A person is asked; after `timeout_s` without an answer `safe` is taken."""

    question: str
    about: str
    task: str
    text: str
    options: tuple[str, ...]
    safe: str
    timeout_s: float


class QuestionAnswered(Struct, frozen=True, tag_field="kind", tag="answer"):
    """An answer, and whether a person gave it."""

    question: str
    answer: str
    by: Literal["person", "timeout"]


class GateChecked(Struct, frozen=True, tag_field="kind", tag="quality_gate"):
    """A gate was looked at; `passed` is None when its metric is missing, and that blocks."""

    name: str
    value: float | None
    passed: bool | None


class MilestoneReached(Struct, frozen=True, tag_field="kind", tag="milestone"):
    """Something was reached."""

    name: str


class WaitStarted(Struct, frozen=True, tag_field="kind", tag="waiting"):
    """The loop waits for a time to come."""

    until: float
    why: str


class LoopPaused(Struct, frozen=True, tag_field="kind", tag="runtime_paused"):
    """The session rests; it can be resumed."""

    why: str


class LoopStopped(Struct, frozen=True, tag_field="kind", tag="runtime_stopped"):
    """A person or a signal stopped the session in the middle; it can be resumed."""

    why: str


class LoopResumed(Struct, frozen=True, tag_field="kind", tag="runtime_resumed"):
    """The session goes on after it rested."""

    why: str = ""
    budgets: Budgets | None = None


class LoopEnded(Struct, frozen=True, tag_field="kind", tag="execution_complete"):
    """Nothing more will happen: completed, or in error with the reason."""

    status: Literal["completed", "error"]
    why: str


Event = (
    LoopStarted
    | RunnerAcquired
    | DecisionMade
    | TaskStarted
    | UsageRecorded
    | TaskReported
    | AttemptEnded
    | TaskVerified
    | TaskEnded
    | RecoveryStarted
    | BreakerChanged
    | AlertRaised
    | QuestionAsked
    | QuestionAnswered
    | GateChecked
    | MilestoneReached
    | WaitStarted
    | LoopPaused
    | LoopStopped
    | LoopResumed
    | LoopEnded
)
