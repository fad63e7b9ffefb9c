"""Read JSON of unknown shape, and search lines without decoding them.

A field of the wrong type reads as absent; nothing here raises on odd values.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from flightlog.model.errors import UNREADABLE
from flightlog.model.text import replace_surrogates
from flightlog.store.recordings.reader import open_reader

_BLOCK_BYTES = 4 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 7_258_118_400_000  # the year 2200; a later time is damage, not the time of a recording


def find_lines(path: str, words: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each line that contains `words`, ignoring ASCII case.

    The match may be in a field that is never shown, so the caller checks the decoded record.
    """
    # As JSON writes them; a lone surrogate cannot be encoded.
    needle = msgspec.json.encode(words.encode("utf-8", "replace").decode())[1:-1].lower()
    with suppress(OSError), closing(open_reader(path)) as file:
        at, rest = 0, b""
        while block := file.read(at + len(rest), _BLOCK_BYTES):
            block = rest + block
            end = block.rfind(b"\n") + 1
            spans = _find_line_spans(block[:end], needle)
            yield from ((at + start, length) for start, length in spans)
            at, rest = at + end, block[end:]
        yield from ((at + start, length) for start, length in _find_line_spans(rest, needle))


def _find_line_spans(block: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    lowered = block.lower()
    at = lowered.find(needle)
    while at >= 0:
        start = lowered.rfind(b"\n", 0, at) + 1
        end = lowered.find(b"\n", at)
        end = len(block) if end < 0 else end
        yield start, end - start
        at = lowered.find(needle, end)


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object on `line`, or None if there is none.

    The strict parser rejects lone surrogates and invalid UTF-8; the second, slower one
    repairs them, so that a truncated emoji does not cost the whole record.
    """
    try:
        value = msgspec.json.decode(line)
    except UNREADABLE:
        value = _parse_damaged(line)
    return value if isinstance(value, dict) else None


def read_json_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file as written, lone surrogates too; skip damaged lines."""
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


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


def time_field(record: dict[str, Any], key: str) -> int:
    """Return a time in milliseconds before the year 2200, or 0."""
    at_ms = int_field(record, key)
    return at_ms if at_ms < LATEST_MS else 0


def object_field(record: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object field, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_field(record: dict[str, Any], key: str) -> list[Any]:
    """Return a list field, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def objects_field(record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of a list field, without anything else in it."""
    return [item for item in list_field(record, key) if isinstance(item, dict)]


def parse_timestamp_ms(stamp: str) -> int | None:
    """Return an ISO 8601 time between 1970 and 2200 in milliseconds; UTC if it names no zone."""
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    at_ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    return at_ms if 0 <= at_ms < LATEST_MS else None


def iter_strings(values: Iterable[Any]) -> Iterator[str]:
    """Yield strings at any depth; without recursion, because hostile data may nest too deep."""
    stack = [iter(values)]
    while stack:
        for value in stack[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict | list):
                stack.append(iter(value.values() if isinstance(value, dict) else value))
                break
        else:
            stack.pop()


def _parse_damaged(line: bytes) -> Any:
    try:
        return replace_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None
