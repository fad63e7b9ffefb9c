"""What a session's events add up to, as one value that can be kept and taken up again.

`apply` takes one event into account; folding live and folding at the end give the same.
Everything here is bounded by the plan and by what tasks reported, never by how many events there were.
"""

from typing import Any

from msgspec import Struct, field

from flightlog.loop.events import QuestionAsked
from flightlog.loop.plan.schema import Budgets, LoopConfig

HOUR_S = 3600.0
RECENT = 10


class TaskState(Struct):
    """Where a task stands. `stage`: idle, running, ran (to be verified), failed (to be recovered), right."""

    status: str = "pending"  # pending, in_progress, completed, failed, skipped, deferred
    stage: str = "idle"
    mode: str = "work"
    attempt: int = 0
    failures: int = 0
    rounds: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    duration_s: float | None = None
    result: str | None = None
    artifacts: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)
    key: str = ""
    agent_session: str = ""
    error_type: str = ""
    error_message: str = ""
    signature: str = ""
    severity: str = ""
    same: int = 0
    diagnosed: bool = False
    verify_failed: bool = False
    exit_ready: bool = False
    approved: bool = False
    diagnosis: str = ""
    said_confidence: float | None = None
    retry_at: float = 0.0
    why: str = ""


class BreakerState(Struct):
    """The breaker and the counters it looks at; they begin anew when it closes."""

    state: str = "closed"
    condition: str = ""
    action: str = ""
    since: float = 0.0
    trips: int = 0
    probes: int = 0
    recent: list[bool] = field(default_factory=list)
    consecutive: int = 0
    signature: str = ""
    same: int = 0
    idle: int = 0
    denials: int = 0
    confidences: list[float] = field(default_factory=list)
    verifies: int = 0
    verify_failures: int = 0
    probed: bool | None = None
    asked: bool = False


class OpenQuestion(Struct):
    """A question that waits for its answer."""

    asked: QuestionAsked
    at: float


class PendingAnswer(Struct):
    """An answer that is still to be carried out."""

    about: str
    task: str
    answer: str
    by: str


class GateState(Struct):
    """What a gate said when it was last looked at."""

    value: float | None
    passed: bool | None
    accepted: bool = False


class LoopTotals(Struct):
    """What the session spent and suffered."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    errors: int = 0
    attempts: int = 0
    successes: int = 0
    help_requests: int = 0
    human: int = 0
    decisions: int = 0
    events: int = 0
    busy_s: float = 0.0


class LoopState(Struct):
    """A whole session."""

    session_id: str = ""
    session_name: str = ""
    plan: str = ""
    plan_digest: str = ""
    tasks_total: int = 0
    project: str = ""
    mark: str = ""
    status: str = "new"  # new, in_progress, paused, completed, error
    why: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    last_at: float = 0.0
    rested_s: float = 0.0
    resting_since: float | None = None
    epoch: int = 0
    config: LoopConfig = LoopConfig()
    budgets: Budgets = Budgets()
    autonomous: bool = False
    agreed: bool = False
    tasks: dict[str, TaskState] = field(default_factory=dict)
    current: str = ""
    iterations: int = 0
    breaker: BreakerState = field(default_factory=BreakerState)
    question: OpenQuestion | None = None
    verdict: PendingAnswer | None = None
    asked: int = 0
    reviewed: list[str] = field(default_factory=list)
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
    calls_at: list[float] = field(default_factory=list)
    wait_until: float = 0.0
    confidence: float | None = None
    totals: LoopTotals = field(default_factory=LoopTotals)

    def task_state(self, task_id: str) -> TaskState:
        """Return where a task stands; nothing has happened to one that was not met."""
        return self.tasks.get(task_id) or TaskState()

    def ensure_task(self, task_id: str) -> TaskState:
        """Return where a task stands, to be changed by the fold."""
        return self.tasks.setdefault(task_id, TaskState())

    @property
    def completed_count(self) -> int:
        """How many tasks are completed and verified."""
        return sum(task.status == "completed" for task in self.tasks.values())
