"""Token counts of the Messages API: the one decoder of its `usage` object.

The byte scan decodes straight into `UsageFields`; all other readers have a mapping already and
call `decode_usage`. Both give the same counts.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from flightlog.model.usage import Usage
from flightlog.sources.claude_code.values import int_field, object_field

Count = Annotated[int, Meta(ge=0, lt=2**53)]


class CacheCreationFields(Struct, frozen=True, gc=False):
    """The part of the cache writes that lives for an hour."""

    ephemeral_1h_input_tokens: Count | None = 0


class ServerToolFields(Struct, frozen=True, gc=False):
    """Calls of tools that the API runs itself."""

    web_search_requests: Count | None = 0


class UsageFields(Struct, frozen=True, gc=False):
    """The API's `usage` object as it is written; a client may write null for any field."""

    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation_input_tokens: Count | None = 0
    cache_creation: CacheCreationFields | None = None
    server_tool_use: ServerToolFields | None = None

    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Return the counts in the order of `Usage`.

        `cache_creation_input_tokens` includes the 1-hour writes; the rest lives 5 minutes, and so
        do writes whose life time is not given.
        """
        writes = self.cache_creation_input_tokens or 0
        hour = (self.cache_creation.ephemeral_1h_input_tokens or 0) if self.cache_creation else 0
        return (
            self.input_tokens or 0,
            self.output_tokens or 0,
            self.cache_read_input_tokens or 0,
            writes - hour if writes > hour else 0,
            hour,
            (self.server_tool_use.web_search_requests or 0) if self.server_tool_use else 0,
        )

    def usage(self) -> Usage:
        """Return the tokens by price class."""
        return Usage(*self.counts())


def decode_usage(value: Any) -> Usage:
    """Return the tokens that a decoded `usage` object counts, zero where a field has the wrong type."""
    fields = value if isinstance(value, dict) else {}
    return UsageFields(
        int_field(fields, "input_tokens"),
        int_field(fields, "output_tokens"),
        int_field(fields, "cache_read_input_tokens"),
        int_field(fields, "cache_creation_input_tokens"),
        CacheCreationFields(int_field(object_field(fields, "cache_creation"), "ephemeral_1h_input_tokens")),
        ServerToolFields(int_field(object_field(fields, "server_tool_use"), "web_search_requests")),
    ).usage()
