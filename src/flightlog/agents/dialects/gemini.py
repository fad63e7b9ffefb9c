"""Decode usage of the Gemini API.

    {"promptTokenCount": 1400, "cachedContentTokenCount": 400, "toolUsePromptTokenCount": 20,
     "candidatesTokenCount": 60, "thoughtsTokenCount": 30, "totalTokenCount": 1510}

Cached tokens are in `promptTokenCount`. The results of tools that the API runs itself, and thoughts,
which are billed as output, are counted beside the prompt and the candidates.

Qwen Code writes the same names for other APIs, whose output includes the thoughts: the total tells.
"""

from typing import Any

from flightlog.model.usage import Usage, split_prompt
from flightlog.sources.foreign_json import int_field


def decode_usage(value: Any) -> Usage:
    """Return the tokens of a decoded `usageMetadata`; a field of the wrong type counts zero."""
    fields = value if isinstance(value, dict) else {}
    prompt = int_field(fields, "promptTokenCount") + int_field(fields, "toolUsePromptTokenCount")
    output = int_field(fields, "candidatesTokenCount")
    includes_thoughts = int_field(fields, "totalTokenCount") == prompt + output
    return split_prompt(
        prompt,
        output + (0 if includes_thoughts else int_field(fields, "thoughtsTokenCount")),
        cache_read=int_field(fields, "cachedContentTokenCount"),
    )
