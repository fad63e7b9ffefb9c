"""Next task, scored alternatives.

Base scores, risks and weights are those of the source document's runtime. Confidence is made
of five parts, brought down by failures and by what the task itself said, and then read
through the calibration that earlier sessions left.

By dependencies first, then by phase gates, then by priority, then by the plan's order.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from flightlog.loop import events
from flightlog.loop.decide import gates
from flightlog.loop.decide.gates import find_blocking_gate
from flightlog.loop.plan.schema import Plan, Task
from flightlog.loop.state import LoopState, TaskState
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


def choose_next(state: LoopState, plan: Plan, now: float) -> Sequence[events.Event] | float:
    """The events that begin the next task or end the session, or the time to wait for."""
    ready = [task for task in plan.tasks if _is_ready(state, plan, task)]
    due = [task for task in ready if state.task_state(task.task_id).retry_at <= now]
    if due:
        task = max(due, key=lambda each: each.priority_score if not _is_started(state, each) else 2.0)
        return _decide_task_events(state, plan, task)
    if ready:
        return min(state.task_state(task.task_id).retry_at for task in ready)
    return _end_session_events(state, plan)


def key_of(state: LoopState, task: Task) -> str:
    """The key under which a task's effects are done once, whatever the attempt."""
    return hashlib.sha256(f"{state.mark}/{state.session_id}/{task.task_id}".encode()).hexdigest()[:24]


def _is_started(state: LoopState, task: Task) -> bool:
    return state.task_state(task.task_id).status == "in_progress"


def _is_ready(state: LoopState, plan: Plan, task: Task) -> bool:
    at = state.task_state(task.task_id)
    if at.status not in {"pending", "in_progress"} or at.stage != "idle":
        return False
    met = all(state.task_state(name).status == "completed" for name in task.dependencies)
    return met and (at.status == "in_progress" or find_blocking_gate(state, plan, task.phase) is None)


def _decide_task_events(state: LoopState, plan: Plan, task: Task) -> Sequence[events.Event]:
    at = state.task_state(task.task_id)
    seen = score_actions(state, plan, task)
    if at.approved:
        return _start_task_events(state, task, seen._replace(rationale=f"{seen.rationale}; a person said so"))
    if at.mode == "diagnose":
        return _start_task_events(
            state, task, seen._replace(rationale=f"diagnosis: the same failure {pluralize(at.same, 'time')}")
        )
    if gates.should_ask(state, "always") and not at.attempt:
        told = _make_decision(task, seen, "escalate", f"{seen.rationale}; the session asks before every task")
        return [told, gates.make_question(state, "always", task.task_id, f"{task.task_id} {task.name}: do it?")]
    if seen.confidence < state.config.confidence_threshold:
        return _low_confidence_events(state, task, seen)
    return _start_task_events(state, task, seen)


def _low_confidence_events(state: LoopState, task: Task, seen: DecisionScores) -> Sequence[events.Event]:
    short = f"confidence {seen.confidence:.2f} is below {state.config.confidence_threshold:g}"
    if gates.should_ask(state, "confidence"):
        told = _make_decision(task, seen, "escalate", f"{seen.rationale}; {short}")
        return [
            told,
            gates.make_question(state, "confidence", task.task_id, f"{task.task_id} {task.name}: {short}. Do it?"),
        ]
    told = _make_decision(task, seen, "wait", f"{seen.rationale}; {short}; nobody is asked, so it is left")
    return [told, *gates.safe_choice(state, "confidence", task)]


def _start_task_events(state: LoopState, task: Task, seen: DecisionScores) -> Sequence[events.Event]:
    at = state.task_state(task.task_id)
    again = "retry" if at.failures else "execute"
    action = seen.action if seen.action in {"execute", "retry", "delegate"} else again
    mode = "diagnose" if at.mode == "diagnose" else "delegate" if "delegate" in (action, at.mode) else "work"
    action = "delegate" if mode == "delegate" else again
    told = _make_decision(task, seen, action, seen.rationale)
    return [told, events.TaskStarted(task.task_id, at.attempt + 1, mode, key_of(state, task))]  # type: ignore[arg-type]


def _make_decision(task: Task, seen: DecisionScores, action: str, rationale: str) -> events.DecisionMade:
    others = sorted(((name, score) for name, score in seen.scores.items() if name != action), key=lambda one: -one[1])
    return events.DecisionMade(
        task.task_id, action, seen.confidence, seen.raw, rationale, tuple(others[:3]), seen.risks
    )


def _end_session_events(state: LoopState, plan: Plan) -> Sequence[events.Event]:
    """Nothing can be begun: completed only if every task was verified and every gate passed."""
    by: dict[str, list[str]] = {}
    for task in plan.tasks:
        by.setdefault(state.task_state(task.task_id).status, []).append(task.task_id)
    if gate := find_blocking_gate(state, plan, None):
        waiting = len(by.get("completed", [])) == len(plan.tasks) or _waits_only_for_gate(state, plan)
        if waiting:
            return _blocked_gate_events(state, gate.name)
    if len(by.get("completed", [])) == len(plan.tasks):
        return [events.LoopEnded("completed", f"all {len(plan.tasks)} tasks were verified")]
    if by.get("deferred") and not by.get("failed"):
        return [
            events.LoopPaused(
                f"{_join_names(by['deferred'])} wait{'s' * (len(by['deferred']) == 1)} "
                "for a person: confidence is too low"
            )
        ]
    parts = [f"{status}: {_join_names(names)}" for status, names in by.items() if status != "completed"]
    return [events.LoopEnded("error", "; ".join(parts))]


def _waits_only_for_gate(state: LoopState, plan: Plan) -> bool:
    """Whether a pending task has all it needs but the gate."""
    pending = [task for task in plan.tasks if state.task_state(task.task_id).status == "pending"]
    return any(all(state.task_state(name).status == "completed" for name in task.dependencies) for task in pending)


def _blocked_gate_events(state: LoopState, name: str) -> Sequence[events.Event]:
    told = state.gates.get(name)
    said = "is not evaluated: its metric was not reported" if told is None or told.passed is None else "failed"
    if gates.should_ask(state, "gate"):
        return [gates.make_question(state, "gate", name, f"The gate «{name}» {said}. Accept it?")]
    return [events.LoopPaused(f"the gate «{name}» {said}")]


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
