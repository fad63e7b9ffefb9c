"""Build `run_meta.json` from a run's configuration and state.

Pure functions of what is on record. The output does not show where the run is stored: `work_dir` is
reduced to its last component.
"""

import json
from pathlib import PurePath
from typing import Any

from flightlog.lab.config import RunConfig
from flightlog.lab.state import RunState, SessionAttempt
from flightlog.lab.store import PlannedSession, plan_sessions
from flightlog.model.output_files import OutputFile, Tier

_EARLY = {"max_turns", "budget_exhausted", "rate_limited", "auth_error", "timeout"}
_EARLY |= {"interrupted", "error"}
_VERIFIER_KEYS = ("name", "passed", "exit_code", "duration_s", "output")


def run_meta(name: str, config: RunConfig, state: RunState) -> dict[str, Any]:
    """Return all facts about a run, under the keys of the source document."""
    planned = plan_sessions(config, state.added_replicates)
    sessions = [_session_meta(config, session, state) for session in planned]
    started_sessions = [session for session in sessions if session["started_at"]]
    started = state.start
    amounts = [session["total_cost_usd"] for session in started_sessions]
    costs = [usd for usd in amounts if usd is not None]
    return {
        "run_name": name,
        "hypothesis": config.hypothesis or None,
        "model": config.model,
        "provider": config.provider,
        "engine": config.engine,
        "agent": started.agent if started else None,
        "sdk_version": (started.agent_version if started else "") or None,
        "harness_version": started.harness_version if started else None,
        "session_mode": config.session_mode,
        "work_dir": PurePath(config.work_dir).name,
        "repo_name": config.repo_name or None,
        "tags": list(config.tags),
        "permission_mode": started.permission_mode if started else config.permission_mode,
        "permission_note": (started.permission_note if started else "") or None,
        "isolation": started.isolation if started else None,
        "isolation_note": (started.isolation_note if started else "") or None,
        "session_count": len(sessions),
        "sessions": sessions,
        "started_at": state.started_at or None,
        "finished_at": state.finished_at or None,
        "stop_reason": state.end.stop_reason if state.end else _describe_open_state(state),
        "total_steps": sum(session["step_count"] for session in sessions),
        "total_tool_calls": sum(session["tool_call_count"] for session in sessions),
        "total_cost_usd": round(sum(costs), 9) if costs or not started_sessions else None,
        "total_spent_usd": round(state.spent_usd, 9),
        "max_budget_usd": config.max_budget_usd,
        **_resample_fields(state),
        "total_file_writes": sum(session["file_writes"] for session in sessions),
        "total_compaction_events": sum(session["compaction_count"] for session in sessions),
        "total_subagent_invocations": sum(session["subagent_count"] for session in sessions),
        "errors": _list_errors(sessions, state),
        "snapshot_notes": list(state.baseline.notes) if state.baseline else [],
        **_replay_fields(state),
    }


def _resample_fields(state: RunState) -> dict[str, Any]:
    batches = state.resample_batches.values()
    is_unpriced = any(batch.unpriced_samples for batch in batches)
    cost = None if is_unpriced else round(sum(batch.cost_usd for batch in batches), 9)
    return {
        "total_resamples": sum(batch.samples for batch in batches),
        "total_resample_errors": sum(batch.errors for batch in batches),
        "total_resample_cost_usd": cost,
    }


def _replay_fields(state: RunState) -> dict[str, Any]:
    branch, last = state.branch, state.last_attempt("session_01")
    if branch is None:
        return {}
    verdict = last.certificate.verdict if last and last.certificate else None
    fields: dict[str, Any] = {"replay_source": branch.source_run, "replay_turn": branch.turn}
    return fields | {"replay_verdict": verdict}


def meta_page(name: str, config: RunConfig, state: RunState) -> OutputFile:
    return OutputFile("run_meta.json", Tier.PRIVATE, as_json(run_meta(name, config, state)))


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def _session_meta(config: RunConfig, planned: PlannedSession, state: RunState) -> dict[str, Any]:
    last = state.last_attempt(planned.session_dir)
    session = config.sessions[planned.session_index - 1]
    count = planned.replicate_count
    replicas = {"replicate": planned.replicate or 1, "replicate_count": count} if count > 1 else {}
    return {
        "session_index": planned.session_index,
        "session_dir": planned.session_dir,
        **replicas,
        "session_id": last.session_id if last else None,
        "resumed_from": (last.parent_id or None) if last else None,
        "fork_from": session.fork_from,
        **_session_counts(last),
        "verifiers": [
            {key: getattr(verified, key) for key in _VERIFIER_KEYS}
            for verified in (last.verifications if last else ())
        ],
        "stop_reason": _stop_reason(planned, state),
        "ended_early": last.stop_reason in _EARLY if last and last.end else None,
        "error": (last.end.error or None)
        if last and last.end
        else state.skipped.get(planned.session_dir),
        "exit_code": last.end.exit_code if last and last.end else None,
        "attempts": len(state.attempts.get(planned.session_dir, [])),
        "has_private_tree": last.has_private_tree if last else None,
        "started_at": last.started_at if last else None,
        "finished_at": (last.finished_at or None) if last else None,
    }


def _session_counts(last: SessionAttempt | None) -> dict[str, Any]:
    counted = last.counts if last else None
    spent = last.spent_usd if last else 0.0
    return {
        "step_count": counted.step_count if counted else 0,
        "tool_call_count": counted.tool_call_count if counted else 0,
        "num_turns": counted.turn_count if counted else 0,
        "client_num_turns": last.end.num_turns if last and last.end else None,
        "total_cost_usd": counted.cost_usd if counted else (spent or None),
        "cost_source": counted.cost_source if counted else None,
        "client_cost_usd": last.end.client_cost_usd if last and last.end else None,
        "compaction_count": counted.compaction_count if counted else 0,
        "subagent_count": counted.subagent_count if counted else 0,
        "file_writes": counted.file_writes if counted else 0,
        "captured_requests": counted.captured_requests if counted else 0,
    }


def _stop_reason(planned: PlannedSession, state: RunState) -> str:
    last = state.last_attempt(planned.session_dir)
    if last is not None:
        return last.stop_reason or _describe_open_state(state)
    return "skipped" if planned.session_dir in state.skipped else "pending"


def _describe_open_state(state: RunState) -> str:
    return "interrupted" if state.is_abandoned else "running"


def _list_errors(sessions: list[dict[str, Any]], state: RunState) -> list[dict[str, Any]]:
    stopped = [(session["session_dir"], session["error"]) for session in sessions]
    errors = [{"session": name, "error": error} for name, error in stopped if error]
    errors += [
        {
            "session": None,
            "error": f"the {command.phase}-run command {command.number} ended with {command.exit_code}",
        }
        for command in state.commands
        if command.exit_code
    ]
    lost = [
        {"session": None, "error": f"damaged journal: {damage.reason}"} for damage in state.damage
    ]
    return errors + lost
