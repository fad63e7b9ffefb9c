"""Lifecycle, health, incidents."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from flightlog.live.state import RuntimeSession, SessionHealth, Thresholds
from flightlog.model.errors import Incident, IncidentKind

SYNCED_MS = 60_000
LIVE_MS = 3_600_000
MINUTE_MS = 60_000
WORKING, WAITING, RESTING, ENDED, ORPHANED, STARTING, UNKNOWN = (
    *("working", "waiting", "resting", "ended", "orphaned", "starting", "unknown"),
)
_AT_WORK = {"UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "SubagentStart", "SubagentStop"}
ROOM: Final = "live"
_SECRETS = "Secrets detected"


_AT_WORK |= {"PreCompact", "PostCompact", "PermissionDenied"}
_WAITS = {"PermissionRequest", "Notification", "Elicitation"}


class HealthSignals(Struct):
    """What was seen of a session."""

    now_ms: int
    last_event: str = ""
    event_ms: int = 0
    changed_ms: int = 0
    transcript_exists: bool = False
    has_messages: bool = False
    has_hooks: bool = False
    pid_alive: bool | None = None
    percent_used: float = 0.0
    secrets: int = 0
    cost_issues: list[str] = []
    broken_file: bool = False

    @property
    def activity_ms(self) -> int:
        """When something last happened."""
        return max(self.event_ms, self.changed_ms)


def default_thresholds() -> Thresholds:
    """What holds where a person set nothing."""
    return Thresholds(
        context_warning_percent=70, compaction_percent=78, budget_warning_percent=80, transcript_stale_minutes=5
    )


def effective_thresholds(*said: Thresholds | None) -> Thresholds:
    """Thresholds, the later over the earlier, over what holds by default."""
    found = default_thresholds()
    for each in said:
        for name in Thresholds.__struct_fields__ if each is not None else ():
            if getattr(each, name) is not None:
                setattr(found, name, getattr(each, name))
    return found


def lifecycle_of(signs: HealthSignals) -> str:
    """Where in its life a session is."""
    if signs.last_event == "SessionEnd" and signs.changed_ms <= signs.event_ms + SYNCED_MS:
        return ENDED
    if signs.pid_alive is False:
        return ORPHANED
    if signs.last_event in _WAITS:
        return WAITING
    if signs.last_event in _AT_WORK or (not signs.has_hooks and signs.now_ms - signs.changed_ms < SYNCED_MS):
        return WORKING
    if signs.last_event in {"Stop", "StopFailure"} or signs.has_messages:
        return RESTING
    return STARTING if signs.pid_alive or signs.last_event == "SessionStart" else UNKNOWN


def is_live(signs: HealthSignals) -> bool:
    """Whether it belongs among the live ones."""
    stage = lifecycle_of(signs)
    recent = signs.now_ms - signs.activity_ms < LIVE_MS
    return stage != ENDED and (recent or (signs.pid_alive is True))


def is_stale(signs: HealthSignals, thresholds: Thresholds) -> bool:
    """Whether the transcript stands still while the session does not."""
    limit_ms = (thresholds.transcript_stale_minutes or 0) * MINUTE_MS
    return signs.transcript_exists and signs.now_ms - signs.changed_ms > limit_ms


def is_at_risk(signs: HealthSignals, thresholds: Thresholds) -> bool:
    """Whether words may be lost: it works and nothing is written."""
    return is_stale(signs, thresholds) and lifecycle_of(signs) == WORKING


def judge_health(signs: HealthSignals, thresholds: Thresholds) -> SessionHealth:
    """Judge; the reasons stand with the worst first."""
    critical: list[str] = []
    warning: list[str] = []
    if signs.has_messages and not signs.transcript_exists:
        critical.append("Transcript missing")
    if signs.secrets:
        critical.append("Secrets detected")
    if is_at_risk(signs, thresholds):
        warning.append("Nothing written while it works")
    if signs.percent_used >= (thresholds.context_warning_percent or 0):
        warning.append("Context near compaction")
    if lifecycle_of(signs) == ORPHANED:
        warning.append("Orphan: ended without a word")
    warning += signs.cost_issues
    if not signs.has_hooks and signs.has_messages:
        warning.append("Hooks missing")
    if signs.broken_file:
        warning.append("runtime-state.yaml cannot be read")
    known = signs.transcript_exists or signs.has_hooks or signs.pid_alive is not None
    status = "critical" if critical else "warning" if warning else "healthy" if known else "unknown"
    return SessionHealth(status, [*critical, *warning], signs.now_ms, lifecycle_of(signs))


def find_incidents(sessions: Sequence[RuntimeSession], broken: str, now_ms: int) -> Iterator[Incident]:
    """Yield each session whose health is critical, and a state file that cannot be read."""
    for each in sessions:
        if each.health.status == "critical":
            kind: IncidentKind = "secret" if _SECRETS in each.health.issues else "session health"
            yield Incident(kind, now_ms, ROOM, (each.session_id,), {"issues": len(each.health.issues)})
    if broken:
        yield Incident("corrupt state", now_ms, ROOM, ("runtime-state.yaml",))
