"""JSON as every command prints it.

Every command that prints JSON waits for this module, so it imports little.
"""

import re
from typing import Any

import msgspec

_LONE = rb"\\ud[89a-f][0-9a-f]{2}"


def as_json(value: Any) -> str:
    """Write JSON that can be read anywhere and shown on a terminal: what could act there is escaped."""
    return _escape_unsafe(msgspec.json.format(_encode_json(value), indent=2))


def as_json_line(value: Any) -> str:
    """Write the same on one line."""
    return _escape_unsafe(_encode_json(value))


def _encode_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json  # noqa: PLC0415 - two milliseconds, hardly ever needed

        # A file name that is not text; everything else was made text when it was decoded.
        return re.sub(_LONE, rb"\\ufffd", json.dumps(msgspec.to_builtins(value)).encode())


def _escape_unsafe(body: bytes) -> str:
    if body.isascii() and b"\x7f" not in body:
        return body.decode()  # what else could act is escaped in any JSON
    from flightlog.model.text import UNSAFE  # noqa: PLC0415 - its pattern takes a while to compile

    return UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", body.decode())
