"""Metadata, progress, inventory, quality files and templates.

Keys and their order are the source document's; what we add stands after them. Statistics are
counted from the same values the page lists, so that a recount gives the same.

A page is written at each task's end, so this is a few lines and not a general emitter. A JSON
string is a YAML string; what a person may edit is read back with a real parser.

The templates are what the pages look like before anything happened, made by the same code,
so that they cannot differ from what is written.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from flightlog.loop.decide.fold import CONTEXT, metric_value
from flightlog.loop.logs import ErrorLog
from flightlog.loop.plan.schema import Plan, Task, TaskRun
from flightlog.loop.state import LoopState
from flightlog.model.text import format_utc_time

_TEMPLATE_CONFIG = ("max_iterations", "confidence_threshold", "human_intervention", "learning_rate")
_SESSION = "session-XXX"


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


def dump_yaml(value: dict[str, Any]) -> str:
    """Write a mapping; its top-level blocks are set apart by an empty line, as in the templates."""
    blocks = [[]] if value else []  # type: list[list[str]]
    for name, each in value.items():
        lines = list(_entry_lines(name, each, ""))
        if isinstance(each, dict | list) and each and blocks[-1]:
            blocks.append([])
        blocks[-1] += lines
        if isinstance(each, dict | list) and each:
            blocks.append([])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _entry_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    key = f"{indent}{_quote_key(name)}:"
    match value:
        case dict() if value:
            yield key
            for each, inner in value.items():
                yield from _entry_lines(str(each), inner, indent + "  ")
        case list() | tuple() if value:
            yield key
            for each in value:
                yield from _item_lines(each, indent + "  ")
        case _:
            yield f"{key} {_format_scalar(value)}"


def _item_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        lines = [line for name, inner in value.items() for line in _entry_lines(str(name), inner, indent + "  ")]
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        yield f"{indent}- {_format_scalar(value)}"


def _quote_key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit() else json.dumps(name)


def _format_scalar(value: Any) -> str:
    """A leaf, or a whole value in JSON's own form, which is YAML too."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def build_templates() -> dict[str, str]:
    """Every template by its name."""
    plan = Plan("Phase name", (Task("001", "First task", TaskRun(command="true")),))
    state = LoopState(session_id=_SESSION, session_name="Brief session name", last_at=0.0)
    return {
        "session-metadata.yaml": dump_yaml(build_metadata(state, plan, 0.0)),
        "execution-log.json": _to_json({"session_id": _SESSION, "events": []}),
        "progress-tracking.yaml": dump_yaml(build_progress(state, plan)),
        "decision-history.json": _to_json({"session_id": _SESSION, "decisions": []}),
        "feature-inventory.json": _to_json(feature_inventory(state)),
        "feature-docs-generated.json": _to_json(feature_docs(state)),
        "quality-metrics.json": _to_json(quality_metrics(state, plan)),
        "errors-and-retries.json": _to_json(ErrorLog().build_page(_SESSION)),
    }


def readme_text() -> str:
    """The README beside the sessions."""
    return """# Loop sessions

One directory for each run of a plan. `journal.jsonl` is the record; every other file is a view of
it and is written again when it is damaged or missing.

| file | what it shows |
|---|---|
| session-metadata.yaml | status, phase, settings, context variables, figures |
| execution-log.json | every event |
| progress-tracking.yaml | tasks, milestones, quality gates |
| decision-history.json | every decision with its risks, alternatives and outcome |
| errors-and-retries.json | errors, what was done about them, the breaker |
| feature-inventory.json, feature-docs-generated.json, quality-metrics.json | what tasks reported |
| final-report.md | the report |
| question.yaml | the question that waits for an answer: write it there and save |

    ralph-runtime status --session session-001
    ralph-runtime monitor --session session-001
    ralph-runtime logs --session session-001

`templates/` holds an empty copy of each file: a directory `session-004-name/` made of them by hand
can be run with `ralph-runtime run --plan PLAN --session session-004`. `archive/` and `summaries/`
are kept by `ralph-runtime retain`.
"""


def _to_json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
