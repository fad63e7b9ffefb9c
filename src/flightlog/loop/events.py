"""Events of a loop session's `journal.jsonl`.

`decide.fold` folds them into a `LoopState`. Times are in the journal's header; durations are
seconds. Foreign text is redacted before it becomes part of an event.
"""

from typing import Any, Literal

from msgspec import Struct

from flightlog.loop.plan.schema import Budgets, LoopConfig

Result = Literal["success", "failure", "timeout", "interrupted", "limited", "budget", "cut"]


class TaskAttemptEvent(Struct, frozen=True, tag_field="kind", tag="attempt"):
    """Base of the events of one attempt at a task."""

    task: str
    attempt: int


class LoopStarted(Struct, frozen=True, tag_field="kind", tag="session_start"):
    """A session begins, with everything that influences its decisions apart from the plan."""

    session_id: str
    session_name: str
    plan: str
    plan_digest: str
    tasks_total: int
    config: LoopConfig
    budgets: Budgets
    is_autonomous: bool = False
    context: dict[str, Any] = {}
    calibration: tuple[tuple[float, float], ...] = ()
    project: str = ""
    marker: str = ""
    names: dict[str, str] = {}
    phase: int | None = None
    metrics: dict[str, float] = {}


class RunnerAcquired(Struct, frozen=True, tag_field="kind", tag="runner_took"):
    """A runner takes the session; runners with a lower epoch may not write any more.

    `last_alive_at` is when the runner before it was last seen at work, 0 if unknown.
    """

    runner: str
    epoch: int
    is_resumed: bool = False
    last_alive_at: float = 0.0


class DecisionMade(Struct, frozen=True, tag_field="kind", tag="decision"):
    """A decision about a task, its rationale and the alternatives."""

    task: str
    action: str
    confidence: float
    raw_confidence: float
    rationale: str
    alternatives: tuple[tuple[str, float], ...] = ()
    risks: dict[str, float] = {}
    decision_type: str = "action_selection"


class TaskStarted(TaskAttemptEvent, frozen=True, tag="task_start"):
    """An attempt begins; `effect_id` is the same for all attempts and makes effects idempotent."""

    mode: Literal["work", "diagnose", "delegate"]
    effect_id: str


class AttemptRunStarted(TaskAttemptEvent, frozen=True, tag="run_start"):
    """The process of an attempt starts; after an interruption the same attempt starts again.

    `snapshot` is the work tree before it. `is_resumed` says that the agent continues its session.
    """

    snapshot: str = ""
    agent_session: str = ""
    is_resumed: bool = False


class UsageRecorded(TaskAttemptEvent, frozen=True, tag="usage"):
    """One response of a model; `cost_usd` is None if its price is unknown."""

    message_id: str
    model: str
    total_tokens: int
    cost_usd: float | None
    calls: int = 1


class TaskReported(TaskAttemptEvent, frozen=True, tag="report"):
    """One line a task wrote to `$FLIGHTLOG_REPORT`."""

    report_type: str
    name: str = ""
    value: Any = None


class AttemptEnded(TaskAttemptEvent, frozen=True, tag="attempt_end"):
    """An attempt ended; the verify commands decide whether its result is right.

    `cut` means that its runner was killed; the next runner records it. `question` is what the
    agent asked, `changes` are changed files with the lines added and removed.
    """

    result: Result
    duration_s: float
    exit_code: int | None = None
    error_type: str = ""
    error_message: str = ""
    signature: str = ""
    severity: str = ""
    permission_denials: int = 0
    made_progress: bool | None = None
    asked_question: bool = False
    exit_signal: bool = False
    indicators: tuple[str, ...] = ()
    limit_s: float | None = None
    agent_session: str = ""
    diff: str = ""
    last_message: str = ""
    question: str = ""
    denied_tools: tuple[str, ...] = ()
    changes: tuple[tuple[str, int | None, int | None], ...] = ()


class TaskVerified(TaskAttemptEvent, frozen=True, tag="verify"):
    """Result of the verify commands with their exit codes; None means the tool is missing.

    `artifacts` are the declared output artifacts that exist.
    """

    passed: bool
    commands: tuple[tuple[str, int | None], ...] = ()
    missing_tools: tuple[str, ...] = ()
    error_message: str = ""
    duration_s: float = 0.0
    artifacts: tuple[str, ...] = ()


class TaskCommitted(Struct, frozen=True, tag_field="kind", tag="task_commit"):
    """The files of a verified task were committed; `commit` is "" if there was nothing to commit."""

    task: str
    commit: str = ""
    error_message: str = ""


class TaskEnded(Struct, frozen=True, tag_field="kind", tag="task_complete"):
    """A task ended; only `success`, which requires verification, counts as completed.

    `duration_s` is the time in which something ran; `counts` are its reports, by kind.
    """

    task: str
    result: Literal["success", "failure", "skipped", "deferred"]
    duration_s: float
    reason: str = ""
    counts: dict[str, int] = {}


class TaskReopened(Struct, frozen=True, tag_field="kind", tag="task_redo"):
    """A person wants an ended task done again, under a new key; or its files were restored."""

    task: str
    reason: str
    is_restored: bool = False


class RecoveryStarted(TaskAttemptEvent, frozen=True, tag="error_recovery"):
    """The action that follows a failure."""

    action: str
    reason: str
    wait_s: float = 0.0


class BreakerChanged(Struct, frozen=True, tag_field="kind", tag="breaker"):
    """The breaker changed its state."""

    from_state: str
    to_state: Literal["closed", "open", "half_open"]
    condition: str
    action: str = ""


class AlertRaised(Struct, frozen=True, tag_field="kind", tag="alert"):
    """A condition with `alert_and_continue` holds, or a condition could not be evaluated."""

    condition: str
    reason: str


class QuestionAsked(Struct, frozen=True, tag_field="kind", tag="question"):
    """A person is asked; `default_answer` is taken if none is given within `timeout_s`."""

    question_id: str
    trigger: str
    task: str
    text: str
    options: tuple[str, ...]
    default_answer: str
    timeout_s: float


class QuestionAnswered(Struct, frozen=True, tag_field="kind", tag="answer"):
    """The answer, by a person or by timeout."""

    question_id: str
    answer: str
    answered_by: Literal["person", "timeout"]


class GateChecked(Struct, frozen=True, tag_field="kind", tag="quality_gate"):
    """A gate was evaluated; `passed` is None if its metric is missing, which blocks."""

    name: str
    value: float | None
    passed: bool | None


class GateAccepted(Struct, frozen=True, tag_field="kind", tag="gate_accept"):
    """A person accepted a gate that did not pass."""

    name: str
    reason: str


class MilestoneReached(Struct, frozen=True, tag_field="kind", tag="milestone"):
    """A milestone was reached."""

    name: str


class WaitStarted(Struct, frozen=True, tag_field="kind", tag="waiting"):
    """The loop waits until a time."""

    until: float
    reason: str


class LoopPaused(Struct, frozen=True, tag_field="kind", tag="runtime_paused"):
    """The session is paused after a task; it can be resumed."""

    reason: str


class LoopStopped(Struct, frozen=True, tag_field="kind", tag="runtime_stopped"):
    """A person or a signal stopped the session during a task; it can be resumed."""

    reason: str
    signal: str = ""


class LoopResumed(Struct, frozen=True, tag_field="kind", tag="runtime_resumed"):
    """The session continues after a pause, a stop or an error, perhaps with other limits."""

    reason: str = ""
    budgets: Budgets | None = None
    max_iterations: int | None = None
    allowed_tools: tuple[str, ...] = ()


class LoopEnded(Struct, frozen=True, tag_field="kind", tag="execution_complete"):
    """The session is completed, or ended in error."""

    status: Literal["completed", "error"]
    reason: str


SessionEvent = LoopStarted | RunnerAcquired | LoopPaused | LoopStopped | LoopResumed | LoopEnded
RunEvent = TaskStarted | AttemptRunStarted | AttemptEnded | TaskVerified
TaskEvent = RunEvent | DecisionMade | TaskEnded | TaskReopened | TaskCommitted | RecoveryStarted
NoteEvent = (
    UsageRecorded | TaskReported | GateChecked | MilestoneReached | WaitStarted | AlertRaised
) | GateAccepted
Event = SessionEvent | TaskEvent | NoteEvent | BreakerChanged | QuestionAsked | QuestionAnswered
