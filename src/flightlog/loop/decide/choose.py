"""Choose the next task and score the alternatives.

Tasks are chosen by dependencies, phase gates, priority and the plan's order. Base scores, risks
and weights are those of the source document's runtime. Confidence has five parts; failures and
the task's own report lower it, and the calibration of earlier sessions corrects it.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from flightlog.loop import events
from flightlog.loop.decide import gates
from flightlog.loop.decide.gates import find_blocking_gate
from flightlog.loop.plan.schema import Plan, Task
from flightlog.loop.state import LoopState, TaskState
from flightlog.model.text import pluralize

BASE = {"execute": 0.7, "retry": 0.6, "delegate": 0.5, "wait": 0.4, "skip": 0.3, "escalate": 0.2}
PARTS = {"clarity": 0.3, "resource": 0.2, "dependency": 0.2, "permission": 0.15, "history": 0.15}
_PERMISSION = {"elevated": 0.7, "api_keys": 0.3}
_PER_FAILURE = 0.05  # confidence lost with each failure
_RESOURCE_LOW, _DEPENDENCY_HIGH, _RISK_LOW = 0.3, 0.5, 0.2


class DecisionScores(NamedTuple):
    """The scores, risks and confidence behind one decision."""

    action: str
    confidence: float
    raw_confidence: float
    scores: dict[str, float]
    risks: dict[str, float]
    rationale: str


def score_actions(state: LoopState, plan: Plan, task: Task) -> DecisionScores:
    """Score the actions that are possible for `task` now."""
    at = state.task_state(task.task_id)
    risks = _assess_risks(state, plan, task, at)
    start = "retry" if at.failures else "execute"
    actions = [start, *(["delegate"] if task.delegate else []), "wait", "skip", "escalate"]
    scores = {action: _score_action(action, risks, state, at) for action in actions}
    raw = _estimate_confidence(state, task, at, risks)
    confidence = calibrate_confidence(raw, state.calibration)
    best = max(scores, key=lambda action: (scores[action], -list(BASE).index(action)))
    rationale = _explain_choice(task, at, risks, best)
    return DecisionScores(best, confidence, raw, scores, risks, rationale)


def calibrate_confidence(raw: float, table: tuple[tuple[float, float], ...]) -> float:
    """Correct a confidence by linear interpolation in the calibration table."""
    if not table:
        return round(raw, 4)
    points = [(0.0, table[0][1]), *table, (1.0, table[-1][1])]
    for (left, low), (right, high) in pairwise(points):
        if left <= raw <= right:
            share = (raw - left) / (right - left) if right > left else 0.0
            return round(low + share * (high - low), 4)
    return round(raw, 4)


def _assess_risks(state: LoopState, plan: Plan, task: Task, at: TaskState) -> dict[str, float]:
    existing = {name for other in state.tasks.values() for name in other.artifacts}
    planned = {name for other in plan.tasks for name in other.output_artifacts}
    missing = [name for name in task.input_artifacts if name in planned and name not in existing]
    missing += [name for name in task.context_variables if name not in state.context]
    inputs = len(task.input_artifacts) + len(task.context_variables)
    limit = task.timeout_seconds or state.config.timeout_seconds
    return {
        "execution": min(0.2 * at.failures, 1.0),
        "resource": _budget_share(state),
        "dependency": len(missing) / inputs if inputs else 0.0,
        "permission": max((_PERMISSION[need] for need in task.needs), default=0.0),
        "time": min(max((task.estimated_effort - limit) / limit, 0.0), 1.0),
    }


def _budget_share(state: LoopState) -> float:
    """Return the used share of the tightest budget."""
    limits, totals = state.budgets, state.totals
    pairs = (
        (state.iterations, state.config.max_iterations),
        (totals.cost_usd, limits.usd),
        (totals.total_tokens, limits.tokens),
        (totals.calls, limits.calls),
    )
    return min(max((used / limit for used, limit in pairs if limit), default=0.0), 1.0)


def _score_action(action: str, risks: dict[str, float], state: LoopState, at: TaskState) -> float:
    mean = sum(risks.values()) / len(risks)
    score = BASE[action] + (state.config.risk_tolerance - mean) * 0.3
    if action in {"execute", "retry"}:
        score += 0.1 if risks["resource"] < _RESOURCE_LOW else 0.0
        score -= 0.2 if risks["dependency"] > _DEPENDENCY_HIGH else 0.0
    if action == "delegate":
        score += 0.2 + 0.1 * max(at.failures - 1, 0)
    if action == "skip":
        score += 0.1 if mean < _RISK_LOW else 0.0
    if action == "retry":
        score -= 0.05 * at.failures
    return round(min(max(score, 0.0), 1.0), 4)


def _estimate_confidence(
    state: LoopState, task: Task, at: TaskState, risks: dict[str, float]
) -> float:
    # Without an agent the exit code is a check, too.
    checked = bool(task.verify or task.output_artifacts or task.run.agent is None)
    clarity = 0.5 + 0.3 * checked + 0.2 * bool(task.acceptance_criteria)
    parts = {
        "clarity": min(clarity + 0.1 * bool(task.description), 1.0),
        "resource": 1.0 - risks["resource"],
        "dependency": 1.0 - risks["dependency"],
        "permission": 1.0 - risks["permission"],
        "history": state.history,
    }
    total = sum(PARTS[name] * value for name, value in parts.items()) - _PER_FAILURE * at.failures
    reported = at.reported_confidence if at.reported_confidence is not None else 1.0
    return round(min(max(min(total, reported), 0.0), 1.0), 4)


def _explain_choice(task: Task, at: TaskState, risks: dict[str, float], action: str) -> str:
    worst = max(risks, key=lambda name: risks[name])
    risk = (
        "low risk" if risks[worst] < _RISK_LOW else f"highest risk is {worst} at {risks[worst]:.2f}"
    )
    count = len(task.dependencies)
    met = f"all {count} dependencies met" if count else "no dependencies"
    met = "its dependency is met" if count == 1 else met
    before = f", {pluralize(at.failures, 'failure')} before" if at.failures else ""
    return f"{action}: {risk}, {met}{before}"


def choose_next(state: LoopState, plan: Plan, now: float) -> Sequence[events.Event] | float:
    """Return the events that start the next task or end the session, or the time to wait for."""
    ready = [task for task in plan.tasks if _is_ready(state, plan, task)]
    due = [task for task in ready if state.task_state(task.task_id).retry_at <= now]
    # A task in progress comes before any new one.
    begun = [task for task in due if state.task_state(task.task_id).status == "in_progress"]
    if due:
        task = begun[0] if begun else max(due, key=lambda task: task.priority_score)
        return _decide_task_events(state, plan, task)
    if ready:
        return min(state.task_state(task.task_id).retry_at for task in ready)
    return _end_session_events(state, plan)


def _task_key(state: LoopState, task: Task) -> str:
    """Return the key of a task's effects: the same for all attempts until a person wants it redone."""
    name = f"{state.marker}/{state.session_id}/{task.task_id}"
    if redo := state.task_state(task.task_id).redo_count:
        name += f"/{redo}"
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def has_ready_task(state: LoopState, plan: Plan) -> bool:
    """Return whether a task can start, now or after a wait."""
    return any(_is_ready(state, plan, task) for task in plan.tasks)


def _is_ready(state: LoopState, plan: Plan, task: Task) -> bool:
    at = state.task_state(task.task_id)
    if at.status not in {"pending", "in_progress"} or at.stage != "idle":
        return False
    met = all(state.task_state(name).status == "completed" for name in task.dependencies)
    return met and (
        at.status == "in_progress" or find_blocking_gate(state, plan, task.phase) is None
    )


def _decide_task_events(state: LoopState, plan: Plan, task: Task) -> Sequence[events.Event]:
    at = state.task_state(task.task_id)
    scores = score_actions(state, plan, task)
    rationale = scores.rationale
    if at.is_approved:
        approved = scores._replace(rationale=f"{rationale}; approved by a person")
        return _start_task_events(state, task, approved)
    if at.mode == "diagnose":
        why = f"diagnosis: the same failure {pluralize(at.same_error_count, 'time')}"
        return _start_task_events(state, task, scores._replace(rationale=why))
    label = f"{task.task_id} {task.name}"
    if gates.should_ask(state, "always") and not at.attempt:
        why = f"{rationale}; the session asks before every task"
        question = gates.make_question(state, "always", task.task_id, f"{label}: do it?")
        return [_make_decision(task, scores, "escalate", why), question]
    if scores.confidence >= state.config.confidence_threshold:
        return _start_task_events(state, task, scores)
    low = f"confidence {scores.confidence:.2f} is below {state.config.confidence_threshold:g}"
    if gates.should_ask(state, "confidence"):
        decision = _make_decision(task, scores, "escalate", f"{rationale}; {low}")
        text = f"{label}: {low}. Do it?"
        return [decision, gates.make_question(state, "confidence", task.task_id, text)]
    decision = _make_decision(task, scores, "wait", f"{rationale}; {low}; deferred without asking")
    return [decision, *gates.safe_choice(state, "confidence", task)]


def _start_task_events(
    state: LoopState, task: Task, scores: DecisionScores
) -> Sequence[events.Event]:
    at = state.task_state(task.task_id)
    action = "retry" if at.failures else "execute"
    mode: Literal["work", "diagnose", "delegate"] = "work"
    if at.mode == "diagnose":
        mode = "diagnose"
    elif "delegate" in (scores.action, at.mode):
        mode = action = "delegate"
    decision = _make_decision(task, scores, action, scores.rationale)
    attempt = at.attempt + 1
    return [decision, events.TaskStarted(task.task_id, attempt, mode, _task_key(state, task))]


def _make_decision(
    task: Task, scores: DecisionScores, action: str, rationale: str
) -> events.DecisionMade:
    others = [pair for pair in scores.scores.items() if pair[0] != action]
    best = tuple(sorted(others, key=lambda pair: -pair[1])[:3])
    confidence = (scores.confidence, scores.raw_confidence)
    return events.DecisionMade(task.task_id, action, *confidence, rationale, best, scores.risks)


def _end_session_events(state: LoopState, plan: Plan) -> Sequence[events.Event]:
    """End or pause a session in which no task can start.

    It is completed only if every task is completed and every gate passed.
    """
    by_status: dict[str, list[str]] = {}
    for task in plan.tasks:
        by_status.setdefault(state.task_state(task.task_id).status, []).append(task.task_id)
    completed = len(by_status.get("completed", [])) == len(plan.tasks)
    gate = find_blocking_gate(state, plan, None)
    if gate and (completed or _waits_only_for_gate(state, plan)):
        return _blocked_gate_events(state, gate.name)
    if completed:
        return [events.LoopEnded("completed", describe_completion(plan))]
    deferred = by_status.get("deferred", [])
    if deferred and "failed" not in by_status:
        verb = "waits" if len(deferred) == 1 else "wait"
        why = f"{_join_names(deferred)} {verb} for a person: confidence is too low"
        return [events.LoopPaused(why)]
    by_status.pop("completed", None)
    parts = [f"{status}: {_join_names(names)}" for status, names in by_status.items()]
    return [events.LoopEnded("error", "; ".join(parts))]


def describe_completion(plan: Plan) -> str:
    """Return how many tasks were completed; only those with a verifier were verified."""
    checked, count = sum(task.has_verifier for task in plan.tasks), len(plan.tasks)
    every = "the only task was" if count == 1 else f"all {count} tasks were"
    some = f", {checked} of them verified" if checked else ", none verified"
    return f"{every} verified" if checked == count else f"{every} completed{some}"


def _waits_only_for_gate(state: LoopState, plan: Plan) -> bool:
    """Return whether a gate is all that a pending task waits for."""
    completed = {name for name, task in state.tasks.items() if task.status == "completed"}
    pending = [task for task in plan.tasks if state.task_state(task.task_id).status == "pending"]
    return any(completed.issuperset(task.dependencies) for task in pending)


def _blocked_gate_events(state: LoopState, name: str) -> Sequence[events.Event]:
    gate = state.gates.get(name)
    unknown = gate is None or gate.passed is None
    result = "is not evaluated: its metric was not reported" if unknown else "failed"
    if gates.should_ask(state, "gate"):
        text = f"The gate «{name}» {result}. Accept it?"
        return [gates.make_question(state, "gate", name, text)]
    return [events.LoopPaused(f"the gate «{name}» {result}")]


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
