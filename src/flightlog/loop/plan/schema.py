"""Schema of a plan, and the order of its tasks.

Names are those of the source document and its templates. The published JSON Schema is generated
from these types.
"""

import heapq
from collections import Counter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from flightlog.model.errors import Invalid

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

    @property
    def has_verifier(self) -> bool:
        """Whether anything but the end of its run says that the task is done."""
        return bool(self.verify or self.output_artifacts or self.success_metrics)


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
    commit_per_task: bool = False


_DESCRIPTIONS = {
    "TaskRun": {
        "command": "A shell command, or a list of words.",
        "agent": "claude-code, or scripted.",
        "prompt": "The prompt; criteria, verify commands and the last failure are added.",
        "arguments": "Further arguments of the agent's own command.",
        "scenario": "Replies of the scripted agent, a YAML file.",
        "python": "A function as module:function; it may return a list of reports.",
        "repeat": "Send the prompt again until the agent ends with EXIT_SIGNAL: true and two of: "
        "STATUS: COMPLETE, TESTS_STATUS: PASSING, an unchanged tree, a checklist without open boxes.",
        "checklist": "A Markdown file; with `repeat`, no open box in it says that the work is done.",
    },
    "ErrorHandling": {
        "on_failure": "When retries are used up or useless: retry, skip, or escalate to a person.",
        "fallback_strategy": "What an agent should try instead; added to its prompt after a failure.",
    },
    "Task": {
        "verify": "Commands that must succeed; without them only the end of the run is known.",
        "dependencies": "Tasks that must be completed before.",
        "phase": "A number; gates of a phase hold back later phases, `run --phase N` runs one alone.",
        "output_artifacts": "Files that must exist afterwards; the report lists them.",
        "success_metrics": "Metrics that must have been reported.",
        "needs": "elevated or api_keys: lowers the confidence, so that a person is asked.",
        "delegate": "Another run, for when the first one fails alike twice or too often.",
        "diagnose": "A command that finds the cause after the same failure twice; without it an "
        "agent's task is diagnosed by the agent, without changes.",
        "max_retries": "Retries of this task; default: config.max_retries.",
        "estimated_effort": "Seconds; more than the time limit lowers the confidence.",
        "priority_score": "Tasks with a higher score come first.",
    },
    "LoopConfig": {
        "commit_per_task": "Commit the files of each verified task; hooks of git do not run.",
        "answer_timeout_seconds": "After it, a question gets its safe answer.",
        "limit_wait_seconds": "Wait after an API limit that does not say when it is reset.",
    },
}


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
    for kind, texts in _DESCRIPTIONS.items():
        for name, text in texts.items():
            schema["$defs"][kind]["properties"][name]["description"] = text
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": "flightlog loop plan", **schema}


def select_phase(plan: Plan, phase: int | None) -> Plan:
    """Return the part of the plan that is one phase; the whole plan for None.

    Dependencies on other phases are left out: the start of a phase checks them.
    """
    if phase is None:
        return plan
    own = {task.task_id for task in plan.tasks if task.phase == phase}
    if not own:
        hint = f"one of: {', '.join(map(str, sorted({task.phase for task in plan.tasks})))}"
        raise Invalid(f"the plan has no task of phase {phase}", hint=hint)
    is_last = phase == max(task.phase for task in plan.tasks)
    replace = msgspec.structs.replace

    def belongs(item: GateConfig | Milestone, tasks: tuple[str, ...] = ()) -> bool:
        whole = item.phase is None and not tasks and is_last
        return item.phase == phase or whole or (bool(tasks) and own.issuperset(tasks))

    return replace(
        plan,
        plan=plan.phase_name(phase),
        tasks=tuple(
            replace(task, dependencies=tuple(name for name in task.dependencies if name in own))
            for task in plan.tasks
            if task.task_id in own
        ),
        milestones=tuple(item for item in plan.milestones if belongs(item, item.tasks)),
        quality_gates=tuple(gate for gate in plan.quality_gates if belongs(gate)),
        review_points=tuple(name for name in plan.review_points if name in own),
    )


def order_tasks(plan: Plan) -> list[Task]:
    """Order tasks by dependencies, gates of phases, priority and position in the plan."""
    order = {task.task_id: (-task.priority_score, at) for at, task in enumerate(plan.tasks)}
    waiting = {task.task_id: len(set(task.dependencies)) for task in plan.tasks}
    followers: dict[str, list[Task]] = {task_id: [] for task_id in order}
    for task in plan.tasks:
        for name in set(task.dependencies):
            followers[name].append(task)
    gated = sorted({gate.phase for gate in plan.quality_gates if gate.phase is not None})
    left = Counter(task.phase for task in plan.tasks)
    ready = [(*order[task.task_id], task) for task in plan.tasks if not waiting[task.task_id]]
    later: list[tuple[float, int, Task]] = []
    done: list[Task] = []
    heapq.heapify(ready)
    while ready or later:
        # A gate holds back later phases while a task up to its phase is left.
        limit = next((gate for gate in gated if sum(left[n] for n in left if n <= gate)), None)
        if not ready:  # the tasks before the gate wait for tasks behind it
            ready, later = sorted(later), []
            limit = None
        item = heapq.heappop(ready)
        task = item[-1]
        if limit is not None and task.phase > limit:
            later.append(item)
            continue
        done.append(task)
        left[task.phase] -= 1
        for other in followers[task.task_id]:
            waiting[other.task_id] -= 1
            if not waiting[other.task_id]:
                heapq.heappush(ready, (*order[other.task_id], other))
        ready, later = (sorted([*ready, *later]), []) if later else (ready, later)
    return done
