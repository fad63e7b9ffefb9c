"""Weighing a task: scores of what could be done, the risks, and how sure we are.

Base scores, risks and weights are those of the source document's runtime. Confidence is made
of five parts, brought down by failures and by what the task itself said, and then read
through the calibration that earlier sessions left.
"""

from itertools import pairwise
from typing import NamedTuple

from flightlog.loop.core.state import LoopState, TaskState
from flightlog.loop.plan.schema import Plan, Task
from flightlog.model.text import pluralize

BASE = {"execute": 0.7, "retry": 0.6, "delegate": 0.5, "wait": 0.4, "skip": 0.3, "escalate": 0.2}
PARTS = {"clarity": 0.3, "resource": 0.2, "dependency": 0.2, "permission": 0.15, "history": 0.15}
_PERMISSION = {"elevated": 0.7, "api_keys": 0.3}
_PER_FAILURE = 0.05
_RESOURCE_LOW, _DEPENDENCY_HIGH, _RISK_LOW = 0.3, 0.5, 0.2


class DecisionScores(NamedTuple):
    """All that was weighed for one decision."""

    action: str
    confidence: float
    raw: float
    scores: dict[str, float]
    risks: dict[str, float]
    rationale: str


def score_actions(state: LoopState, plan: Plan, task: Task) -> DecisionScores:
    """Weigh what could be done about `task` now."""
    at = state.task_state(task.task_id)
    risks = _assess_risks(state, plan, task, at)
    scores = {action: _score_action(action, risks, state, at) for action in _available_actions(task, at)}
    raw = _estimate_confidence(state, task, at, risks)
    best = max(scores, key=lambda action: (scores[action], -list(BASE).index(action)))
    return DecisionScores(
        best, calibrate_confidence(raw, state.calibration), raw, scores, risks, _explain_choice(task, at, risks, best)
    )


def calibrate_confidence(raw: float, table: tuple[tuple[float, float], ...]) -> float:
    """What a confidence turned out to be worth in earlier sessions, straight lines between the points."""
    if not table:
        return round(raw, 4)
    points = [(0.0, table[0][1]), *table, (1.0, table[-1][1])]
    for (left, low), (right, high) in pairwise(points):
        if left <= raw <= right:
            share = (raw - left) / (right - left) if right > left else 0.0
            return round(low + share * (high - low), 4)
    return round(raw, 4)


def _available_actions(task: Task, at: TaskState) -> list[str]:
    again = "retry" if at.failures else "execute"
    return [again, *(["delegate"] if task.delegate else []), "wait", "skip", "escalate"]


def _assess_risks(state: LoopState, plan: Plan, task: Task, at: TaskState) -> dict[str, float]:
    known = {name for each in state.tasks.values() for name in each.artifacts}
    made = {name for each in plan.tasks for name in each.output_artifacts}
    missing = [name for name in task.input_artifacts if name in made and name not in known]
    missing += [name for name in task.context_variables if name not in state.context]
    wanted = len(task.input_artifacts) + len(task.context_variables)
    limit = task.timeout_seconds or state.config.timeout_seconds
    return {
        "execution": min(0.2 * at.failures, 1.0),
        "resource": _budget_share(state),
        "dependency": len(missing) / wanted if wanted else 0.0,
        "permission": max((_PERMISSION[need] for need in task.needs), default=0.0),
        "time": min(max((task.estimated_effort - limit) / limit, 0.0), 1.0),
    }


def _budget_share(state: LoopState) -> float:
    """How much of the tightest budget is used up."""
    limits, totals = state.budgets, state.totals
    pairs = (
        (state.iterations, state.config.max_iterations),
        (totals.usd, limits.usd),
        (totals.tokens, limits.tokens),
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


def _estimate_confidence(state: LoopState, task: Task, at: TaskState, risks: dict[str, float]) -> float:
    checked = task.verify or task.output_artifacts or task.run.agent is None  # an exit code is a check, too
    told = 0.5 + 0.3 * bool(checked) + 0.2 * bool(task.acceptance_criteria)
    parts = {
        "clarity": min(told + 0.1 * bool(task.description), 1.0),
        "resource": 1.0 - risks["resource"],
        "dependency": 1.0 - risks["dependency"],
        "permission": 1.0 - risks["permission"],
        "history": state.history,
    }
    whole = sum(PARTS[name] * value for name, value in parts.items()) - _PER_FAILURE * at.failures
    said = at.said_confidence if at.said_confidence is not None else 1.0
    return round(min(max(min(whole, said), 0.0), 1.0), 4)


def _explain_choice(task: Task, at: TaskState, risks: dict[str, float], action: str) -> str:
    worst = max(risks, key=lambda name: risks[name])
    risk = "low risk" if risks[worst] < _RISK_LOW else f"highest risk is {worst} at {risks[worst]:.2f}"
    met = f"all {len(task.dependencies)} dependencies met" if task.dependencies else "no dependencies"
    before = f", {pluralize(at.failures, 'failure')} before" if at.failures else ""
    return f"{action}: {risk}, {met}{before}"
