"""What the agent told its status line, as it was noted; every field may be missing.

Decodes `status.jsonl`. A record that is not what we expect is skipped, one by one.
"""

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE


class Model(Struct):
    """The model in use."""

    id: str | None = None
    display_name: str | None = None


class Tokens(Struct):
    """What the last request used."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None

    @property
    def total(self) -> int:
        """All of it; what was written to the cache is part of the context too."""
        written, read = self.cache_creation_input_tokens, self.cache_read_input_tokens
        return (self.input_tokens or 0) + (self.output_tokens or 0) + (written or 0) + (read or 0)


class ContextWindow(Struct):
    """How full the context is."""

    context_window_size: int | None = None
    current_usage: Tokens | None = None


class Cost(Struct):
    """What the client says the session cost."""

    total_cost_usd: float | None = None


class Limit(Struct):
    """A window of the vendor's; `resets_at` is seconds since 1970."""

    used_percentage: float | None = None
    resets_at: float | None = None

    @property
    def resets_ms(self) -> int:
        """The end of the window in milliseconds, 0 when unknown."""
        return int((self.resets_at or 0) * 1000)


class RateLimits(Struct):
    """The windows of a subscription; an API key has none."""

    five_hour: Limit | None = None
    seven_day: Limit | None = None


class Workspace(Struct):
    """Where the agent works."""

    current_dir: str | None = None
    project_dir: str | None = None


class Payload(Struct):
    """One payload of the status line."""

    transcript_path: str | None = None
    cwd: str | None = None
    version: str | None = None
    model: Model | None = None
    context_window: ContextWindow | None = None
    cost: Cost | None = None
    rate_limits: RateLimits | None = None
    workspace: Workspace | None = None


class Launch(Struct):
    """How the session was started, and a print of who pays."""

    config_dir: str = ""
    account: str = ""
    alias: str = ""
    profile: str = ""
    tmux_pane: str = ""
    tmux: str = ""
    pid: int = 0
    pid_started: int = 0


class Told(Struct):
    """One noted payload."""

    at_ms: int
    launch: Launch
    payload: Payload


_decode = msgspec.json.Decoder(Told, strict=False).decode


def told(line: bytes) -> Told | None:
    """Decode one line; None when it is none of ours."""
    try:
        return _decode(line)
    except UNREADABLE:
        return None
