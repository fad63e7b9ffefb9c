"""The runtime state as a value: accounts above, sessions below, as the source document names them.

Field names on disk are the document's (`authProfiles`, `costToday`, …); fields after those of the
document are ours, and left out while they are unknown. No file is touched here.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

VERSION = "1.0"
FRESH_MS = 300_000
DEFAULT_PROFILE = "default"
DEFAULT_LABEL = "Primary Account"

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


class Forecast(Struct, rename="camel"):
    """When the running window is used up if nothing changes."""

    exhausted_at: int | None = None
    percent_at_reset: float | None = None
    source: str = ""


class Thresholds(Struct, rename="camel"):
    """What a person may set, for all profiles or for one; budgets are USD, none by default."""

    context_warning_percent: float | None = None
    compaction_percent: float | None = None
    budget_warning_percent: float | None = None
    transcript_stale_minutes: float | None = None
    cost_today_usd: float | None = None
    cost_block_usd: float | None = None
    cost_week_usd: float | None = None


class Billing(Struct, rename="camel"):
    """What a profile used; `budget_remaining` is minutes, costs are USD, times milliseconds since 1970."""

    cost_today: float = 0.0
    burn_rate_per_hour: float = 0.0
    budget_remaining: int = 0
    budget_percent_used: int = 0
    reset_time: str = "00:00"
    total_tokens: int = 0
    tokens_per_minute: int | None = None
    is_fresh: bool = False
    last_fetched: int = 0
    block_start: int | None = None
    block_end: int | None = None
    block_cost: float | None = None
    week_cost: float | None = None
    week_start: int | None = None
    cost_source: str | None = None
    budget_source: str | None = None
    limits: VendorLimits | None = None
    forecast: Forecast | None = None


class ProfileMetadata(Struct, rename="camel"):
    """How a profile was found, and when it was seen."""

    detection_method: str = "auto"
    first_seen: int = 0
    last_used: int = 0
    total_sessions: int = 0


class AuthProfile(Struct, rename="camel"):
    """Who is billed."""

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
    """How a session is, why, and where in its life."""

    status: str = "unknown"
    issues: list[str] = []
    last_update: int | None = None
    lifecycle: str | None = None


class ModelInfo(Struct, rename="camel"):
    """Which model, and how sure."""

    value: str = "unknown"
    source: str = "default"
    confidence: int | None = None


class ContextUsage(Struct, rename="camel"):
    """The context up to compaction, not up to the window's end."""

    tokens_used: int = 0
    tokens_left: int = 0
    percent_used: int = 0
    window_size: int | None = None
    near_compaction: bool | None = None


class GitStatus(Struct, rename="camel"):
    """The working copy."""

    branch: str | None = None
    ahead: int | None = None
    behind: int | None = None
    dirty: int | None = None
    last_checked: int | None = None


class TranscriptInfo(Struct, rename="camel"):
    """The session's own file; no words of it."""

    exists: bool = False
    size_bytes: int = 0
    last_modified: int | None = None
    last_modified_ago: str | None = None
    message_count: int | None = None
    last_message_preview: str | None = None
    is_synced: bool | None = None


class Alerts(Struct, rename="camel"):
    """What needs a person."""

    secrets_detected: bool = False
    secret_types: list[str] = []
    transcript_stale: bool = False
    data_loss_risk: bool = False


class SessionMetadata(Struct, rename="camel"):
    """When we looked, and when something happened."""

    gathered_at: int = 0
    last_activity: int = 0


class SessionCost(Struct, rename="camel"):
    """What the session cost, by our ledger and by the client, each with its time."""

    ledger_usd: float | None = None
    client_usd: float | None = None
    client_as_of: int | None = None


class ProfileSwitch(Struct, rename="camel"):
    """From when on another profile paid."""

    auth_profile: str
    since: int
    cost: float | None = None


class TmuxPane(Struct, rename="camel"):
    """Where on the screen it runs."""

    pane: str = ""
    session: str | None = None
    window: str | None = None
    width: int | None = None
    height: int | None = None


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
    swaps: list[ProfileSwitch] | None = None
    tmux: TmuxPane | None = None
    formatted_strings: dict[str, str] | None = None
    """The status line as last gathered, without colour, by `width40` to `width200`."""


class RuntimeState(Struct, rename="camel"):
    """Everything in `runtime-state.yaml`."""

    auth_profiles: list[AuthProfile] = []
    sessions: list[RuntimeSession] = []
    thresholds: Thresholds | None = None
    metadata: bool | None = None
    """Whether the file shall say its version, counts and where to find a session."""

    def find_profile(self, profile_id: str) -> AuthProfile | None:
        """The profile of that id."""
        return next((each for each in self.auth_profiles if each.profile_id == profile_id), None)


def create_default_runtime_state() -> RuntimeState:
    """A state with nothing in it."""
    return RuntimeState([], [])


def create_default_auth_profile(profile_id: str, now_ms: int = 0, *, method: str = "auto") -> AuthProfile:
    """A profile nobody has named yet."""
    label = DEFAULT_LABEL if profile_id == DEFAULT_PROFILE else profile_id.replace("-", " ").title()
    return AuthProfile(profile_id, label, metadata=ProfileMetadata(method, now_ms, now_ms))


def with_freshness(profile: AuthProfile, now_ms: int) -> AuthProfile:
    """The profile with `isFresh` as it is now, whatever was written."""
    profile.billing.is_fresh = 0 <= now_ms - profile.billing.last_fetched < FRESH_MS
    return profile


def to_wire(value: Any) -> Any:
    """A state as plain values, what is unknown left out."""
    plain = msgspec.to_builtins(value)
    return _drop_unknown_keys(plain)


def convert_leniently(kind: type[T], plain: dict[str, Any], required: str = "") -> T:
    """Read what a person may have edited: a value of the wrong kind counts as not there."""
    for _ in range(50):
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


def _drop_unknown_keys(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _drop_unknown_keys(value) for key, value in plain.items() if value is not None}
    return [_drop_unknown_keys(each) for each in plain] if isinstance(plain, list) else plain
