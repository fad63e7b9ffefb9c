"""What a line says about one model response: the few fields a ledger needs, decoded, and nothing else.

A line the typed decode refuses is looked at again elsewhere, with patience.
"""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from flightlog.model.usage import Row
from flightlog.sources.claude_code.values import LATEST_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Moment = Annotated[datetime, Meta(tz=True)]


class CacheWrites(Struct, frozen=True, gc=False):
    """Tokens written to the cache, of which some live longer."""

    ephemeral_1h_input_tokens: Count | None = 0


class ServerTools(Struct, frozen=True, gc=False):
    """Tools the model used by itself."""

    web_search_requests: Count | None = 0


class SpokenUsage(Struct, frozen=True, gc=False):
    """Tokens as the client writes them."""

    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation_input_tokens: Count | None = 0
    cache_creation: CacheWrites | None = None
    server_tool_use: ServerTools | None = None


NO_USAGE = SpokenUsage()


class Message(Struct, frozen=True, gc=False):
    """The answer, without what it says."""

    id: str = ""
    model: str = ""
    usage: SpokenUsage = NO_USAGE


NO_MESSAGE = Message()


class Spoken(Struct, frozen=True, gc=False, rename="camel"):
    """One line of a transcript that counts tokens."""

    type: str
    message: Message = NO_MESSAGE
    timestamp: Moment | None = None
    request_id: str | None = ""
    agent_id: str | None = ""
    is_sidechain: bool | None = False
    is_aborted_mid_stream: bool | None = False
    cwd: str | None = ""


decode = msgspec.json.Decoder(Spoken).decode


def lane(said: Spoken) -> str:
    """Name the thread a line belongs to; the main one has no name."""
    return said.agent_id or ("?" if said.is_sidechain else "")


def fuller(said: Spoken, known: Spoken) -> bool:
    """Say whether `said` is the better copy of a response: more output, else earlier."""
    new, old = said.message.usage.output_tokens or 0, known.message.usage.output_tokens or 0
    if new != old:
        return new > old
    return _tie(said) < _tie(known)


def row(said: Spoken, session: str, file_lane: str) -> Row:
    """Return what a line says as a row of `session`; a file of a lane's own names its lane."""
    message, stamp = said.message, said.timestamp
    use = message.usage
    writes = use.cache_creation_input_tokens or 0
    hour = (use.cache_creation.ephemeral_1h_input_tokens or 0) if use.cache_creation else 0
    at_ms = 0
    if stamp:
        since = stamp - _EPOCH
        at_ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    values = (
        message.id,
        session,
        message.model,
        use.input_tokens or 0,
        use.output_tokens or 0,
        use.cache_read_input_tokens or 0,
        writes - hour if writes > hour else 0,
        hour,
        (use.server_tool_use.web_search_requests or 0) if use.server_tool_use else 0,
        at_ms if 0 <= at_ms < LATEST_MS else 0,
        said.cwd or "",
        said.request_id or "",
        file_lane or lane(said),
        said.is_aborted_mid_stream or False,
    )
    return tuple.__new__(Row, values)


def _tie(said: Spoken) -> tuple[float, str, tuple[int, ...], str]:
    """Between equals the order of lines must not decide."""
    use = said.message.usage
    counts = (use.input_tokens or 0, use.cache_read_input_tokens or 0, use.cache_creation_input_tokens or 0)
    return said.timestamp.timestamp() if said.timestamp else 0.0, said.message.model, counts, said.cwd or ""
