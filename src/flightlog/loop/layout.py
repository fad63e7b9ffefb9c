"""Content of the session's output files: metadata, progress, inventory, quality, templates.

Keys and their order are those of the source document; our own keys follow. Statistics are counted
from the values in the same file. The templates are the files of an empty session, made by the
same code. `dump_yaml` is a small emitter instead of a library, because files are written at each
task's end; a JSON string is a YAML string.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from flightlog.loop.logs import ErrorLog
from flightlog.loop.plan.schema import GateConfig, Plan, Task, TaskRun
from flightlog.loop.state import CONTEXT, GateState, LoopState, metric_value
from flightlog.model.text import format_utc_time

_TEMPLATE_CONFIG = ("max_iterations", "confidence_threshold", "human_intervention", "learning_rate")
_SESSION = "session-XXX"
_REPORT = """# Session Final Report: session-XXX

**Session Name:** [Session Name]
**Date:** [date]
**Status:** [status]

## Executive Summary

## Progress

## Artifacts Generated

## Metrics

## Challenges & Solutions

## Lessons Learned

## Next Steps

## Raw Data

- Execution log: `execution-log.json`
- Progress tracking: `progress-tracking.yaml`
- Decision history: `decision-history.json`
"""


def build_metadata(state: LoopState, plan: Plan, now: float) -> dict[str, Any]:
    """Return the content of `session-metadata.yaml`."""
    phase = current_phase(state, plan)
    return {
        "session_id": state.session_id,
        "session_name": state.session_name,
        "start_time": format_utc_time(state.started_at),
        "end_time": format_utc_time(state.ended_at),
        "status": "in_progress" if state.status == "new" else state.status,
        "status_reason": state.reason or None,
        "phase": phase,
        "phase_name": plan.phase_name(phase),
        "tasks_completed": state.completed_count,
        "tasks_total": len(plan.tasks),
        "ralph_runtime_config": {name: getattr(state.config, name) for name in _TEMPLATE_CONFIG},
        "context_variables": {**CONTEXT, **state.context},
        "performance_metrics": performance_figures(state, now),
    }


def performance_figures(state: LoopState, now: float) -> dict[str, Any]:
    """Return the figures of the template, and tokens and cost."""
    durations = [task.duration_s for task in state.tasks.values() if task.duration_s is not None]
    totals = state.totals
    end = state.ended_at or state.resting_since or now
    worked_s = end - state.started_at - state.rested_s if state.started_at is not None else 0.0
    return {
        "total_duration_seconds": round(max(worked_s, 0.0), 3),
        "average_task_duration": round(sum(durations) / len(durations), 3) if durations else 0,
        "success_rate": round(totals.successes / totals.attempts, 4) if totals.attempts else 0.0,
        "error_count": totals.errors,
        "help_requests": totals.help_requests,
        "human_interventions": totals.human_interventions,
        "iterations": state.iterations,
        "model_calls": totals.calls,
        "total_tokens": totals.total_tokens,
        "cost_usd": None if totals.unpriced_calls else round(totals.cost_usd, 6),
        "learning_rate": round(state.learning_rate, 6),
    }


def build_progress(state: LoopState, plan: Plan) -> dict[str, Any]:
    """Return the content of `progress-tracking.yaml`."""
    phase = current_phase(state, plan)
    ids = [task.task_id for task in plan.tasks]
    phase_ids = [task.task_id for task in plan.tasks if task.phase == phase]
    return {
        "session_id": state.session_id,
        "last_updated": format_utc_time(state.last_at),
        "progress": {
            "current_task_id": state.current_task or None,
            "current_phase": phase,
            "overall_progress": _percent_completed(state, ids),
            "phase_progress": _percent_completed(state, phase_ids),
        },
        "tasks": [_task_fields(state, task_id) for task_id in ids],
        "milestones": [
            {
                "name": milestone.name,
                "target": milestone.target,
                "achieved": milestone.name in state.milestones,
                "achieved_at": format_utc_time(state.milestones.get(milestone.name)),
            }
            for milestone in plan.milestones
        ],
        "quality_gates": [_gate_fields(state, gate) for gate in plan.quality_gates],
    }


def feature_inventory(state: LoopState) -> dict[str, Any]:
    """Return the content of `feature-inventory.json`."""
    features = list(state.features.values())
    documented = sum(bool(feature.get("documented")) for feature in features)
    counts = {
        name: dict(sorted(Counter(str(feature.get(name)) for feature in features).items()))
        for name in ("category", "status")
    }
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "features": features,
        "statistics": {
            "total_features": len(features),
            "by_category": counts["category"],
            "by_status": counts["status"],
            "documentation_coverage": round(documented / len(features), 4) if features else 0.0,
        },
    }


def feature_docs(state: LoopState) -> dict[str, Any]:
    """Return the content of `feature-docs-generated.json`: reported documents, and what lacks one."""
    named = {str(document.get("feature_id")) for document in state.docs}
    bare = [name for name, feature in state.features.items() if not feature.get("documented")]
    lacking = sorted(name for name in bare if name not in named)
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "documents": state.docs,
        "statistics": {
            "total_documents": len(state.docs),
            "features_documented": len(state.features) - len(lacking),
            "features_without_document": lacking,
        },
    }


def quality_metrics(state: LoopState, plan: Plan) -> dict[str, Any]:
    """Return the content of `quality-metrics.json`: metrics, gates and verification."""
    checked = {task.task_id for task in plan.tasks if task.has_verifier}
    done = [
        task for name, task in state.tasks.items() if task.status == "completed" and name in checked
    ]
    recent = state.breaker.recent_results
    return {
        "session_id": state.session_id,
        "generated_at": format_utc_time(state.last_at),
        "metrics": dict(sorted(state.metrics.items())),
        "quality_gates": [
            {**_gate_fields(state, gate), "value": metric_value(state, gate.metric)}
            for gate in plan.quality_gates
        ],
        "verification": {
            "tasks_verified": len(done),
            "tasks_total": len(plan.tasks),
            "verified_at_first_attempt": sum(task.attempt == 1 for task in done),
            "recent_attempts": len(recent),
            "recent_failures": recent.count(False),
        },
    }


def current_phase(state: LoopState, plan: Plan) -> int:
    """Return the phase of the current task, else the first unfinished one, else the last."""
    if state.current_task:
        return plan.find_task(state.current_task).phase
    phases = [task.phase for task in plan.tasks]
    over = {name for name, task in state.tasks.items() if task.status in {"completed", "skipped"}}
    unfinished = [task.phase for task in plan.tasks if task.task_id not in over]
    return min(unfinished, default=max(phases))


def _percent_completed(state: LoopState, names: list[str]) -> float:
    done = sum(state.task_state(name).status == "completed" for name in names)
    return round(100.0 * done / len(names), 2) if names else 0.0


def _task_fields(state: LoopState, task_id: str) -> dict[str, Any]:
    task = state.task_state(task_id)
    fields = {
        "task_id": task_id,
        "status": task.status,
        "started_at": format_utc_time(task.started_at),
        "completed_at": format_utc_time(task.ended_at),
        "duration_seconds": None if task.duration_s is None else round(task.duration_s, 3),
        "result": task.result,
        "artifacts": task.artifacts,
        "attempts": task.attempt,
    }
    reason = task.reason if task.status != "completed" else ""
    optional = {"sessions": task.sessions, "diffs": task.diffs, "reason": reason}
    return {**fields, **{name: value for name, value in optional.items() if value}}


def _gate_fields(state: LoopState, gate: GateConfig) -> dict[str, Any]:
    result = state.gates.get(gate.name) or GateState(None, None)
    evaluation = "pending" if gate.name not in state.gates else "evaluated"
    if evaluation == "evaluated" and result.passed is None:
        evaluation = "not evaluated"
    return {
        "name": gate.name,
        "metric": gate.metric,
        "threshold": gate.threshold,
        "operator": gate.operator,
        "passed": bool(result.passed),
        "state": "accepted" if result.is_accepted else evaluation,
    }


def dump_yaml(value: dict[str, Any]) -> str:
    """Render a mapping as YAML; blank lines separate top-level blocks, as in the templates."""
    blocks: list[list[str]] = [[]]
    for name, member in value.items():
        lines = list(_entry_lines(name, member, ""))
        if isinstance(member, dict | list) and member:
            blocks += [lines, []]
        else:
            blocks[-1] += lines
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _entry_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    key = f"{indent}{_quote_key(name)}:"
    match value:
        case dict() if value:
            yield key
            for member, inner in value.items():
                yield from _entry_lines(str(member), inner, indent + "  ")
        case list() | tuple() if value:
            yield key
            for item in value:
                yield from _item_lines(item, indent + "  ")
        case _:
            yield f"{key} {_format_scalar(value)}"


def _item_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        entries = (_entry_lines(str(name), inner, indent + "  ") for name, inner in value.items())
        lines = [line for entry in entries for line in entry]
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        yield f"{indent}- {_format_scalar(value)}"


def _quote_key(name: str) -> str:
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else json.dumps(name)


def _format_scalar(value: Any) -> str:
    """Return a value as JSON, which is YAML too, apart from two line separators."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def build_templates() -> dict[str, str]:
    """Return every template by its name."""
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
        "final-report.md": _REPORT,
    }


def readme_text() -> str:
    """Return the README of the directory of loop sessions."""
    return """# Loop sessions

One directory for each run of a plan. `journal.jsonl` is the record; every other file is a view of
it and is rewritten if it is damaged or missing.

| file | content |
|---|---|
| session-metadata.yaml | status, phase, settings, context variables, figures |
| execution-log.json | every event |
| progress-tracking.yaml | tasks, milestones, quality gates |
| decision-history.json | every decision with its risks, alternatives and outcome |
| errors-and-retries.json | errors, recovery actions, trips of the circuit breaker |
| feature-inventory.json, feature-docs-generated.json, quality-metrics.json | reports of tasks |
| final-report.md | the report |
| question.yaml | the open question: write the answer there and save |
| runner.log | output of a session that runs in the background |

    ralph-runtime status --session session-001
    ralph-runtime monitor --session session-001
    ralph-runtime logs --session session-001

`templates/` has an empty copy of each file: a directory `session-004-name/` made from them by hand
can be run with `ralph-runtime run --plan PLAN --session session-004`. `ralph-runtime retain`
maintains `archive/` and `summaries/`.
"""


def _to_json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
