"""The folded state of a loop session.

`decide.fold.apply_event` applies one event. The size of a state is bounded by the plan and by the
tasks' reports, not by the number of events.
"""

from typing import Any

from msgspec import Struct, field

from flightlog.loop.events import QuestionAsked
from flightlog.loop.plan.schema import Budgets, LoopConfig

HOUR_S = 3600.0
RECENT = 10  # attempts and confidences that the breaker's rates look at


class TaskState(Struct):
    """State of a task. `stage`: idle, running, ran (verify next), failed (recover next), right."""

    status: str = "pending"  # pending, in_progress, completed, failed, skipped, deferred
    stage: str = "idle"
    mode: str = "work"
    attempt: int = 0
    failures: int = 0
    round_count: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    duration_s: float | None = None
    result: str | None = None
    artifacts: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)
    effect_id: str = ""
    agent_session: str = ""
    error_type: str = ""
    error_message: str = ""
    signature: str = ""
    severity: str = ""
    same_error_count: int = 0
    is_diagnosed: bool = False
    verify_failed: bool = False
    exit_ready: bool = False
    is_approved: bool = False
    diagnosis: str = ""
    reported_confidence: float | None = None
    retry_at: float = 0.0
    reason: str = ""


class BreakerState(Struct):
    """The circuit breaker and its counters, which are reset when it closes."""

    state: str = "closed"
    condition: str = ""
    action: str = ""
    since: float = 0.0
    trips: int = 0
    probes: int = 0
    recent_results: list[bool] = field(default_factory=list)
    consecutive_failures: int = 0
    signature: str = ""
    same_error_count: int = 0
    no_progress_count: int = 0
    permission_denials: int = 0
    confidences: list[float] = field(default_factory=list)
    verify_count: int = 0
    verify_failures: int = 0
    probe_result: bool | None = None
    asked_question: bool = False


class OpenQuestion(Struct):
    """A question without an answer yet."""

    event: QuestionAsked
    asked_at: float


class PendingAnswer(Struct):
    """An answer that is not carried out yet."""

    trigger: str
    task: str
    answer: str
    answered_by: str


class GateState(Struct):
    """Result of a gate's last evaluation."""

    value: float | None
    passed: bool | None
    is_accepted: bool = False


class LoopTotals(Struct):
    """Totals of a session."""

    calls: int = 0
    total_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    errors: int = 0
    attempts: int = 0
    successes: int = 0
    help_requests: int = 0
    human_interventions: int = 0
    decisions: int = 0
    events: int = 0


class LoopState(Struct):
    """State of a session."""

    session_id: str = ""
    session_name: str = ""
    plan: str = ""
    plan_digest: str = ""
    tasks_total: int = 0
    project: str = ""
    marker: str = ""
    status: str = "new"  # new, in_progress, paused, completed, error
    reason: str = ""
    stop_signal: str = ""  # the signal that stopped the session, until it is resumed
    started_at: float | None = None
    ended_at: float | None = None
    last_at: float = 0.0
    rested_s: float = 0.0
    resting_since: float | None = None
    epoch: int = 0
    config: LoopConfig = LoopConfig()
    budgets: Budgets = Budgets()
    is_autonomous: bool = False
    is_start_approved: bool = False
    tasks: dict[str, TaskState] = field(default_factory=dict)
    current_task: str = ""
    iterations: int = 0
    breaker: BreakerState = field(default_factory=BreakerState)
    question: OpenQuestion | None = None
    verdict: PendingAnswer | None = None
    question_count: int = 0
    reviewed_points: list[str] = field(default_factory=list)
    gates: dict[str, GateState] = field(default_factory=dict)
    milestones: dict[str, float] = field(default_factory=dict)
    alerts: list[str] = field(default_factory=list)
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    docs: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    calibration: tuple[tuple[float, float], ...] = ()
    learning_rate: float = 0.1
    history: float = 0.7
    call_times: list[float] = field(default_factory=list)
    wait_until: float = 0.0
    confidence: float | None = None
    totals: LoopTotals = field(default_factory=LoopTotals)

    def task_state(self, task_id: str) -> TaskState:
        """Return the state of a task; an initial one if it has no events yet."""
        return self.tasks.get(task_id) or TaskState()

    def ensure_task(self, task_id: str) -> TaskState:
        """Return the state of a task for the fold to change."""
        return self.tasks.setdefault(task_id, TaskState())

    @property
    def completed_count(self) -> int:
        """Number of completed, and so verified, tasks."""
        return sum(task.status == "completed" for task in self.tasks.values())
