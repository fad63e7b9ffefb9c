"""Output files for other programs: shared billing, one file per session, a summary, the log.

They are views of the runtime state with the names of the source document. Functions return values
and read only the old billing file on a first run and the markers that the status line leaves.
"""

import zlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.hooks.statusline_segments import WORDS, parse_template
from flightlog.live import health
from flightlog.live.health import LIVE_MS
from flightlog.live.state import AuthProfile, RuntimeSession, RuntimeState, to_wire
from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE, Misconfigured
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import format_utc_ms, one_line, suggest_name

SHARED = "billing-shared.json"
SUMMARY = "sessions.json"
LOG = "daemon.log"
NOT_SESSIONS = {SHARED, SUMMARY, "config.json"}
# These change with the clock alone, so they are not part of a session's fingerprint.
_VOLATILE = {"transcript", "formatted_strings", "health", "metadata"}
_OLD_BYTES_MAX = 1 << 20  # the old billing file has less than 1 KB


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
    account: str


def session_file(
    session: RuntimeSession, launch: LaunchInfo, state: RuntimeState, template: str
) -> OutputFile:
    """Return the health file of one session, which the status line reads."""
    return _json_file(f"{session.session_id}.json", session_body(session, launch, state, template))


def session_body(
    session: RuntimeSession, launch: LaunchInfo, state: RuntimeState, template: str
) -> dict[str, Any]:
    """Return the content of a session's health file."""
    profile = state.find_profile(session.auth_profile)
    fields = to_wire(session)
    if "transcript" in fields:
        fields["transcript"].pop("lastModifiedAgo", None)
    own = profile.thresholds if profile else None
    return {
        **fields,
        "launch": to_wire(launch),
        "billing": to_wire(profile.billing) if profile else {},
        "thresholds": to_wire(health.effective_thresholds(state.thresholds, own)),
        "statusline": {"template": template} if template else {},
    }


def check_template(template: str, origin: str) -> None:
    """Raise if a template of the status line has an unknown word.

    For commands that a person runs: in the agent's session the line leaves the word out.
    """
    for word in [name for name, _ in parse_template(template) if name not in WORDS]:
        hint = suggest_name(word, WORDS)
        message = f"unknown word {{{one_line(word, 40)}}} in the status line's template"
        raise Misconfigured(f"{message}: {origin}", hint=hint)


def fingerprint_session(session: RuntimeSession, launch: LaunchInfo, template: str) -> int:
    """Return a checksum that changes when something happens in a session.

    Billing is left out, because it changes with every other session of the profile.
    """
    names = [name for name in RuntimeSession.__struct_fields__ if name not in _VOLATILE]
    fields = [getattr(session, name) for name in names]
    size = session.transcript.size_bytes if session.transcript else 0
    condition = (session.health.status, session.health.issues, session.health.lifecycle)
    last = session.metadata.last_activity if session.metadata else 0
    return zlib.crc32(msgspec.msgpack.encode([fields, condition, last, size, launch, template]))


def shared_files(state: RuntimeState, now_ms: int, template: str) -> list[OutputFile]:
    """Return the files about all sessions."""
    profiles = state.auth_profiles
    used = max(profiles, key=lambda profile: profile.metadata.last_used or 0, default=None)
    body = _shared_billing(state, used, template)
    return [_json_file(SHARED, body), _json_file(SUMMARY, _summarize_state(state, used, now_ms))]


def log_entry(state: RuntimeState, broken: str, counts: tuple[int, int], now_ms: int) -> str:
    """Return a log line; `counts` are files written and sessions archived. No content is logged."""
    line = (
        f"{format_utc_ms(now_ms)} gathered sessions={len(state.sessions)} "
        f"profiles={len(state.auth_profiles)} pages={counts[0]} archived={counts[1]}"
    )
    location = broken.split(":", maxsplit=1)[0]
    return line + (f" unreadable runtime-state.yaml: {location}" if broken else "")


def old_billing(folder: Path) -> dict[str, Any] | None:
    """Read `billing-shared.json` as an older program left it."""
    try:
        with (folder / SHARED).open("rb") as file:
            content = msgspec.json.decode(file.read(_OLD_BYTES_MAX))
    except (OSError, *UNREADABLE):
        return None
    return content if isinstance(content, dict) else None


def sessions_with_status_line(home: Path, config_dir: Path) -> list[str]:
    """Return the sessions of one configuration directory whose status line was shown."""
    try:
        markers = [path for path in (home / "live").iterdir() if is_safe(path.name)]
    except OSError:
        return []
    return [path.name for path in markers if read_marker(path) == str(config_dir)]


def format_age(age_ms: int) -> str:
    """Format an age in one coarse unit."""
    seconds = max(age_ms, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "<1m"


def read_marker(path: Path) -> str:
    """Return the configuration directory that a session's marker names; "" if there is none."""
    try:
        return path.read_bytes()[:4096].decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _shared_billing(state: RuntimeState, used: AuthProfile | None, template: str) -> dict[str, Any]:
    if used is None:
        return {}
    is_only = len(state.auth_profiles) == 1
    launch = {"label": used.label, "authProfile": used.profile_id} if is_only else {}
    billing: dict[str, Any] = to_wire(used.billing)
    thresholds = to_wire(health.effective_thresholds(state.thresholds, used.thresholds))
    more = {"billing": billing, "launch": launch, "thresholds": thresholds}
    return billing | more | ({"statusline": {"template": template}} if template else {})


def _summarize_state(state: RuntimeState, used: AuthProfile | None, now_ms: int) -> dict[str, Any]:
    sessions = state.sessions
    last_times = [session.metadata.last_activity for session in sessions if session.metadata]
    alerts = [session.alerts for session in sessions if session.alerts]
    bills = [profile.billing for profile in state.auth_profiles]
    return {
        "lastUpdated": now_ms,
        "activeSessions": sum(now_ms - last_ms < LIVE_MS for last_ms in last_times),
        "totalSessions": len(sessions),
        "sessions": [
            {
                "sessionId": session.session_id,
                "authProfile": session.auth_profile,
                "projectPath": session.project_path,
                "status": session.health.status,
                "lifecycle": session.health.lifecycle,
                "lastActivity": session.metadata.last_activity if session.metadata else None,
            }
            for session in sessions
        ],
        "global": {
            "totalCostToday": round(sum(bill.cost_today for bill in bills), 2),
            "burnRatePerHour": round(sum(bill.burn_rate_per_hour for bill in bills), 2),
            "budgetRemaining": (used.billing.budget_remaining or 0) if used else 0,
        },
        "alerts": {
            "sessionsWithSecrets": sum(alert.secrets_detected for alert in alerts),
            "sessionsAtRisk": sum(alert.data_loss_risk for alert in alerts),
            "sessionsNearCompaction": sum(
                bool(session.context.near_compaction) for session in sessions
            ),
        },
    }


def _json_file(name: str, body: dict[str, Any]) -> OutputFile:
    text = msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
    return OutputFile(name, Tier.PRIVATE, text + "\n")
