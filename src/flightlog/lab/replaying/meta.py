"""`replay_meta.json`: where a branch comes from, and whether it stands where its source stood. Pure."""

from typing import Any

import msgspec

from flightlog.lab.layout import as_json
from flightlog.lab.state import RunState
from flightlog.model.pages import OutputFile, Tier


def replay_meta(state: RunState) -> dict[str, Any]:
    """Everything about a replay's origin, in the source document's words; the source is named, not located."""
    branch = state.branch
    assert branch is not None, "only for a run that is a replay"
    last = state.last_attempt("session_01")
    return {
        "source_run": branch.source_run,
        "source_run_dir": f"../{branch.source_run}",
        "source_session_index": branch.source_session,
        "source_session_dir": branch.source_dir,
        "source_replicate": branch.replicate or None,
        "source_session_id": branch.source_session_id,
        "source_request_index": branch.request or None,
        "replay_turn_index": branch.turn,
        "replay_count": branch.count,
        "replay_number": branch.number,
        "prompt_override": branch.prompt or None,
        "new_session_id": last.session_id if last else None,
        "shadow_git_reset_tag": branch.tree,
        "created_at": state.started_at or None,
        "prefix": {
            "trajectory": f"../{branch.source_run}/{branch.source_dir}/trajectory.json",
            "turns": branch.turn - 1,
            "transcript": "session_01/source_transcript_truncated.jsonl",
        },
        "certificate": certificate_fields(state),
        "allow_drift": branch.allow_drift,
        "side_effects_not_restored": [msgspec.to_builtins(each) for each in branch.effects],
    }


def certificate_fields(state: RunState) -> dict[str, Any] | None:
    """The certificate of a replay, as long as there is one."""
    last = state.last_attempt("session_01")
    found = last.certificate if last else None
    if found is None:
        return None
    return {
        "verdict": found.verdict,
        "method": found.method,
        "first_difference": found.first_difference or None,
        "replaced": list(found.replaced),
        "refused": found.refused,
    }


def replay_page(state: RunState) -> OutputFile:
    """The page of that."""
    return OutputFile("replay_meta.json", Tier.PRIVATE, as_json(replay_meta(state)))
