"""What the interfaces call: collect, read and change the live state of this machine."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from flightlog.agents import SAMPLES
from flightlog.agents.claude_code.files import find_config_dirs, has_sessions, normalize_path
from flightlog.archive.archive import Archive, open_archive
from flightlog.hooks.statusline_segments import TEMPLATE, StatusStyle, render_line, render_widths
from flightlog.hooks.writer import DIRECTORIES, DIRECTORIES_BYTES_MAX, read_file
from flightlog.live.billing import merge_accounts, rank_profiles, switch_advice
from flightlog.live.cleanup import archive_removed, clean_up
from flightlog.live.collector import (
    CollectDepth,
    LiveDirectory,
    LiveState,
    collect_live_state,
    open_journal,
)
from flightlog.live.events import ProfileBilled
from flightlog.live.layout import NOT_SESSIONS, read_marker
from flightlog.live.profiles import LABEL_CHARS_MAX
from flightlog.live.state import AuthProfile, RuntimeState, to_wire
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import Conflict, FlightlogError, Invalid, NotFound, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import one_line
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.service import make_redactor
from flightlog.sources.foreign_json import parse_object

_WATCH_WAIT_S = 1.0  # a watcher asks again soon, so an older state is better than a wait
WIDTHS = (40, 60, 80, 100, 120, 150, 200)
_LINES = "formattedStrings"
_OTHER_DIRECTORIES = "other-config-dirs"


def find_known_config_dirs(runtime: Runtime) -> list[str]:
    """Return the configured directories, and all others that a hook or status line reported.

    A directory with several names, by symbolic links, is returned once.
    """
    given = find_config_dirs(runtime)
    if given == [str(SAMPLES)]:
        return given
    noted = [path for path in list_noted_dirs(runtime, DIRECTORIES) if Path(path).is_dir()]
    known = [*given, *noted]
    return list({Path(path).resolve(): path for path in reversed(known)}.values())[::-1]


def list_noted_dirs(runtime: Runtime, name: str) -> list[str]:
    """Return the directories of a list that hooks or `init` wrote; some may be gone."""
    lines = read_file(f"{runtime.data_dir}/{name}", DIRECTORIES_BYTES_MAX).splitlines()
    return [normalize_path(os.fsdecode(line)) for line in lines if line.startswith(b"/")]


def list_live_runtimes(runtime: Runtime) -> list[LiveDirectory]:
    """Return every configuration directory of this machine's agents."""
    now_ms = runtime.clock.now_ms()
    directories = tuple(Path(path) for path in find_known_config_dirs(runtime))
    return [
        LiveDirectory(runtime, path, now_ms, render_status_lines, directories)
        for path in directories
    ]


def collect_here(runtime: Runtime, *, secrets: bool = True) -> list[LiveState]:
    """Collect the live state of all sessions on this machine."""
    return _collect_all(runtime, CollectDepth(secrets=secrets, durable=False))


def watch_here(runtime: Runtime, *, secrets: bool = True) -> list[LiveState]:
    """Return the live state; if another process is collecting it, return its last result."""
    depth = CollectDepth(secrets=secrets, durable=False, wait_s=_WATCH_WAIT_S)
    return _collect_all(runtime, depth)


def _collect_all(runtime: Runtime, depth: CollectDepth) -> list[LiveState]:
    configured = find_config_dirs(runtime)
    reported = [path for path in find_known_config_dirs(runtime) if path not in configured]
    archive = open_archive(runtime)
    # An index of their own: the main index is that of the configured directories.
    home = f"{runtime.data_dir}/{_OTHER_DIRECTORIES}"
    others = Archive({DEFAULT_AGENT: tuple(reported)}, home) if reported else archive
    states = []
    try:
        for live in _used_directories(runtime):
            owner = archive if str(live.config_dir) in configured else others
            try:
                states.append(collect_live_state(live, owner, depth))
            except Conflict:
                if depth.wait_s != _WATCH_WAIT_S:
                    raise
                states.append(_read_last_state(live))
    finally:
        archive.usage_pipeline.save()
        if reported:
            others.usage_pipeline.save()
    return states


def list_running(lives: Sequence[LiveState]) -> list[dict[str, Any]]:
    """Return the running sessions of all directories, each with its own account and limits."""
    rows = []
    for live in lives:
        for session in live.state.sessions:
            profile = live.state.find_profile(session.auth_profile)
            cost = session.cost
            row = {
                "session": session.session_id,
                "agent": DEFAULT_AGENT,
                "project": session.project_path,
                "profile": profile.label if profile else session.auth_profile,
                "profile_id": session.auth_profile,
                "account": profile.billing_fingerprint if profile else None,
                "config_dir": live.config_dir,
                "model": session.model.value,
                "lifecycle": session.health.lifecycle,
                "health": session.health.status,
                "context_percent": session.context.percent_used,
                "cost_usd": cost.recorded_cost_usd if cost else None,
                "limits": to_wire(profile.billing.limits) if profile else None,
                "last_activity_ms": session.metadata.last_activity if session.metadata else None,
            }
            rows.append(row)
    return rows


def read_last_states(runtime: Runtime) -> list[LiveState]:
    """Return the state as last collected; nothing is written."""
    return [_read_last_state(live) for live in list_live_runtimes(runtime)]


def _read_last_state(live: LiveDirectory) -> LiveState:
    update = runtime_state.load_state(live.folder, live.now_ms)
    return LiveState(str(live.config_dir), update.state, update.error, live.now_ms, {})


def collect_after_settle(runtime: Runtime, archive: Archive, only: str) -> tuple[str, ...]:
    """Collect after a settle of `only` one session, or of all; return error messages."""
    recording = archive.recordings.get(only)
    paths = [Path(file.path) for file in recording.files] if recording else []
    if only:  # a session without a transcript is known by its status line
        paths.append(Path(read_marker(Path(runtime.data_dir) / "live" / only)))
    configured = find_config_dirs(runtime)
    notes = []
    for live in _used_directories(runtime):
        is_due = not only or any(path.is_relative_to(live.config_dir) for path in paths)
        if is_due and str(live.config_dir) in configured:
            try:
                collect_live_state(live, archive, CollectDepth(only=only, durable=False))
            except FlightlogError as error:
                notes.append(error.message)
    return tuple(notes)


def _used_directories(runtime: Runtime) -> list[LiveDirectory]:
    """Return the directories that an agent wrote to and that we may write to, samples aside."""
    markers = Path(runtime.data_dir) / "live"
    shown = {read_marker(path) for path in markers.iterdir()} if markers.is_dir() else set()
    return [
        live
        for live in list_live_runtimes(runtime)
        if live.config_dir != SAMPLES
        and (has_sessions(live.config_dir) or str(live.config_dir) in shown or live.folder.is_dir())
        and os.access(live.config_dir, os.W_OK)
    ]


def render_status_lines(page: dict[str, Any]) -> dict[str, str]:
    """Render a session's status line from its output file, without color, in each width."""
    cost, folder = page.get("cost") or {}, page["projectPath"]
    payload: dict[str, object] = {"workspace": {"current_dir": folder, "project_dir": folder}}
    payload["cost"] = {"total_cost_usd": cost.get("clientCostUsd", cost.get("recordedCostUsd"))}
    now_s = page["metadata"]["gatheredAt"] / 1000
    styles = [StatusStyle(width, color=False, now_s=now_s) for width in WIDTHS]
    lines = zip(WIDTHS, render_widths(payload, page, styles), strict=True)
    return {f"width{width}": line for width, line in lines if line}


def load_runtime_states(runtime: Runtime) -> list[tuple[Path, runtime_state.StateFileUpdate]]:
    """Return the path and content of every runtime state file."""
    return [
        (live.folder / runtime_state.NAME, runtime_state.load_state(live.folder, live.now_ms))
        for live in list_live_runtimes(runtime)
        if (live.folder / runtime_state.NAME).exists()
    ]


def redact_for_output(runtime: Runtime, document: dict[str, Any]) -> dict[str, Any]:
    """Return `document` redacted, because JSON output is passed on.

    Each session in it is redacted with the known values of its own project.
    """

    def redact_session(page: dict[str, Any]) -> dict[str, Any]:
        before = {**page, _LINES: {}}
        redactor = JsonRedactor(make_redactor(runtime, Path(page["projectPath"])))
        after = redactor.redact_document(before).value
        if before == after:
            return page
        # Status lines are cut, so a secret in them may be incomplete: render them again. Only the
        # name of the project is passed, so that no branch is read from the disk.
        shown = {**after, "projectPath": Path(after["projectPath"]).name}
        return {**after, _LINES: render_status_lines(shown)}

    def redact_sessions(value: Any) -> Any:
        if isinstance(value, dict):
            if _LINES in value:
                return redact_session(value)
            return {name: redact_sessions(member) for name, member in value.items()}
        is_list = isinstance(value, list | tuple)
        return [redact_sessions(item) for item in value] if is_list else value

    clean = JsonRedactor(make_redactor(runtime)).redact_document(redact_sessions(document)).value
    assert isinstance(clean, dict)
    return clean


def label_profile(
    runtime: Runtime, profile_id: str, text: str, *, dry_run: bool
) -> tuple[str, AuthProfile]:
    """Change the label of a profile; return the old label and the profile."""
    found = _find_profiles(runtime, profile_id)
    before, label = found[0][1].label, one_line(text, LABEL_CHARS_MAX)
    for live, profile in found:
        profile.label = label
        if not dry_run:
            change = partial(_relabel_profile, profile.profile_id, label)
            update = runtime_state.update_state(live.folder, live.now_ms, change)
            if update.error:
                path = live.folder / runtime_state.NAME
                raise Unreadable(f"{runtime_state.NAME}: {update.error}", hint=f"edit {path}")
    return before, found[0][1]


def _find_profiles(runtime: Runtime, name: str) -> list[tuple[LiveDirectory, AuthProfile]]:
    """Return the account with this id, label or fingerprint in each directory that has it."""
    known = [
        (live, profile)
        for live in list_live_runtimes(runtime)
        for profile in runtime_state.read_state(live.folder, live.now_ms).auth_profiles
    ]
    found = [pair for pair in known if _has_name(pair[1], name)]
    accounts = {profile.billing_fingerprint or str(live.config_dir) for live, profile in found}
    if not found:
        names = ", ".join(sorted({profile.profile_id for _, profile in known})) or "none yet"
        message = f"no such profile: {name!r}; known are: {names}"
        raise NotFound(message, hint="flightlog live profiles")
    if len(accounts) > 1:
        choices = ", ".join(profile.billing_fingerprint or "-" for _, profile in found)
        message = f"{len(accounts)} accounts are called {name!r}"
        raise Invalid(message, hint=f"name one of: {choices}")
    return [
        (live, profile)
        for live, profile in known
        if (profile.billing_fingerprint or str(live.config_dir)) in accounts
        and (profile.billing_fingerprint or (live, profile) in found)
    ]


def _find_own_profile(runtime: Runtime, live: LiveDirectory, name: str) -> AuthProfile:
    """Return the account called `name` in one directory; elsewhere its id may mean another."""
    state = runtime_state.read_state(live.folder, live.now_ms)
    own = [profile for profile in state.auth_profiles if _has_name(profile, name)]
    if len(own) != 1:
        pairs = _find_profiles(runtime, name)
        own = [profile for place, profile in pairs if place.config_dir == live.config_dir]
    if not own:
        message = f"no profile {name!r} in {live.config_dir}, where the session is"
        raise NotFound(message, hint="flightlog live profiles")
    return own[0]


def _has_name(profile: AuthProfile, name: str) -> bool:
    return name in {profile.profile_id, profile.label, profile.billing_fingerprint}


def advise_profile(runtime: Runtime) -> dict[str, Any]:
    """Return the profiles ranked by urgency, and which one to switch to."""
    profiles = merge_accounts(live.state for live in collect_here(runtime, secrets=False))
    ranked = [
        {"profileId": profile.profile_id, "label": profile.label, "urgency": round(urgency, 1)}
        for profile, urgency in rank_profiles(profiles)
    ]
    return {"profiles": ranked, "advice": switch_advice(profiles)}


def record_profile_switch(
    runtime: Runtime, session_id: str, profile: str, at: str, *, dry_run: bool
) -> dict[str, str]:
    """Record that `profile` pays for a session from the time `at` on; now if it is empty."""
    recording = open_archive(runtime).find_recording(session_id)
    since_ms = _parse_time(runtime, at) if at else runtime.clock.now_ms()
    for live in list_live_runtimes(runtime):
        if any(Path(file.path).is_relative_to(live.config_dir) for file in recording.files):
            billed = _find_own_profile(runtime, live, profile).profile_id
            if not dry_run:
                event = ProfileBilled(recording.session, billed, since_ms, "manual")
                open_journal(live).append(event, durable=True)
            since = datetime.fromtimestamp(since_ms / 1000, tz=UTC).astimezone(runtime.zone)
            text = since.isoformat("T", "seconds")
            return {"session": recording.session, "profile": billed, "since": text}
    message = f"no agent directory contains the files of {recording.session}"
    raise NotFound(message, hint="flightlog doctor")


def archive_old_sessions(runtime: Runtime, days: int, *, dry_run: bool) -> list[str]:
    """Move sessions unused for `days` to the archive; return their ids."""
    removed: list[str] = []
    for live in list_live_runtimes(runtime):
        folder, now_ms = live.folder, live.now_ms
        if dry_run:
            sessions = runtime_state.read_state(folder, now_ms).sessions
            old = [session for session in sessions if runtime_state.is_old(session, now_ms, days)]
            removed += [session.session_id for session in old]
            continue
        update = runtime_state.cleanup_old_sessions(folder, now_ms, days)
        archive_removed(folder, open_journal(live), update.removed, now_ms)
        clean_up(folder, live.home, now_ms)
        removed += [session for session, _ in update.removed]
    return removed


def preview_status_line(
    runtime: Runtime, data: bytes | None, width: int, template: str, *, color: bool
) -> dict[str, Any]:
    """Render the status line of a payload, or of the session seen last."""
    payload = parse_object(data or b"") or {}
    page: dict[str, Any] = {}
    for live in list_live_runtimes(runtime):
        paths = sorted(live.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        own = [path for path in paths if path.stem == payload.get("session_id")]
        if not own and not payload:
            own = [path for path in paths if path.name not in NOT_SESSIONS]
        page = (parse_object(own[-1].read_bytes()) or {}) if own else page
    template = template or str(runtime.config["statusline.template"].value)
    page = {**page, **({"statusline": {"template": template}} if template else {})}
    style = StatusStyle(width, color, runtime.clock.now_ms() / 1000)
    line = render_line(payload or _payload_from_page(page), page, style)
    return {"line": line or "flightlog", "template": template or TEMPLATE}


def _payload_from_page(page: dict[str, Any]) -> dict[str, Any]:
    """Build the agent's payload from a session's output file."""
    cost = page.get("cost", {})
    return {
        "cwd": page.get("projectPath", ""),
        "model": {"display_name": page.get("model", {}).get("value")},
        "cost": {"total_cost_usd": cost.get("clientCostUsd", cost.get("recordedCostUsd"))},
    }


def _relabel_profile(name: str, text: str, state: RuntimeState) -> RuntimeState:
    profile = state.find_profile(name)
    if profile is not None:
        profile.label = text
    return state


def _parse_time(runtime: Runtime, text: str) -> int:
    today = datetime.fromtimestamp(runtime.clock.now_ms() / 1000, tz=UTC).astimezone(runtime.zone)
    try:
        if len(text) == 5 and text[2] == ":":
            hour, minute = int(text[:2]), int(text[3:])
            time = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
        else:
            time = datetime.fromisoformat(text)
            time = time if time.tzinfo else time.replace(tzinfo=runtime.zone)
    except ValueError:
        hint = "--at 14:30, or --at 2026-01-31T14:30:00Z"
        raise Invalid(f"not a time: {text[:40]!r}", hint=hint) from None
    return int(time.timestamp() * 1000)
