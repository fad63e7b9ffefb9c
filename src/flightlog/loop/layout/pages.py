"""The pages that are rewritten whole: metadata, progress, inventory, documents, quality.

Keys and their order are the source document's; what we add stands after them. Statistics are
counted from the same values the page lists, so that a recount gives the same.
"""

from collections import Counter
from typing import Any

from flightlog.loop.core.state import LoopState
from flightlog.loop.core.times import format_utc_time
from flightlog.loop.core.told import CONTEXT, metric_value
from flightlog.loop.plan.schema import Plan

_TEMPLATE_CONFIG = ("max_iterations", "confidence_threshold", "human_intervention", "learning_rate")


def build_metadata(state: LoopState, plan: Plan, now: float) -> dict[str, Any]:
    """`session-metadata.yaml`."""
    phase = current_phase(state, plan)
    return {
        "session_id": state.session_id,
        "session_name": state.session_name,
        "start_time": format_utc_time(state.started_at),
        "end_time": format_utc_time(state.ended_at),
        "status": "in_progress" if state.status == "new" else state.status,
        "status_reason": state.why or None,
        "phase": phase,
        "phase_name": plan.phase_name(phase),
        "tasks_completed": state.completed_count,
        "tasks_total": len(plan.tasks),
        "ralph_runtime_config": {name: getattr(state.config, name) for name in _TEMPLATE_CONFIG},
        "context_variables": {**CONTEXT, **state.context},
        "performance_metrics": performance_figures(state, now),
    }


def performance_figures(state: LoopState, now: float) -> dict[str, Any]:
    """The figures of the template, and what was spent."""
    durations = [task.duration_s for task in state.tasks.values() if task.duration_s is not None]
    totals = state.totals
    end = state.ended_at or state.resting_since or now
    spent = end - state.started_at - state.rested_s if state.started_at is not None else 0.0
    return {
        "total_duration_seconds": round(max(spent, 0.0), 3),
        "average_task_duration": round(sum(durations) / len(durations), 3) if durations else 0,
        "success_rate": round(totals.successes / totals.attempts, 4) if totals.attempts else 0.0,
        "error_count": totals.errors,
        "help_requests": totals.help_requests,
        "human_interventions": totals.human,
        "iterations": state.iterations,
        "model_calls": totals.calls,
        "tokens": totals.tokens,
        "cost_usd": None if totals.unpriced else round(totals.usd, 6),
        "learning_rate": round(state.learning_rate, 6),
    }


def build_progress(state: LoopState, plan: Plan) -> dict[str, Any]:
    """`progress-tracking.yaml`."""
    phase = current_phase(state, plan)
    return {
        "session_id": state.session_id,
        "last_updated": format_utc_time(state.last_at),
        "progress": {
            "current_task_id": state.current or None,
            "current_phase": phase,
            "overall_progress": _percent_completed(state, [task.task_id for task in plan.tasks]),
            "phase_progress": _percent_completed(state, [task.task_id for task in plan.tasks if task.phase == phase]),
        },
        "tasks": [_task_fields(state, task.task_id) for task in plan.tasks],
        "milestones": [
            {
                "name": each.name,
                "target": each.target,
                "achieved": each.name in state.milestones,
                "achieved_at": format_utc_time(state.milestones.get(each.name)),
            }
            for each in plan.milestones
        ],
        "quality_gates": [_gate_fields(state, each) for each in plan.quality_gates],
    }


def feature_inventory(state: LoopState) -> dict[str, Any]:
    """`feature-inventory.json`."""
    features = list(state.features.values())
    documented = sum(bool(each.get("documented")) for each in features)
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "features": features,
        "statistics": {
            "total_features": len(features),
            "by_category": dict(sorted(Counter(str(each.get("category")) for each in features).items())),
            "by_status": dict(sorted(Counter(str(each.get("status")) for each in features).items())),
            "documentation_coverage": round(documented / len(features), 4) if features else 0.0,
        },
    }


def feature_docs(state: LoopState) -> dict[str, Any]:
    """`feature-docs-generated.json`: each document a task reported, and the features without one."""
    features = state.features
    named = {str(each.get("feature_id")) for each in state.docs}
    lacking = sorted(name for name, each in features.items() if name not in named and not each.get("documented"))
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "documents": state.docs,
        "statistics": {
            "total_documents": len(state.docs),
            "features_documented": len(features) - len(lacking),
            "features_without_document": lacking,
        },
    }


def quality_metrics(state: LoopState, plan: Plan) -> dict[str, Any]:
    """`quality-metrics.json`: reported metrics, the gates that read them, and what verification said."""
    tried = state.breaker
    done = [task for task in state.tasks.values() if task.status == "completed"]
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "metrics": dict(sorted(state.metrics.items())),
        "quality_gates": [
            {**_gate_fields(state, each), "value": metric_value(state, each.metric)} for each in plan.quality_gates
        ],
        "verification": {
            "tasks_verified": len(done),
            "tasks_total": len(plan.tasks),
            "verified_at_first_attempt": sum(task.attempt == 1 for task in done),
            "recent_attempts": len(tried.recent),
            "recent_failures": tried.recent.count(False),
        },
    }


def current_phase(state: LoopState, plan: Plan) -> int:
    """The phase of the task at work, else the first one with something left to do, else the last."""
    if state.current:
        return plan.find_task(state.current).phase
    left = [task.phase for task in plan.tasks if state.task_state(task.task_id).status in {"pending", "in_progress"}]
    return min(left) if left else max(task.phase for task in plan.tasks)


def _percent_completed(state: LoopState, names: list[str]) -> float:
    done = sum(state.task_state(name).status == "completed" for name in names)
    return round(100.0 * done / len(names), 2) if names else 0.0


def _task_fields(state: LoopState, task_id: str) -> dict[str, Any]:
    task = state.task_state(task_id)
    shown = {
        "task_id": task_id,
        "status": task.status,
        "started_at": format_utc_time(task.started_at),
        "completed_at": format_utc_time(task.ended_at),
        "duration_seconds": None if task.duration_s is None else round(task.duration_s, 3),
        "result": task.result,
        "artifacts": task.artifacts,
        "attempts": task.attempt,
    }
    more = {"sessions": task.sessions, "diffs": task.diffs, "why": task.why if task.status != "completed" else ""}
    return {**shown, **{name: value for name, value in more.items() if value}}


def _gate_fields(state: LoopState, gate: Any) -> dict[str, Any]:
    told = state.gates.get(gate.name)
    state_of = "pending" if told is None else "not evaluated" if told.passed is None else "evaluated"
    return {
        "name": gate.name,
        "metric": gate.metric,
        "threshold": gate.threshold,
        "operator": gate.operator,
        "passed": bool(told and told.passed),
        "state": "accepted" if told and told.accepted else state_of,
    }
