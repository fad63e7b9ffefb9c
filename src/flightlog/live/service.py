"""Wiring of live: which agents' directories there are here, the clock, and what a person set."""

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from flightlog.agents import SAMPLES
from flightlog.agents.claude_code.files import find_config_dirs, has_sessions
from flightlog.archive.archive import Archive, open_archive
from flightlog.hooks.statusline_segments import TEMPLATE, StatusStyle, render_line, render_widths
from flightlog.live.cleanup import archive_removed, clean_up
from flightlog.live.collector import (
    CollectDepth,
    LiveDirectory,
    LiveState,
    collect_live_state,
    open_journal,
    record_manual_switch,
)
from flightlog.live.layout import NOT_SESSIONS
from flightlog.live.profiles import rank_profiles
from flightlog.live.state import AuthProfile, RuntimeState
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import UNREADABLE, Conflict, FlightlogError, Invalid, NotFound, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line

LABEL_CHARS_MAX = 60
_WATCH_WAIT_S = 1.0
WIDTHS = (40, 60, 80, 100, 120, 150, 200)
_LINES = "formattedStrings"


def list_live_runtimes(runtime: Runtime) -> list[LiveDirectory]:
    """Every configuration directory here, as live sees it."""
    now_ms = runtime.clock.now_ms()
    return [LiveDirectory(runtime, Path(each), now_ms, render_status_lines) for each in find_config_dirs(runtime)]


def collect_here(runtime: Runtime, *, secrets: bool = True) -> list[LiveState]:
    """Look at all running sessions of this machine."""
    archive = open_archive(runtime)
    try:
        return [
            collect_live_state(place, archive, CollectDepth(secrets=secrets, durable=False))
            for place in list_live_runtimes(runtime)
            if _is_used(place)
        ]
    finally:
        archive.usage_pipeline.save()


def watch_here(runtime: Runtime, *, secrets: bool = True) -> list[LiveState]:
    """Look, as somebody who will look again soon: where another does so just now, what was gathered last will do."""
    archive = open_archive(runtime)
    effort = CollectDepth(secrets=secrets, durable=False, wait_s=_WATCH_WAIT_S)
    found = []
    try:
        for place in filter(_is_used, list_live_runtimes(runtime)):
            try:
                found.append(collect_live_state(place, archive, effort))
            except Conflict:
                found.append(_read_last_state(place))
    finally:
        archive.usage_pipeline.save()
    return found


def read_last_states(runtime: Runtime) -> list[LiveState]:
    """What was gathered last, read and nothing written."""
    return [_read_last_state(place) for place in list_live_runtimes(runtime)]


def _read_last_state(place: LiveDirectory) -> LiveState:
    found = runtime_state.load_state(place.folder, place.now_ms)
    return LiveState(str(place.config_dir), found.state, found.broken, place.now_ms, {})


def collect_after_settle(runtime: Runtime, archive: Archive, only: str) -> tuple[str, ...]:
    """Look after a settle of `only` one session, or of all; what goes wrong is told, and stops nothing."""
    wanted = [Path(file.path) for file in archive.recordings[only].files] if only in archive.recordings else []
    notes = []
    for place in list_live_runtimes(runtime):
        if _is_used(place) and (not only or any(path.is_relative_to(place.config_dir) for path in wanted)):
            try:
                collect_live_state(place, archive, CollectDepth(only=only, durable=False))
            except FlightlogError as error:
                notes.append(error.message)
    return tuple(notes)


def _is_used(place: LiveDirectory) -> bool:
    """A directory no agent ever wrote to gets no pages of ours, nor do the samples."""
    return place.config_dir != SAMPLES and has_sessions(place.config_dir) and os.access(place.config_dir, os.W_OK)


def render_status_lines(page: dict[str, Any]) -> dict[str, str]:
    """The status line of a session as its page tells it, without colour, in each width."""
    cost, folder = page.get("cost") or {}, page["projectPath"]
    payload: dict[str, object] = {"workspace": {"current_dir": folder, "project_dir": folder}}
    payload["cost"] = {"total_cost_usd": cost.get("clientUsd", cost.get("ledgerUsd"))}
    now_s = page["metadata"]["gatheredAt"] / 1000
    lines = render_widths(payload, page, [StatusStyle(width, color=False, now_s=now_s) for width in WIDTHS])
    return {f"width{width}": said for width, said in zip(WIDTHS, lines, strict=True) if said}


def load_runtime_states(runtime: Runtime) -> list[tuple[Path, runtime_state.StateFileUpdate]]:
    """Every runtime state here, as it stands."""
    found = [(place.folder / runtime_state.NAME, place) for place in list_live_runtimes(runtime)]
    return [(path, runtime_state.load_state(place.folder, place.now_ms)) for path, place in found if path.exists()]


def redact_for_output(runtime: Runtime, told: dict[str, Any]) -> dict[str, Any]:
    """Return the same without what is private: what is printed for programs is passed on.

    Each session's page is redacted with the values of its own project.
    """
    from flightlog.privacy.json_redactor import JsonRedactor  # noqa: PLC0415
    from flightlog.privacy.service import make_redactor  # noqa: PLC0415 - its rules take a while to read

    def own_page(page: dict[str, Any]) -> dict[str, Any]:
        before = {**page, _LINES: {}}
        after = JsonRedactor(make_redactor(runtime, Path(page["projectPath"]))).redact_document(before).value
        if before == after:
            return page
        # Status lines are cut to their width: they are drawn again, without the branch, which is read from the disk.
        return {**after, _LINES: render_status_lines({**after, "projectPath": Path(after["projectPath"]).name})}

    def own_pages(value: Any) -> Any:
        if isinstance(value, dict):
            return own_page(value) if _LINES in value else {name: own_pages(each) for name, each in value.items()}
        return [own_pages(each) for each in value] if isinstance(value, list | tuple) else value

    done = JsonRedactor(make_redactor(runtime)).redact_document(own_pages(told)).value
    assert isinstance(done, dict)
    return done


def label_profile(runtime: Runtime, profile: str, text: str, *, dry_run: bool) -> tuple[str, AuthProfile]:
    """Give a profile another label; return the one it had, and the profile."""
    for place in list_live_runtimes(runtime):
        found = runtime_state.read_state(place.folder, place.now_ms).find_profile(profile)
        if found is None:
            continue
        before, found.label = found.label, one_line(text, LABEL_CHARS_MAX)
        if not dry_run:
            done = runtime_state.update_state(
                place.folder, place.now_ms, partial(_relabel_profile, profile, found.label)
            )
            if done.broken:
                raise Unreadable(f"runtime-state.yaml: {done.broken}", hint=f"edit {place.folder / runtime_state.NAME}")
        return before, found
    raise NotFound(f"no such profile: {profile!r}", hint="flightlog live profiles")


def advise_profile(runtime: Runtime) -> dict[str, Any]:
    """Which profile has room."""
    from flightlog.live.dashboard import switch_advice  # noqa: PLC0415 - a settle shows no board

    found = [each for told in collect_here(runtime, secrets=False) for each in told.state.auth_profiles]
    ranked = [
        {"profileId": each.profile_id, "label": each.label, "urgency": round(pressing, 1)}
        for each, pressing in rank_profiles(found)
    ]
    return {"profiles": ranked, "advice": switch_advice(found)}


def record_profile_switch(runtime: Runtime, written: str, profile: str, at: str, *, dry_run: bool) -> dict[str, str]:
    """Write down by hand that a profile pays for a session from a time on."""
    session = open_archive(runtime).find_recording(written)
    since_ms = _parse_time(runtime, at) if at else runtime.clock.now_ms()
    for place in list_live_runtimes(runtime):
        if any(Path(file.path).is_relative_to(place.config_dir) for file in session.files):
            if not dry_run:
                record_manual_switch(place, session.session, profile, since_ms)
            since = datetime.fromtimestamp(since_ms / 1000, tz=UTC).astimezone(runtime.zone).isoformat("T", "seconds")
            return {"session": session.session, "profile": profile, "since": since}
    raise NotFound(f"the files of {session.session} are in none of the agents' directories", hint="flightlog doctor")


def archive_old_sessions(runtime: Runtime, days: int, *, dry_run: bool) -> list[str]:
    """Move sessions unused for `days` to the archive."""
    gone: list[str] = []
    for place in list_live_runtimes(runtime):
        state = runtime_state.read_state(place.folder, place.now_ms)
        if dry_run:
            gone += [each.session_id for each in state.sessions if runtime_state.is_old(each, place.now_ms, days)]
            continue
        done = runtime_state.cleanup_old_sessions(place.folder, place.now_ms, days)
        archive_removed(place.folder, open_journal(place), done.removed, place.now_ms)
        clean_up(place.folder, place.home, place.now_ms)
        gone += [session for session, _ in done.removed]
    return gone


def preview_status_line(
    runtime: Runtime, given: bytes | None, width: int, template: str, *, color: bool
) -> dict[str, Any]:
    """What the status line says of a payload, or of the session seen last."""
    payload = _decode_object(given or b"")
    page: dict[str, Any] = {}
    for place in list_live_runtimes(runtime):
        pages = sorted(place.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        own = [path for path in pages if path.stem == payload.get("session_id")] or [
            path for path in pages if path.name not in NOT_SESSIONS and not payload
        ]
        page = _decode_object(own[-1].read_bytes()) if own else page
    template = template or str(runtime.config["statusline.template"].value)
    page = {**page, **({"statusline": {"template": template}} if template else {})}
    line = render_line(
        payload or _payload_from_page(page), page, StatusStyle(width, color, runtime.clock.now_ms() / 1000)
    )
    return {"line": line or "flightlog", "template": template or TEMPLATE}


def _payload_from_page(page: dict[str, Any]) -> dict[str, Any]:
    """A payload as the agent would give it, from what was gathered."""
    cost = page.get("cost", {}).get("clientUsd", page.get("cost", {}).get("ledgerUsd"))
    where = page.get("projectPath", "")
    return {
        "cwd": where,
        "model": {"display_name": page.get("model", {}).get("value")},
        "cost": {"total_cost_usd": cost},
    }


def _decode_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}


def _relabel_profile(name: str, text: str, state: RuntimeState) -> RuntimeState:
    profile = state.find_profile(name)
    if profile is not None:
        profile.label = text
    return state


def _parse_time(runtime: Runtime, said: str) -> int:
    today = datetime.fromtimestamp(runtime.clock.now_ms() / 1000, tz=UTC).astimezone(runtime.zone)
    try:
        if len(said) == 5 and said[2] == ":":
            found = today.replace(hour=int(said[:2]), minute=int(said[3:]), second=0, microsecond=0)
        else:
            found = datetime.fromisoformat(said)
            found = found if found.tzinfo else found.replace(tzinfo=runtime.zone)
    except ValueError:
        raise Invalid(f"not a time: {said[:40]!r}", hint="--at 14:30, or --at 2026-01-31T14:30:00Z") from None
    return int(found.timestamp() * 1000)
