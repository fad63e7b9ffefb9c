"""Decode usage of the Chat Completions API and of the servers that imitate it.

    {"prompt_tokens": 1450, "prompt_tokens_details": {"cached_tokens": 400},
     "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 30}}

Cached tokens are in `prompt_tokens`, and reasoning, billed as output, is in `completion_tokens`.
Some servers have no details: Moonshot reports `cached_tokens` beside `prompt_tokens`, DeepSeek
`prompt_cache_hit_tokens`; both are parts of it too.
"""

from typing import Any

from flightlog.model.usage import Usage, split_prompt
from flightlog.sources.foreign_json import int_field, object_field


def decode_usage(value: Any) -> Usage:
    """Return the tokens of a decoded `usage` object; a field of the wrong type counts zero."""
    fields = value if isinstance(value, dict) else {}
    details = object_field(fields, "prompt_tokens_details")
    cached = (
        int_field(details, "cached_tokens")
        or int_field(fields, "cached_tokens")
        or int_field(fields, "prompt_cache_hit_tokens")
    )
    return split_prompt(
        int_field(fields, "prompt_tokens"),
        int_field(fields, "completion_tokens"),
        cache_read=cached,
        cache_write=int_field(details, "cache_write_tokens"),
    )
