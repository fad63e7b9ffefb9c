"""Payloads that Claude Code gives to its hooks and its status line; every field may be missing."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from flightlog.model.events import HookRecord
from flightlog.sources.api.usage import UsageFields
from flightlog.sources.claude_code.values import parse_object, text_field
from flightlog.sources.hook_log import StatusRecord, read_new_status_records


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
