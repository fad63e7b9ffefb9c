"""Schema of a plan, and the order of its tasks.

Names are those of the source document and its templates. The published JSON Schema is generated
from these types.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Intervention = Literal["ask_first", "never", "always", "on_error", "on_low_confidence"]
OnFailure = Literal["retry", "skip", "escalate"]
Operator = Literal[">=", ">", "<=", "<", "==", "!="]
Action = Literal["pause_and_request_help", "pause_and_review", "alert_and_continue", "stop"]


class TaskRun(Struct, frozen=True, forbid_unknown_fields=True):
    """How a task is done: a command, a prompt for an agent, or a Python function."""

    command: str | tuple[str, ...] | None = None
    agent: str | None = None
    prompt: str = ""
    model: str = ""
    arguments: tuple[str, ...] = ()
    scenario: str = ""
    python: str | None = None
    repeat: bool = False
    checklist: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one kind of run is given."""
        if sum(kind is not None for kind in (self.command, self.agent, self.python)) != 1:
            raise ValueError("a run is one of command, agent, python")
        if self.agent is not None and not self.prompt:
            raise ValueError("an agent needs a prompt")
        if self.python is not None and ":" not in self.python:
            raise ValueError("python names a function as module:function")
        if self.repeat and self.agent is None:
            raise ValueError("only a prompt can be repeated until the agent says it is done")


class ErrorHandling(Struct, frozen=True, forbid_unknown_fields=True):
    """What follows when a task fails: retry, skip, or ask a person."""

    on_failure: OnFailure = "retry"
    fallback_strategy: str = ""


class Task(Struct, frozen=True, forbid_unknown_fields=True):
    """A task; it is completed when its run and every verify command succeeded."""

    task_id: str
    name: str
    run: TaskRun
    dependencies: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    phase: Count = 1
    description: str = ""
    acceptance_criteria: tuple[str, ...] = ()
    estimated_effort: Positive = 60.0
    priority_score: Share = 0.5
    input_artifacts: tuple[str, ...] = ()
    output_artifacts: tuple[str, ...] = ()
    context_variables: tuple[str, ...] = ()
    success_metrics: tuple[str, ...] = ()
    needs: tuple[Literal["elevated", "api_keys"], ...] = ()
    error_handling: ErrorHandling = ErrorHandling()
    delegate: TaskRun | None = None
    diagnose: str = ""
    max_retries: Count | None = None
    timeout_seconds: Positive | None = None


class Phase(Struct, frozen=True, forbid_unknown_fields=True):
    """A phase of the plan."""

    phase: Count
    name: str


class Milestone(Struct, frozen=True, forbid_unknown_fields=True):
    """A milestone, reached when these tasks, or all of a phase, are completed."""

    name: str
    tasks: tuple[str, ...] = ()
    phase: Count | None = None
    target: str | None = None


class GateConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric condition for the tasks of later phases or, without a phase, for the end."""

    name: str
    metric: str
    threshold: float
    operator: Operator = ">="
    phase: Count | None = None


class BreakerCondition(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition of the plan that opens the breaker."""

    when: str
    action: Action = "pause_and_request_help"


class BreakerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of the circuit breaker; 0 switches a rule off."""

    error_rate: Share = 0.5
    error_rate_over: Annotated[int, Meta(ge=1)] = 4
    failure_threshold: Count = 5
    no_progress: Count = 3
    same_error: Count = 5
    permission_denials: Count = 2
    low_confidence: Share = 0.3
    low_confidence_times: Count = 3
    recovery_timeout: Positive = 60.0
    half_open_max_calls: Annotated[int, Meta(ge=1)] = 3
    trips_max: Annotated[int, Meta(ge=1)] = 3
    conditions: tuple[BreakerCondition, ...] = ()


class Budgets(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for the whole session; None is no limit."""

    usd: Positive | None = None
    tokens: Positive | None = None
    calls: Annotated[int, Meta(ge=1)] | None = None
    calls_per_hour: Annotated[int, Meta(ge=1)] | None = None
    wall_time_seconds: Positive | None = None


class LoopConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The runtime's settings; the first four are the template's `ralph_runtime_config`."""

    max_iterations: Annotated[int, Meta(ge=1)] = 300
    confidence_threshold: Share = 0.7
    human_intervention: Intervention = "ask_first"
    learning_rate: Annotated[float, Meta(gt=0, le=0.5)] = 0.1
    risk_tolerance: Share = 0.5
    max_retries: Count = 3
    retry_base_seconds: Positive = 1.0
    retry_max_seconds: Positive = 60.0
    timeout_seconds: Positive = 900.0
    verify_timeout_seconds: Positive = 300.0
    answer_timeout_seconds: Positive = 900.0
    limit_wait_seconds: Positive = 300.0


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole plan."""

    plan: str
    tasks: tuple[Task, ...]
    description: str = ""
    phases: tuple[Phase, ...] = ()
    context_variables: dict[str, Any] = {}
    milestones: tuple[Milestone, ...] = ()
    quality_gates: tuple[GateConfig, ...] = ()
    circuit_breaker: BreakerConfig = BreakerConfig()
    budgets: Budgets = Budgets()
    review_points: tuple[str, ...] = ()
    config: LoopConfig = LoopConfig()

    def find_task(self, task_id: str) -> Task:
        """Return the task with this id."""
        return next(task for task in self.tasks if task.task_id == task_id)

    def phase_name(self, phase: int) -> str:
        """Return the name of a phase; the plan's name if it has none."""
        return next((item.name for item in self.phases if item.phase == phase), self.plan)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan."""
    schema = msgspec.json.schema(Plan)
    title = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "flightlog loop plan",
    }
    return {**title, **schema}


def order_tasks(plan: Plan) -> list[Task]:
    """Order tasks by dependencies, gates of phases, priority and position in the plan."""
    done: dict[str, Task] = {}
    left = list(plan.tasks)
    gated = sorted({gate.phase for gate in plan.quality_gates if gate.phase is not None})
    while left:
        behind = [phase for phase in gated if any(task.phase <= phase for task in left)]
        ready = [
            task
            for task in left
            if all(name in done for name in task.dependencies)
            and not any(task.phase > phase for phase in behind)
        ]
        best = max(ready or left, key=lambda task: task.priority_score)
        done[best.task_id] = best
        left.remove(best)
    return list(done.values())
