"""JSON as every command prints it.

Every command that prints JSON imports this module, so it imports little.
"""

import json
import re
from typing import Any

import msgspec

from flightlog.model.text import UNSAFE
from flightlog.model.usage import TokenCounts

_COUNTS = TokenCounts.__struct_fields__
_LONE_SURROGATE = rb"\\ud[89a-f][0-9a-f]{2}"


def as_json(value: Any) -> str:
    """Return indented JSON; characters that could act on a terminal are escaped.

    Token counts of which none was recorded are null, never zero.
    """
    return _escape_unsafe(msgspec.json.format(_encode_json(value), indent=2))


def as_json_line(value: Any) -> str:
    """Return JSON on one line, escaped like `as_json`."""
    return _escape_unsafe(_encode_json(value))


def _encode_json(value: Any) -> bytes:
    try:
        body = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file name that is not UTF-8; all other text was made valid when it was decoded.
        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
        body = re.sub(_LONE_SURROGATE, rb"\\ufffd", text.encode())
    if b'"cost_usd":null' not in body:
        return body
    return msgspec.json.encode(json.loads(body, object_hook=_null_unknown_counts))


def _null_unknown_counts(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object; as in `is_unknown`, zeros without a cost are unknown."""
    is_known = fields.get("cost_usd", 0) is not None or any(map(fields.get, _COUNTS))
    return fields if is_known else fields | dict.fromkeys(fields.keys() & {*_COUNTS})


def _escape_unsafe(body: bytes) -> str:
    if body.isascii() and b"\x7f" not in body:
        return body.decode()  # JSON escapes the other control characters
    return UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", body.decode())
