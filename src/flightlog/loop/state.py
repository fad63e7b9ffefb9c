"""The folded state of a loop session.

`decide.fold.apply_event` applies one event. The size of a state is bounded by the plan and by the
tasks' reports, not by the number of events.
"""

from typing import Any

from msgspec import Struct, field

from flightlog.loop.events import QuestionAsked, TaskReported
from flightlog.loop.plan.schema import Budgets, LoopConfig

HOUR_S = 3600.0
RECENT = 10  # attempts and confidences that the breaker's rates look at
TIMELINE_MAX = 400  # entries; a night has some dozens
FILES_MAX = 200  # changed files of one task


FEATURE = {
    "feature_id": "", "name": "", "category": "unknown", "directory": "", "purpose": "", "key_files": [],
    "dependencies": [], "status": "discovered", "documented": False, "challenges_generated": False,
    "assumptions_count": 0,
}  # fmt: skip
CONTEXT: dict[str, Any] = {
    "features_discovered": [], "features_documented": [], "assumptions_identified": 0, "challenges_generated": [],
    "validations_planned": [], "validations_executed": [],
}  # fmt: skip
KINDS = ("feature", "metric", "artifact", "context", "confidence", "effect", "doc")
LIST_MAX = 10_000  # items of a list in the context, which every checkpoint contains


class TaskState(Struct):
    """State of a task.

    `stage`: idle, running, cut (by a kill), ran (verify next), failed (recover next), right.
    `active_s` is the time in which something ran for it.
    """

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
    snapshot: str = ""  # the work tree before the first run
    run_snapshot: str = ""  # the work tree before the current run
    run_started_at: float | None = None  # None while nothing runs
    active_s: float = 0.0
    cut_count: int = 0
    cut_s: float = 0.0  # how long the run took that a kill ended
    questions_asked: int = 0
    is_unfinished: bool = False  # the last run was interrupted, and the agent does not know it
    redo_count: int = 0
    cost_usd: float = 0.0
    session_tokens: int = 0  # on record for the agent's current session
    session_usd: float = 0.0
    calls: int = 0
    unpriced_calls: int = 0
    last_message: str = ""
    changes: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    commit: str | None = None  # None: not tried
    reports: dict[str, int] = field(default_factory=dict)
    question: str = ""  # the agent's own question, until it is answered
    answer: str = ""  # redacted; an agent gets the person's own words
    answer_id: str = ""  # the question that it answers
    denied_tools: list[str] = field(default_factory=list)
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
    question: OpenQuestion | None = None  # set if no person answered it


class TimelineEntry(Struct):
    """Something that happened to the session as a whole."""

    at: float
    kind: str  # start, crash, resume, wait, question, answer, pause, breaker, end
    text: str


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
    wait_reason: str = ""
    names: dict[str, str] = field(default_factory=dict)
    phase: int | None = None
    allowed_tools: list[str] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
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
        """Number of completed tasks."""
        return sum(task.status == "completed" for task in self.tasks.values())


def add_counts(one: int | None, other: int | None) -> int | None:
    """Add two counts of lines; None, of a binary file, makes the sum None."""
    return None if one is None or other is None else one + other


def apply_report(state: LoopState, event: TaskReported) -> None:
    """Apply one line that a task reported."""
    task = state.ensure_task(event.task)
    task.reports[event.report_type] = task.reports.get(event.report_type, 0) + 1
    match event.report_type:
        case "feature" if isinstance(event.value, dict):
            before = state.features.get(event.name, FEATURE)
            state.features[event.name] = {**before, **event.value, "feature_id": event.name}
        case "metric" if isinstance(event.value, int | float):
            state.metrics[event.name] = float(event.value)
        case "artifact" if event.name not in task.artifacts:
            task.artifacts.append(event.name)
        case "context" if isinstance(event.value, dict):
            _merge_context(state, event.value)
        case "confidence" if isinstance(event.value, int | float):
            task.reported_confidence = min(max(float(event.value), 0.0), 1.0)
        case "effect" if event.name not in task.effects:
            task.effects.append(event.name)
        case "doc" if isinstance(event.value, dict):
            state.docs = [document for document in state.docs if document.get("path") != event.name]
            state.docs.append({**event.value, "path": event.name, "task_id": event.task})


def _merge_context(state: LoopState, variables: dict[str, Any]) -> None:
    """Add new items to lists, and replace other variables."""
    for name, value in variables.items():
        old = state.context.get(name, CONTEXT.get(name))
        if isinstance(old, list) and isinstance(value, list):
            state.context[name] = [*old, *(item for item in value if item not in old)][:LIST_MAX]
        else:
            state.context[name] = value


def metric_value(state: LoopState, name: str) -> float | None:
    """Return a reported metric, or the value or list length of a context variable, or None."""
    if name in state.metrics:
        return state.metrics[name]
    value = state.context.get(name)
    if isinstance(value, list):
        return float(len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
