"""Choosing: which task is next, and what is decided about it; or how the session ends.

By dependencies first, then by phase gates, then by priority, then by the plan's order.
"""

import hashlib
from collections.abc import Sequence

from flightlog.loop import events as e
from flightlog.loop.core import asking
from flightlog.loop.core.gates import find_blocking_gate
from flightlog.loop.core.scores import DecisionScores, score_actions
from flightlog.loop.core.state import LoopState
from flightlog.loop.plan.schema import Plan, Task
from flightlog.model.text import pluralize


def choose_next(state: LoopState, plan: Plan, now: float) -> Sequence[e.Event] | float:
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


def _decide_task_events(state: LoopState, plan: Plan, task: Task) -> Sequence[e.Event]:
    at = state.task_state(task.task_id)
    seen = score_actions(state, plan, task)
    if at.approved:
        return _start_task_events(state, task, seen._replace(rationale=f"{seen.rationale}; a person said so"))
    if at.mode == "diagnose":
        return _start_task_events(
            state, task, seen._replace(rationale=f"diagnosis: the same failure {pluralize(at.same, 'time')}")
        )
    if asking.should_ask(state, "always") and not at.attempt:
        told = _make_decision(task, seen, "escalate", f"{seen.rationale}; the session asks before every task")
        return [told, asking.make_question(state, "always", task.task_id, f"{task.task_id} {task.name}: do it?")]
    if seen.confidence < state.config.confidence_threshold:
        return _low_confidence_events(state, task, seen)
    return _start_task_events(state, task, seen)


def _low_confidence_events(state: LoopState, task: Task, seen: DecisionScores) -> Sequence[e.Event]:
    short = f"confidence {seen.confidence:.2f} is below {state.config.confidence_threshold:g}"
    if asking.should_ask(state, "confidence"):
        told = _make_decision(task, seen, "escalate", f"{seen.rationale}; {short}")
        return [
            told,
            asking.make_question(state, "confidence", task.task_id, f"{task.task_id} {task.name}: {short}. Do it?"),
        ]
    told = _make_decision(task, seen, "wait", f"{seen.rationale}; {short}; nobody is asked, so it is left")
    return [told, *asking.safe_choice(state, "confidence", task)]


def _start_task_events(state: LoopState, task: Task, seen: DecisionScores) -> Sequence[e.Event]:
    at = state.task_state(task.task_id)
    again = "retry" if at.failures else "execute"
    action = seen.action if seen.action in {"execute", "retry", "delegate"} else again
    mode = "diagnose" if at.mode == "diagnose" else "delegate" if "delegate" in (action, at.mode) else "work"
    action = "delegate" if mode == "delegate" else again
    told = _make_decision(task, seen, action, seen.rationale)
    return [told, e.TaskStarted(task.task_id, at.attempt + 1, mode, key_of(state, task))]  # type: ignore[arg-type]


def _make_decision(task: Task, seen: DecisionScores, action: str, rationale: str) -> e.DecisionMade:
    others = sorted(((name, score) for name, score in seen.scores.items() if name != action), key=lambda one: -one[1])
    return e.DecisionMade(task.task_id, action, seen.confidence, seen.raw, rationale, tuple(others[:3]), seen.risks)


def _end_session_events(state: LoopState, plan: Plan) -> Sequence[e.Event]:
    """Nothing can be begun: completed only if every task was verified and every gate passed."""
    by: dict[str, list[str]] = {}
    for task in plan.tasks:
        by.setdefault(state.task_state(task.task_id).status, []).append(task.task_id)
    if gate := find_blocking_gate(state, plan, None):
        waiting = len(by.get("completed", [])) == len(plan.tasks) or _waits_only_for_gate(state, plan)
        if waiting:
            return _blocked_gate_events(state, gate.name)
    if len(by.get("completed", [])) == len(plan.tasks):
        return [e.LoopEnded("completed", f"all {len(plan.tasks)} tasks were verified")]
    if by.get("deferred") and not by.get("failed"):
        return [
            e.LoopPaused(
                f"{_join_names(by['deferred'])} wait{'s' * (len(by['deferred']) == 1)} "
                "for a person: confidence is too low"
            )
        ]
    parts = [f"{status}: {_join_names(names)}" for status, names in by.items() if status != "completed"]
    return [e.LoopEnded("error", "; ".join(parts))]


def _waits_only_for_gate(state: LoopState, plan: Plan) -> bool:
    """Whether a pending task has all it needs but the gate."""
    pending = [task for task in plan.tasks if state.task_state(task.task_id).status == "pending"]
    return any(all(state.task_state(name).status == "completed" for name in task.dependencies) for task in pending)


def _blocked_gate_events(state: LoopState, name: str) -> Sequence[e.Event]:
    told = state.gates.get(name)
    said = "is not evaluated: its metric was not reported" if told is None or told.passed is None else "failed"
    if asking.should_ask(state, "gate"):
        return [asking.make_question(state, "gate", name, f"The gate «{name}» {said}. Accept it?")]
    return [e.LoopPaused(f"the gate «{name}» {said}")]


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
