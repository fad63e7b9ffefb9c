"""Decode usage of the OpenAI Responses API, which Codex calls.

    {"input_tokens": 1450, "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 50},
     "output_tokens": 90, "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 1540}

The details are parts of the counts beside them: what was read from and written to the cache is in
`input_tokens`, and reasoning, billed as output, is in `output_tokens`.
"""

from typing import Any

from flightlog.model.usage import Usage, split_prompt
from flightlog.sources.foreign_json import int_field, object_field


def decode_usage(value: Any) -> Usage:
    """Return the tokens of a decoded `usage` object; a field of the wrong type counts zero."""
    fields = value if isinstance(value, dict) else {}
    details = object_field(fields, "input_tokens_details")
    return split_prompt(
        int_field(fields, "input_tokens"),
        int_field(fields, "output_tokens"),
        cache_read=int_field(details, "cached_tokens"),
        cache_write=int_field(details, "cache_write_tokens"),
    )
