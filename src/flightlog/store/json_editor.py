"""Edit JSON files of other programs: everything else keeps every byte.

Works on the text: a value is added after the last one in the style of the file, or removed with its
comma. Knows JSON, not the meaning of any setting.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.model.errors import Misconfigured

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
CORRECT = "correct it and run the command again; nothing was changed"


class JsonMember(NamedTuple):
    """A member of an object (or, without a key, an item of an array) and its offsets."""

    key: str
    value: Any
    start: int
    value_start: int
    end: int


class JsonStyle(NamedTuple):
    """Indentation and line ends of a file."""

    indent: str
    line_end: str


def style_of(text: str) -> JsonStyle:
    """Return a file's style from its first indentation and its line ends."""
    match = re.search(r"\n([ \t]+)\S", text)
    return JsonStyle(match[1] if match else "  ", "\r\n" if "\r\n" in text else "\n")


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Parse `text` as an object without duplicate keys, or raise `Misconfigured`."""
    try:
        value = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError as error:
        problem = (
            f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}: {name}"
        )
        raise Misconfigured(problem, hint=CORRECT) from error
    except ValueError as error:
        raise Misconfigured(f"{error}: {name}", hint=CORRECT) from error
    if not isinstance(value, dict):
        raise Misconfigured(f"not a JSON object: {name}", hint=CORRECT)
    return value


def list_parts(text: str, at: int) -> list[JsonMember]:
    """Return the parts of the object or array that starts at `at`."""
    return list(_object_parts(text, at) if text[at] == "{" else _array_parts(text, at))


def find_part(text: str, at: int, key: str) -> JsonMember | None:
    """Return one member of the object that starts at `at`, if it exists."""
    return next((part for part in list_parts(text, at) if part.key == key), None)


def root_offset(text: str) -> int:
    """Return the offset of the outermost value."""
    return _skip_space(text, 0)


def add_member(text: str, at: int, member: tuple[str, object], style: JsonStyle) -> str:
    """Append a key and its value to the object (without key: the array) that starts at `at`."""
    key, value = member
    parts = list_parts(text, at)
    depth = _nesting_depth(text, at) + 1
    new_line = style.line_end + style.indent * depth
    piece = json.dumps(value, indent=style.indent, ensure_ascii=False).replace("\n", new_line)
    piece = new_line + (f"{json.dumps(key, ensure_ascii=False)}: " if key else "") + piece
    if parts:
        return text[: parts[-1].end] + "," + piece + text[parts[-1].end :]
    closing = _skip_space(text, at + 1)
    return text[: at + 1] + piece + style.line_end + style.indent * (depth - 1) + text[closing:]


def replace_value(text: str, member: JsonMember, value: object) -> str:
    """Replace the value of a member."""
    return text[: member.value_start] + json.dumps(value, ensure_ascii=False) + text[member.end :]


def remove_part(text: str, at: int, index: int) -> str:
    """Remove one part of the object or array that starts at `at`, with its comma."""
    parts = list_parts(text, at)
    if len(parts) == 1:
        return text[: at + 1] + text[_skip_space(text, parts[0].end) :]
    if index == len(parts) - 1:
        return text[: parts[index - 1].end] + text[parts[index].end :]
    return text[: parts[index].start] + text[parts[index + 1].start :]


def _nesting_depth(text: str, at: int) -> int:
    """Return how many objects and arrays enclose the one that starts at `at`."""
    depth, offset = 0, root_offset(text)
    while offset != at:
        parts = list_parts(text, offset)
        offset = next(part.value_start for part in parts if part.value_start <= at < part.end)
        depth += 1
    return depth


def _object_parts(text: str, at: int) -> Iterator[JsonMember]:
    offset = _skip_space(text, at + 1)
    while text[offset] != "}":
        key, after = _DECODER.raw_decode(text, offset)
        value_start = _skip_space(text, _skip_space(text, after) + 1)
        value, end = _DECODER.raw_decode(text, value_start)
        yield JsonMember(key, value, offset, value_start, end)
        offset = _next_part_offset(text, end)


def _array_parts(text: str, at: int) -> Iterator[JsonMember]:
    offset = _skip_space(text, at + 1)
    while text[offset] != "]":
        value, end = _DECODER.raw_decode(text, offset)
        yield JsonMember("", value, offset, offset, end)
        offset = _next_part_offset(text, end)


def _next_part_offset(text: str, end: int) -> int:
    offset = _skip_space(text, end)
    return _skip_space(text, offset + 1) if text[offset] == "," else offset


def _skip_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return members
