"""Reading foreign JSON without trusting its shape.

A field of the wrong type reads as absent; nothing here raises on odd values.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from flightlog.model.damage import UNREADABLE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 7_258_118_400_000  # the year 2200; what lies beyond is no time of a recording


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object on `line`, or None when there is none.

    The strict parser refuses lone surrogates and invalid UTF-8; the second, slower one
    repairs them, so that a truncated emoji does not cost the whole record.
    """
    try:
        value = msgspec.json.decode(line)
    except UNREADABLE:
        value = _parse_damaged(line)
    return value if isinstance(value, dict) else None


def text_field(record: dict[str, Any], key: str) -> str:
    """Return a string field, or the empty string."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def int_field(record: dict[str, Any], key: str) -> int:
    """Return a whole, non-negative number, or 0."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**53 else 0


def object_field(record: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object field, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_field(record: dict[str, Any], key: str) -> list[Any]:
    """Return a list field, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def parse_timestamp_ms(stamp: str) -> int | None:
    """Turn an ISO 8601 time between 1970 and 2200 into milliseconds, UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    passed = moment - _EPOCH
    at_ms = (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000
    return at_ms if 0 <= at_ms < LATEST_MS else None


def _parse_damaged(line: bytes) -> Any:
    import json  # noqa: PLC0415 - a usage report of sound lines does not wait for it

    try:
        return _replace_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value
