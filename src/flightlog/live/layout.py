"""The pages kept for other programs: shared billing, one file per session, a summary, the log.

Views of the runtime state, in the names of the source document. Returns values; what it reads is
the old billing file on a first run and the marks the status line leaves.
"""

import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.live import health
from flightlog.live.health import LIVE_MS
from flightlog.live.state import AuthProfile, RuntimeSession, RuntimeState, to_wire
from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE
from flightlog.model.output_files import OutputFile, Tier

SHARED = "billing-shared.json"
SUMMARY = "sessions.json"
LOG = "daemon.log"
_NOT_MARKED = {"transcript", "formatted_strings", "health", "metadata"}
NOT_SESSIONS = {SHARED, SUMMARY, "config.json"}
_OLD_BYTES_MAX = 1 << 20


class LaunchInfo(Struct, rename="camel"):
    """How a session was started, and who pays."""

    auth_profile: str
    label: str
    detection_method: str
    launch_alias: str
    config_dir: str
    tmux_pane_id: str
    first_seen: int
    cli_version: str


def session_page(session: RuntimeSession, launched: LaunchInfo, state: RuntimeState, template: str) -> OutputFile:
    """The health cache of one session; the status line shows it."""
    return _json_page(f"{session.session_id}.json", session_body(session, launched, state, template))


def session_body(session: RuntimeSession, launched: LaunchInfo, state: RuntimeState, template: str) -> dict[str, Any]:
    """What that page says."""
    profile = state.find_profile(session.auth_profile)
    told = to_wire(session)
    if "transcript" in told:
        told["transcript"].pop("lastModifiedAgo", None)
    thresholds = health.effective_thresholds(state.thresholds, profile.thresholds if profile else None)
    return {
        **told,
        "launch": to_wire(launched),
        "billing": to_wire(profile.billing) if profile else {},
        "thresholds": to_wire(thresholds),
        "statusline": {"template": template} if template else {},
    }


def fingerprint_session(session: RuntimeSession, launched: LaunchInfo, template: str) -> int:
    """A print of what happened to a session; billing moves with every session of a profile, and so does the clock."""
    parts = [getattr(session, name) for name in RuntimeSession.__struct_fields__ if name not in _NOT_MARKED]
    size = session.transcript.size_bytes if session.transcript else 0
    how = (session.health.status, session.health.issues, session.health.lifecycle)
    last = session.metadata.last_activity if session.metadata else 0
    return zlib.crc32(msgspec.msgpack.encode([parts, how, last, size, launched, template]))


def shared_pages(state: RuntimeState, now_ms: int, template: str) -> list[OutputFile]:
    """The pages about all sessions."""
    used = max(state.auth_profiles, key=lambda each: each.metadata.last_used, default=None)
    return [
        _json_page(SHARED, _shared_billing(state, used, template)),
        _json_page(SUMMARY, _summarize_state(state, used, now_ms)),
    ]


def log_entry(state: RuntimeState, broken: str, counts: tuple[int, int], now_ms: int) -> str:
    """One line for the log; no words of anybody."""
    moment = datetime.fromtimestamp(now_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = f"{moment} gathered sessions={len(state.sessions)} profiles={len(state.auth_profiles)}"
    told += f" pages={counts[0]} archived={counts[1]}"
    return told + (f" unreadable runtime-state.yaml: {broken.split(':', maxsplit=1)[0]}" if broken else "")


def old_billing(folder: Path) -> dict[str, Any] | None:
    """What an older program left in `billing-shared.json`."""
    try:
        with (folder / SHARED).open("rb") as file:
            told = msgspec.json.decode(file.read(_OLD_BYTES_MAX))
    except (OSError, *UNREADABLE):
        return None
    return told if isinstance(told, dict) else None


def sessions_with_status_line(home: Path, config_dir: Path) -> list[str]:
    """Sessions whose status line was shown, of one configuration directory."""
    try:
        names = [each for each in (home / "live").iterdir() if is_safe(each.name)]
    except OSError:
        return []
    return [each.name for each in names if _read_content(each) == str(config_dir)]


def format_age(age_ms: int) -> str:
    """How long ago, in one coarse unit."""
    seconds = max(age_ms, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "<1m"


def _read_content(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _shared_billing(state: RuntimeState, used: AuthProfile | None, template: str) -> dict[str, Any]:
    if used is None:
        return {}
    launch = {"label": used.label, "authProfile": used.profile_id} if len(state.auth_profiles) == 1 else {}
    billing: dict[str, Any] = to_wire(used.billing)
    thresholds = to_wire(health.effective_thresholds(state.thresholds, used.thresholds))
    more = {"billing": billing, "launch": launch, "thresholds": thresholds}
    return billing | more | ({"statusline": {"template": template}} if template else {})


def _summarize_state(state: RuntimeState, used: AuthProfile | None, now_ms: int) -> dict[str, Any]:
    sessions = state.sessions
    recent = [each for each in sessions if each.metadata and now_ms - each.metadata.last_activity < LIVE_MS]
    return {
        "lastUpdated": now_ms,
        "activeSessions": len(recent),
        "totalSessions": len(sessions),
        "sessions": [
            {
                "sessionId": each.session_id,
                "authProfile": each.auth_profile,
                "projectPath": each.project_path,
                "status": each.health.status,
                "lifecycle": each.health.lifecycle,
                "lastActivity": each.metadata.last_activity if each.metadata else None,
            }
            for each in sessions
        ],
        "global": {
            "totalCostToday": round(sum(each.billing.cost_today for each in state.auth_profiles), 2),
            "burnRatePerHour": round(sum(each.billing.burn_rate_per_hour for each in state.auth_profiles), 2),
            "budgetRemaining": used.billing.budget_remaining if used else 0,
        },
        "alerts": {
            "sessionsWithSecrets": sum(bool(each.alerts and each.alerts.secrets_detected) for each in sessions),
            "sessionsAtRisk": sum(bool(each.alerts and each.alerts.data_loss_risk) for each in sessions),
            "sessionsNearCompaction": sum(bool(each.context.near_compaction) for each in sessions),
        },
    }


def _json_page(name: str, body: dict[str, Any]) -> OutputFile:
    text = msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
    return OutputFile(name, Tier.PRIVATE, text + "\n")
