"""Hook events by version, hook and status payloads, settings keys.

An event name a client does not know makes old ones drop the whole settings file, deny rules
included, without a word. So only what was tried with a version is registered with it, and
where the version is in doubt only what all of them know.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import UsageFields
from flightlog.model.entries import HookRecord
from flightlog.model.errors import Invalid
from flightlog.sources.foreign_json import parse_object, text_field
from flightlog.sources.hook_log import StatusRecord, read_new_status_records

KEEP_DAYS_DEFAULT = 30  # how long Claude Code keeps transcripts if its settings do not say
# All that every tried version knows.
COMMON = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
    *("Stop", "SubagentStop", "PreCompact", "SessionEnd"),
)
# What each tried version knows beyond the one before it.
_SINCE: tuple[tuple[tuple[int, int, int], tuple[str, ...]], ...] = (
    ((1, 0, 128), (*COMMON, "Notification")),
    ((2, 0, 76), ("PermissionRequest", "PostToolUseFailure", "SubagentStart")),
    (
        (2, 1, 100),
        (
            *("ConfigChange", "CwdChanged", "Elicitation", "ElicitationResult", "InstructionsLoaded"),
            *("PermissionDenied", "PostCompact", "Setup", "StopFailure"),
            *("TaskCompleted", "TaskCreated", "TeammateIdle"),
        ),
    ),
    ((2, 1, 325), ("DirectoryAdded", "PostModelSwitch", "PreModelSwitch", "UserPromptExpansion")),
)
# Known to some version and never registered:
LEFT_OUT = {
    "MessageDisplay": "one event per piece of text shown: the agent would feel it",
    "PostToolBatch": "repeats every PostToolUse",
    "WorktreeCreate": "a hook there takes the place of the client's own work",
    "WorktreeRemove": "a hook there takes the place of the client's own work",
    "FileChanged": "makes the client watch files",
}


def events_for(versions: Collection[str]) -> tuple[str, ...]:
    """The events to register for the clients that share a configuration; unknown versions are empty."""
    told = {_version_numbers(version) for version in versions}
    if len(told) != 1 or () in told:
        return COMMON
    (version,) = told
    if version < _SINCE[0][0]:
        oldest = ".".join(map(str, _SINCE[0][0]))
        raise Invalid(
            f"Claude Code {'.'.join(map(str, version))} is older than {oldest}, the oldest tried",
            hint="update Claude Code: an older one may drop its whole settings file, deny rules included",
        )
    return tuple(event for since, events in _SINCE if since <= version for event in events)


def keep_days(config_dir: Path) -> int:
    """Return after how many days Claude Code deletes transcripts; broken settings mean its default."""
    try:
        settings = json.loads((config_dir / "settings.json").read_text())
    except (OSError, ValueError, RecursionError):
        return KEEP_DAYS_DEFAULT
    days = settings.get("cleanupPeriodDays") if isinstance(settings, dict) else None
    return days if isinstance(days, int) and not isinstance(days, bool) and days >= 0 else KEEP_DAYS_DEFAULT


def project_settings(project: Path) -> Path:
    """Return the agent's settings of a project that are this machine's own."""
    return project / ".claude" / "settings.local.json"


def _version_numbers(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in version.split(".")) if version else ()
    except ValueError:
        return ()


class StatusModel(Struct):
    """The model in use."""

    id: str | None = None
    display_name: str | None = None


class ContextWindow(Struct):
    """How full the context is."""

    context_window_size: int | None = None
    current_usage: UsageFields | None = None


class StatusCost(Struct):
    """What the client says the session cost."""

    total_cost_usd: float | None = None


class StatusLimit(Struct):
    """A window of the vendor's; `resets_at` is seconds since 1970."""

    used_percentage: float | None = None
    resets_at: float | None = None

    @property
    def resets_ms(self) -> int:
        """The end of the window in milliseconds, 0 when unknown."""
        return int((self.resets_at or 0) * 1000)


class RateLimits(Struct):
    """The windows of a subscription; an API key has none."""

    five_hour: StatusLimit | None = None
    seven_day: StatusLimit | None = None


class Workspace(Struct):
    """Where the agent works."""

    current_dir: str | None = None
    project_dir: str | None = None


class StatusPayload(Struct):
    """One payload of the status line."""

    transcript_path: str | None = None
    cwd: str | None = None
    version: str | None = None
    model: StatusModel | None = None
    context_window: ContextWindow | None = None
    cost: StatusCost | None = None
    rate_limits: RateLimits | None = None
    workspace: Workspace | None = None


ClientStatus = StatusRecord[StatusPayload]
_decode_status = msgspec.json.Decoder(ClientStatus, strict=False).decode


def read_new_status(folder: str, start: int) -> tuple[list[ClientStatus], int]:
    """Return the status payloads logged for a session since byte `start`, and where the next read starts."""
    return read_new_status_records(folder, start, _decode_status)


def find_transcript_paths(records: Iterable[HookRecord]) -> set[str]:
    """Return the absolute transcript paths that hook payloads name."""
    paths = {text_field(parse_object(bytes(record.payload)) or {}, "transcript_path") for record in records}
    return {path for path in paths if path.startswith("/")}
