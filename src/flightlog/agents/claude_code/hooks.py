"""Hook events by version, hook and status payloads, settings keys.

An old client that does not know the name of an event silently drops its whole settings file, deny
rules included. So a version gets only the events tested with it, and an unknown version only
those that all versions know. This module is the `HookSettings` of the agent.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from flightlog.agents.claude_code.messages import cut_context
from flightlog.agents.dialects.anthropic_messages import UsageFields
from flightlog.agents.session_files import find_enabled_plugin
from flightlog.model.entries import HookRecord, PromptSubmitted, ToolHook
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.usage import ClientCacheReport
from flightlog.sources.foreign_json import parse_object, text_field
from flightlog.sources.hook_log import STATUS, StatusRecord, read_hook_records, read_new_records

# After so many days Claude Code deletes transcripts if its settings name no number.
KEEP_DAYS_DEFAULT = 30
_DURATION_MS_MAX = 10**12  # thirty years; more is no duration
PROJECT_SETTINGS = ("settings.json", "settings.local.json")  # shared by all, and this machine's own
# The events that every tested version knows.
COMMON = tuple(
    "SessionStart UserPromptSubmit PreToolUse PostToolUse Stop SubagentStop PreCompact "
    "SessionEnd".split()
)
# The events that each tested version added to those of the one before it.
_SINCE: tuple[tuple[tuple[int, int, int], tuple[str, ...]], ...] = (
    ((1, 0, 128), (*COMMON, "Notification")),
    ((2, 0, 76), ("PermissionRequest", "PostToolUseFailure", "SubagentStart")),
    (
        (2, 1, 100),
        tuple(
            "ConfigChange CwdChanged Elicitation ElicitationResult InstructionsLoaded "
            "PermissionDenied PostCompact Setup StopFailure TaskCompleted TaskCreated "
            "TeammateIdle".split()
        ),
    ),
    ((2, 1, 325), ("DirectoryAdded", "PostModelSwitch", "PreModelSwitch", "UserPromptExpansion")),
)
# Tools that are a question to the person: their call waits for the answer.
QUESTION_TOOLS = ("AskUserQuestion", "ExitPlanMode")


def events_for(versions: Collection[str]) -> tuple[str, ...]:
    """Return the events to register for clients that share settings; "" is an unknown version."""
    numbers = {_version_numbers(version) for version in versions}
    if len(numbers) != 1 or () in numbers:
        return COMMON
    (version,) = numbers
    if version < _SINCE[0][0]:
        oldest = ".".join(map(str, _SINCE[0][0]))
        text = f"Claude Code {'.'.join(map(str, version))} is older than {oldest}"
        hint = (
            "update Claude Code: an older one may drop its whole settings file, deny rules included"
        )
        raise Invalid(f"{text}, the oldest tested version", hint=hint)
    return tuple(event for since, events in _SINCE if since <= version for event in events)


def keep_days(config_dir: Path) -> int:
    """Return after how many days Claude Code deletes transcripts; 30 if settings are broken."""
    try:
        days = json.loads(user_settings(config_dir).read_text())["cleanupPeriodDays"]
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return KEEP_DAYS_DEFAULT
    is_count = isinstance(days, int) and not isinstance(days, bool) and days >= 0
    return days if is_count else KEEP_DAYS_DEFAULT


def find_plugin(config_dir: Path) -> str:
    """Return the command that removes our plugin from the client; "" if it is not enabled."""
    return find_enabled_plugin(config_dir, "claude plugin uninstall")


def user_settings(config_dir: Path) -> Path:
    """Return the path of a person's settings."""
    return config_dir / PROJECT_SETTINGS[0]


def project_settings(project: Path) -> Path:
    """Return the path of a project's settings that are this machine's own."""
    return project_settings_files(project)[1]


def project_settings_files(project: Path) -> list[Path]:
    """Return the paths of a project's settings files."""
    return [project / ".claude" / name for name in PROJECT_SETTINGS]


def _version_numbers(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in version.split(".")) if version else ()
    except ValueError:
        return ()


# A payload with a number outside of these bounds is skipped, like one with a value of another type.
_Count = Annotated[int, Meta(ge=0, le=1 << 53)]
_Percent = Annotated[float, Meta(ge=0, le=10_000)]
_Seconds = Annotated[float, Meta(ge=0, le=1e11)]


class StatusModel(Struct):
    """The model in use."""

    id: str | None = None
    display_name: str | None = None


class ContextWindow(Struct):
    """The size of the context window and the tokens in it.

    `current_usage` is None while the context has no response: at the start, after a compaction.
    """

    context_window_size: _Count | None = None
    current_usage: UsageFields | UnsetType | None = UNSET


class StatusCost(Struct):
    """The cost of the session by the client's own count."""

    total_cost_usd: float | None = None


class StatusLimit(Struct):
    """One rate limit of the vendor; `resets_at` is seconds since 1970."""

    used_percentage: _Percent | None = None
    resets_at: _Seconds | None = None

    @property
    def resets_ms(self) -> int:
        """The time of the reset in milliseconds, 0 if unknown."""
        return int((self.resets_at or 0) * 1000)


class RateLimits(Struct):
    """The rate limits of a subscription, or a gateway's spend limit; an API key has none."""

    five_hour: StatusLimit | None = None
    seven_day: StatusLimit | None = None
    seven_day_opus: StatusLimit | None = None
    seven_day_sonnet: StatusLimit | None = None
    spend_limit: StatusLimit | None = None


class Workspace(Struct):
    """The directories in which the agent works."""

    current_dir: str | None = None
    project_dir: str | None = None


class PromptCacheFields(Struct):
    """The client's count of cache misses since it started."""

    requests: _Count = 0
    misses: _Count = 0
    expected_rebuilds: _Count = 0
    miss_recache_tokens: _Count = 0
    miss_causes: dict[str, _Count] | None = None
    hit_ratio: float | None = None


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
    prompt_cache: PromptCacheFields | None = None


ClientStatus = StatusRecord[StatusPayload]
_decode_status = msgspec.json.Decoder(ClientStatus, strict=False).decode


def read_new_status(folder: str, start: int) -> tuple[list[ClientStatus], int]:
    """Return the status records of a session since byte `start`, and where the next read starts."""
    return read_new_records(f"{folder}/{STATUS}", start, _decode_status)


def read_client_cache(folder: Path | None) -> ClientCacheReport | None:
    """Return the client's last count of cache misses in a session's status log, if it has one."""
    records = read_new_status(str(folder), 0)[0] if folder else []
    for record in reversed(records):
        if cache := record.payload.prompt_cache:
            return ClientCacheReport(
                record.at_ms,
                cache.requests,
                cache.misses,
                cache.expected_rebuilds,
                cache.miss_recache_tokens,
                cache.miss_causes or {},
                cache.hit_ratio,
            )
    return None


def is_notice(record: HookRecord) -> bool:
    """Return whether a notification needs no answer: the agent is idle, or signed in."""
    if record.event != "Notification":
        return False
    payload = parse_object(bytes(record.payload)) or {}
    kind = text_field(payload, "notification_type")
    if not kind:  # clients before 2.1 send the text alone
        return "waiting for your input" in text_field(payload, "message")
    return kind != "permission_prompt" and not kind.startswith(("elicitation", "agent_needs"))


def read_tool_name(record: HookRecord) -> str:
    """Return the tool that a hook event is about; "" if it is about none."""
    return text_field(parse_object(bytes(record.payload)) or {}, "tool_name")


class HookReader:
    """Reads the hook records of one session in order, a few at a time."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, object]] = {}  # tool and input of those that did not end

    def read(self, records: Iterable[HookRecord]) -> Iterator[ToolHook | PromptSubmitted]:
        """Yield what the records say about tool calls and the running prompt."""
        for record in records:
            payload = parse_object(bytes(record.payload)) or {}
            call = text_field(payload, "tool_use_id")
            match record.event:
                case "UserPromptSubmit" if not payload.get("agent_id"):  # Codex's subagents
                    prompt, _ = cut_context(text_field(payload, "prompt"))
                    yield PromptSubmitted(record.at_ms, prompt.strip())
                case "Stop" | "StopFailure" | "SessionEnd":
                    yield PromptSubmitted(record.at_ms)
                case "PreToolUse":
                    self._calls[call] = _tool_and_input(payload)
                case "PermissionRequest":
                    yield ToolHook(call or self._find_call(payload), "ask")
                case "PermissionDenied":
                    yield ToolHook(call, "deny")
                case "PostToolUse" | "PostToolUseFailure":
                    yield self._end_call(call, payload)

    def _find_call(self, payload: dict[str, Any]) -> str:
        """Return the last call with this tool and input: a request does not name its call."""
        same = [call for call, given in self._calls.items() if given == _tool_and_input(payload)]
        return same[-1] if same else ""

    def _end_call(self, call: str, payload: dict[str, Any]) -> ToolHook:
        # The input before other hooks changed it; the transcript keeps that one.
        _, given = self._calls.pop(call, ("", None))
        executed = payload.get("tool_input")
        is_rewritten = given is not None and isinstance(executed, dict) and executed != given
        duration_ms = _duration_ms(payload.get("duration_ms"))
        return ToolHook(call, "allow", executed if is_rewritten else None, duration_ms)


def _duration_ms(value: object) -> int | None:
    """Return a payload's duration; None if it is none, since JSON numbers may be infinite."""
    is_duration = isinstance(value, int | float) and 0 <= value < _DURATION_MS_MAX
    return int(value) if is_duration else None  # type: ignore[call-overload]


def _tool_and_input(payload: dict[str, Any]) -> tuple[str, object]:
    return text_field(payload, "tool_name"), payload.get("tool_input")


def read_session_hooks(folder: Path | None) -> Iterator[ToolHook | PromptSubmitted]:
    """Yield what the hook log in a session's directory says about its tool calls and prompts."""
    records: list[HookRecord] = []
    if folder:
        with suppress(OSError, Unavailable):  # without its log a session is still read
            records.extend(read_hook_records(folder))
    return HookReader().read(sorted(records, key=lambda record: record.at_ms))


def find_transcript_paths(records: Iterable[HookRecord]) -> set[str]:
    """Return the absolute transcript paths that hook payloads name."""
    payloads = (parse_object(bytes(record.payload)) or {} for record in records)
    paths = {text_field(payload, "transcript_path") for payload in payloads}
    return {path for path in paths if path.startswith("/")}
