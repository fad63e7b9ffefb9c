"""What tasks report, taken into the session: features, metrics, artifacts, context, confidence, effects."""

from typing import Any

from flightlog.loop.core.state import LoopState
from flightlog.loop.events import TaskReported

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
LIST_MAX = 10_000


def apply_report(state: LoopState, event: TaskReported) -> None:
    """Take one report into account; a feature named again is brought up to date, never counted twice."""
    task = state.ensure_task(event.task)
    match event.what:
        case "feature" if isinstance(event.value, dict):
            known = state.features.get(event.name, {**FEATURE, "feature_id": event.name})
            state.features[event.name] = {**known, **event.value, "feature_id": event.name}
        case "metric" if isinstance(event.value, int | float):
            state.metrics[event.name] = float(event.value)
        case "artifact" if event.name not in task.artifacts:
            task.artifacts.append(event.name)
        case "context" if isinstance(event.value, dict):
            _merge_context(state, event.value)
        case "confidence" if isinstance(event.value, int | float):
            task.said_confidence = min(max(float(event.value), 0.0), 1.0)
        case "effect" if event.name not in task.effects:
            task.effects.append(event.name)
        case "doc" if isinstance(event.value, dict):
            state.docs = [each for each in state.docs if each.get("path") != event.name]
            state.docs.append({**event.value, "path": event.name, "task_id": event.task})


def _merge_context(state: LoopState, told: dict[str, Any]) -> None:
    """Lists grow by what is new, everything else is replaced."""
    for name, value in told.items():
        old = state.context.get(name, CONTEXT.get(name))
        if isinstance(old, list) and isinstance(value, list):
            state.context[name] = [*old, *(each for each in value if each not in old)][:LIST_MAX]
        else:
            state.context[name] = value


def metric_value(state: LoopState, name: str) -> float | None:
    """The value of a metric for a gate: reported, or the size of a list of the context; None when there is none."""
    if name in state.metrics:
        return state.metrics[name]
    value = state.context.get(name)
    if isinstance(value, list):
        return float(len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
