"""Types of the runtime state: billing profiles and sessions.

Field names on disk are those of the source document (`authProfiles`, `costToday`, …). Fields after
those of the document are ours and are left out while they are unknown.
"""

from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct, field

VERSION = "1.0"
FRESH_MS = 300_000  # billing older than this is shown as stale
DEFAULT_PROFILE = "default"
DEFAULT_LABEL = "Primary Account"
MIGRATED = "billing-shared.json"  # the source of costs that an older program counted

T = TypeVar("T")


class VendorWindow(Struct, rename="camel"):
    """A limit as the vendor states it."""

    used_percent: float | None = None
    resets_at: int | None = None
    source: str = "statusline"
    as_of: int | None = None


class VendorLimits(Struct, rename="camel"):
    """The vendor's own limits, from the status line's payload."""

    five_hour: VendorWindow | None = None
    seven_day: VendorWindow | None = None
    seven_day_opus: VendorWindow | None = None
    seven_day_sonnet: VendorWindow | None = None
    spend_limit: VendorWindow | None = None


class Forecast(Struct, rename="camel"):
    """When the running window is used up at the current rate."""

    exhausted_at: int | None = None
    percent_at_reset: float | None = None
    source: str = ""


class Thresholds(Struct, rename="camel"):
    """Settings of a person, for all profiles or for one; budgets are USD, none by default."""

    context_warning_percent: float | None = None
    compaction_percent: float | None = None
    budget_warning_percent: float | None = None
    transcript_stale_minutes: float | None = None
    cost_today_usd: float | None = None
    cost_block_usd: float | None = None
    cost_week_usd: float | None = None


class Billing(Struct, rename="camel"):
    """Usage of a profile: `budget_remaining` in minutes, costs in USD, times in ms since 1970."""

    cost_today: float = 0.0
    burn_rate_per_hour: float = 0.0
    budget_remaining: int | None = None
    budget_percent_used: int | None = None
    reset_time: str | None = None
    total_tokens: int = 0
    tokens_per_minute: int | None = None
    is_fresh: bool = False
    last_fetched: int = 0
    block_start: int | None = None
    block_end: int | None = None
    block_cost_usd: float | None = None
    week_cost_usd: float | None = None
    week_start: int | None = None
    cost_source: str | None = None
    budget_source: str | None = None
    limits: VendorLimits | None = None
    forecast: Forecast | None = None

    @property
    def is_current(self) -> bool:
        """Whether the costs are those of now; an older program may have counted them long ago."""
        return self.is_fresh or self.cost_source != MIGRATED


class ProfileMetadata(Struct, rename="camel"):
    """How a profile was detected, and when it was used."""

    detection_method: str = "auto"
    first_seen: int = 0
    last_used: int | None = None
    total_sessions: int = 0


class AuthProfile(Struct, rename="camel"):
    """An account that is billed."""

    profile_id: str
    label: str = DEFAULT_LABEL
    billing: Billing = field(default_factory=Billing)
    metadata: ProfileMetadata = field(default_factory=ProfileMetadata)
    billing_fingerprint: str | None = None
    aliases: list[str] | None = None
    path_patterns: list[str] | None = None
    config_dirs: list[str] | None = None
    thresholds: Thresholds | None = None


class SessionHealth(Struct, rename="camel"):
    """Status, issues and lifecycle of a session."""

    status: str = "unknown"
    issues: list[str] = []
    last_update: int | None = None
    lifecycle: str | None = None


class ModelInfo(Struct, rename="camel"):
    """The model, where its name comes from, and how certain that is in percent."""

    value: str = "unknown"
    source: str = "default"
    confidence: int | None = None


class ContextUsage(Struct, rename="camel"):
    """Context usage, measured against the point of compaction, not the end of the window."""

    tokens_used: int = 0
    tokens_left: int = 0
    percent_used: int = 0
    window_size: int | None = None
    near_compaction: bool | None = None


class GitStatus(Struct, rename="camel"):
    """Branch and changes of the project's work tree."""

    branch: str | None = None
    ahead: int | None = None
    behind: int | None = None
    dirty: int | None = None
    last_checked: int | None = None


class TranscriptInfo(Struct, rename="camel"):
    """The session's transcript file, without its content."""

    exists: bool = False
    size_bytes: int = 0
    last_modified: int | None = None
    last_modified_ago: str | None = None
    message_count: int | None = None
    last_message_preview: str | None = None
    is_synced: bool | None = None


class Alerts(Struct, rename="camel"):
    """Conditions that need a person's attention."""

    secrets_detected: bool = False
    secret_types: list[str] = []
    transcript_stale: bool = False
    data_loss_risk: bool = False


class SessionMetadata(Struct, rename="camel"):
    """Time of the collection, and of the session's last activity."""

    gathered_at: int = 0
    last_activity: int = 0


class SessionCost(Struct, rename="camel"):
    """Cost of the session, by our own count and as the client reports it."""

    recorded_cost_usd: float | None = None
    client_cost_usd: float | None = None
    client_as_of: int | None = None


class ProfileSwitch(Struct, rename="camel"):
    """A profile that paid for a part of the session, and since when."""

    auth_profile: str
    since: int
    cost_usd: float | None = None


class TmuxPane(Struct, rename="camel"):
    """The tmux pane of the session, and the socket of its server."""

    pane: str = ""
    session: str | None = None
    window: str | None = None
    width: int | None = None
    height: int | None = None
    socket: str | None = None


class SessionActivity(Struct, rename="camel"):
    """The hook event that came last, when, and the tool that it names."""

    event: str = ""
    since: int = 0
    tool: str | None = None


class RuntimeSession(Struct, rename="camel"):
    """A live session, linked to its profile."""

    session_id: str
    auth_profile: str = DEFAULT_PROFILE
    project_path: str = ""
    transcript_path: str = ""
    health: SessionHealth = field(default_factory=SessionHealth)
    model: ModelInfo = field(default_factory=ModelInfo)
    context: ContextUsage = field(default_factory=ContextUsage)
    git: GitStatus | None = None
    transcript: TranscriptInfo | None = None
    alerts: Alerts | None = None
    metadata: SessionMetadata | None = None
    cost: SessionCost | None = None
    profile_switches: list[ProfileSwitch] | None = None
    tmux: TmuxPane | None = None
    activity: SessionActivity | None = None
    formatted_strings: dict[str, str] | None = None
    """The status line as last collected, without color, by `width40` to `width200`."""


class RuntimeState(Struct, rename="camel"):
    """Everything in `runtime-state.yaml`."""

    auth_profiles: list[AuthProfile] = []
    sessions: list[RuntimeSession] = []
    thresholds: Thresholds | None = None
    metadata: bool | None = None
    """Whether the file contains version, counts and the lookup by session."""

    def find_profile(self, profile_id: str) -> AuthProfile | None:
        """Return the profile with this id, or None."""
        profiles = self.auth_profiles
        return next((profile for profile in profiles if profile.profile_id == profile_id), None)


def create_default_runtime_state() -> RuntimeState:
    """Return an empty state."""
    return RuntimeState([], [])


def create_default_auth_profile(
    profile_id: str, now_ms: int = 0, *, method: str = "auto"
) -> AuthProfile:
    """Return a new profile with a label made from its id."""
    label = DEFAULT_LABEL if profile_id == DEFAULT_PROFILE else profile_id.replace("-", " ").title()
    return AuthProfile(profile_id, label, metadata=ProfileMetadata(method, now_ms, now_ms))


def session_health_to_runtime_session(
    page: dict[str, Any], auth_profile: str = ""
) -> RuntimeSession:
    """Return the session of a health file `<session-id>.json`, linked to its profile.

    The source document calls it `sessionHealthToRuntimeSession`.
    """
    launch = page.get("launch")
    paid_by = launch.get("authProfile") if isinstance(launch, dict) else None
    link = {"authProfile": auth_profile or page.get("authProfile") or paid_by or DEFAULT_PROFILE}
    return convert_leniently(RuntimeSession, {**page, **link}, "sessionId")


def has_automatic_label(profile: AuthProfile) -> bool:
    """Return whether a profile still has the label that was made from its id."""
    return profile.label == create_default_auth_profile(profile.profile_id).label


def with_freshness(profile: AuthProfile, now_ms: int) -> AuthProfile:
    """Set `isFresh` for the current time and return the profile."""
    profile.billing.is_fresh = 0 <= now_ms - profile.billing.last_fetched < FRESH_MS
    return profile


@cache
def list_fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a type by their names on disk, each with the fields of its own type."""
    return {
        item.encode_name: next(
            (
                list_fields(inner)
                for inner in (item.type, *get_args(item.type))
                if isinstance(inner, type) and issubclass(inner, Struct)
            ),
            {},
        )
        for item in msgspec.structs.fields(kind)
    }


def computed_fields(item: AuthProfile | RuntimeSession) -> dict[str, Any]:
    """Return the fields that leave the file when they become unknown; others are a person's."""
    fields = list_fields(type(item))
    names = fields if isinstance(item, RuntimeSession) else ("billing", "metadata")
    return {name: fields[name] for name in names}


def to_wire(value: Any) -> Any:
    """Return a state as plain values without None."""
    return _drop_none(msgspec.to_builtins(value))


def convert_leniently(kind: type[T], plain: dict[str, Any], required: str = "") -> T:
    """Convert what a person may have edited; drop values of the wrong type."""
    for _ in range(50):  # one value is dropped each time; no type has as many fields
        try:
            return msgspec.convert(plain, kind, strict=False)
        except msgspec.ValidationError as error:
            path = str(error).rpartition("at `$.")[2].rstrip("`").split("[")[0].split(".")
            if not _drop_path(plain, path):
                break
    return msgspec.convert({required: str(plain.get(required))} if required else {}, kind)


def _drop_path(plain: dict[str, Any], path: list[str]) -> bool:
    *above, last = path
    for name in above:
        inner = plain.get(name)
        if not isinstance(inner, dict):
            return plain.pop(name, None) is not None
        plain = inner
    return plain.pop(last, path) is not path


def _drop_none(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _drop_none(value) for key, value in plain.items() if value is not None}
    return [_drop_none(item) for item in plain] if isinstance(plain, list) else plain
