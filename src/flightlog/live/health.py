"""Lifecycle and health of a session, and the incidents that follow."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from flightlog.agents.claude_code.hooks import QUESTION_TOOLS
from flightlog.hooks.statusline_segments import NEAR_ISSUE
from flightlog.live.state import RuntimeSession, SessionHealth, Thresholds
from flightlog.model.errors import Incident, IncidentKind

SYNCED_MS = 60_000  # the agent writes its transcript within a minute of an event
LIVE_MS = 3_600_000  # without a known process a session counts as live for an hour
MINUTE_MS = 60_000
WORKING, WAITING, RESTING, ENDED = "working", "waiting", "resting", "ended"
ORPHANED, STARTING, UNKNOWN = "orphaned", "starting", "unknown"
ROOM: Final = "live"
# Earlier versions wrote this into every file; it means the client's own point of compaction.
_OLD_COMPACTION_PERCENT = 78
_SECRETS = "Secrets detected"
_WORK_EVENTS = frozenset(
    "UserPromptSubmit PreToolUse PostToolUse PostToolUseFailure PermissionDenied SubagentStart "
    "SubagentStop PreCompact PostCompact".split()
)
_WAIT_EVENTS = {"PermissionRequest", "Notification", "Elicitation"}


class HealthSignals(Struct):
    """Observations from which the health of a session is judged."""

    now_ms: int
    last_event: str = ""
    last_tool: str = ""
    event_ms: int = 0
    changed_ms: int = 0
    transcript_exists: bool = False
    has_messages: bool = False
    has_hooks: bool = False
    pid_alive: bool | None = None
    percent_used: float = 0.0
    secret_count: int = 0
    cost_issues: list[str] = []
    has_broken_file: bool = False

    @property
    def activity_ms(self) -> int:
        """Time of the last event or write."""
        return max(self.event_ms, self.changed_ms)


def default_thresholds() -> Thresholds:
    """Return the thresholds that apply unless a person sets others."""
    return Thresholds(
        context_warning_percent=70, budget_warning_percent=80, transcript_stale_minutes=5
    )


def effective_thresholds(*settings: Thresholds | None) -> Thresholds:
    """Return the defaults overridden by `settings`, later ones last."""
    effective = default_thresholds()
    for thresholds in settings:
        for name in Thresholds.__struct_fields__ if thresholds is not None else ():
            if getattr(thresholds, name) is not None:
                setattr(effective, name, getattr(thresholds, name))
    if effective.compaction_percent == _OLD_COMPACTION_PERCENT:
        effective.compaction_percent = None
    return effective


def lifecycle_of(signs: HealthSignals) -> str:
    """Return the stage of a session's life."""
    if signs.last_event == "SessionEnd" and signs.changed_ms <= signs.event_ms + SYNCED_MS:
        return ENDED
    if signs.pid_alive is False:
        return ORPHANED
    asks = signs.last_event == "PreToolUse" and signs.last_tool in QUESTION_TOOLS
    if signs.last_event in _WAIT_EVENTS or asks:
        return WAITING
    writing = not signs.has_hooks and signs.now_ms - signs.changed_ms < SYNCED_MS
    if signs.last_event in _WORK_EVENTS or writing:
        return WORKING
    if signs.last_event in {"Stop", "StopFailure"} or signs.has_messages:
        return RESTING
    return STARTING if signs.pid_alive or signs.last_event == "SessionStart" else UNKNOWN


def is_live(signs: HealthSignals) -> bool:
    """Return whether a session counts as live: its process runs, or a hook reported lately."""
    recent = signs.now_ms - signs.event_ms < LIVE_MS
    return lifecycle_of(signs) != ENDED and (recent or signs.pid_alive is True)


def is_stale(signs: HealthSignals, thresholds: Thresholds) -> bool:
    """Return whether the transcript has not changed for longer than allowed."""
    limit_ms = (thresholds.transcript_stale_minutes or 0) * MINUTE_MS
    return signs.transcript_exists and signs.now_ms - signs.changed_ms > limit_ms


def is_at_risk(signs: HealthSignals, thresholds: Thresholds) -> bool:
    """Return whether the transcript may lose messages: the session works but nothing is written."""
    return is_stale(signs, thresholds) and lifecycle_of(signs) == WORKING


def judge_health(signs: HealthSignals, thresholds: Thresholds) -> SessionHealth:
    """Return status and issues, the worst issues first."""
    critical: list[str] = []
    warning: list[str] = []
    if signs.has_messages and not signs.transcript_exists:
        critical.append("Transcript missing")
    if signs.secret_count:
        critical.append(_SECRETS)
    if is_at_risk(signs, thresholds):
        warning.append("Nothing written while it works")
    if signs.percent_used >= (thresholds.context_warning_percent or 0):
        warning.append(NEAR_ISSUE)
    if lifecycle_of(signs) == ORPHANED:
        warning.append("Crashed (process gone, no SessionEnd event)")
    warning += signs.cost_issues
    if not signs.has_hooks and signs.has_messages:
        warning.append("Hooks missing")
    if signs.has_broken_file:
        warning.append("runtime-state.yaml cannot be read")
    known = signs.transcript_exists or signs.has_hooks or signs.pid_alive is not None
    status = "critical" if critical else "warning" if warning else "healthy" if known else "unknown"
    return SessionHealth(status, [*critical, *warning], signs.now_ms, lifecycle_of(signs))


def find_incidents(
    sessions: Sequence[RuntimeSession], broken: str, now_ms: int
) -> Iterator[Incident]:
    """Yield each session whose health is critical, and a state file that cannot be read."""
    for session in sessions:
        issues = session.health.issues
        if session.health.status == "critical":
            kind: IncidentKind = "secret" if _SECRETS in issues else "session health"
            yield Incident(kind, now_ms, ROOM, (session.session_id,), {"issues": len(issues)})
    if broken:
        yield Incident("corrupt state", now_ms, ROOM, ("runtime-state.yaml",))
