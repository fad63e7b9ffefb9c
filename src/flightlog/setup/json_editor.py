"""Editing JSON that belongs to somebody else: what is not ours keeps every byte.

Works on the text: a value is added behind the last one in the style of the file, or cut out
with its comma, and nothing else moves. Knows JSON, not what any setting means.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.model.errors import Misconfigured

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class JsonMember(NamedTuple):
    """A member of an object (or, without a key, an item of an array) and where it stands."""

    key: str
    value: Any
    start: int
    value_start: int
    end: int


class JsonStyle(NamedTuple):
    """How a file is written."""

    indent: str
    line_end: str


def style_of(text: str) -> JsonStyle:
    """Tell a file's style by its first indentation and its line ends."""
    found = re.search(r"\n([ \t]+)\S", text)
    return JsonStyle(found[1] if found else "  ", "\r\n" if "\r\n" in text else "\n")


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Read `text` as an object with no key twice, or refuse it with line and column."""
    try:
        value = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError as error:
        raise Misconfigured(
            f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}: {name}",
            hint="correct it and run the command again; nothing was changed",
        ) from error
    except ValueError as error:
        raise Misconfigured(
            f"{error}: {name}", hint="keep one of the two and run the command again; nothing was changed"
        ) from error
    if not isinstance(value, dict):
        raise Misconfigured(
            f"not a JSON object: {name}", hint="begin it with '{' and run the command again; nothing was changed"
        )
    return value


def list_parts(text: str, at: int) -> list[JsonMember]:
    """List what the object or array that begins at `at` holds."""
    return list(_object_parts(text, at) if text[at] == "{" else _array_parts(text, at))


def find_part(text: str, at: int, key: str) -> JsonMember | None:
    """Find one member of the object that begins at `at`."""
    return next((found for found in list_parts(text, at) if found.key == key), None)


def root_offset(text: str) -> int:
    """Where the outermost value begins."""
    return _skip_space(text, 0)


def add_member(text: str, at: int, member: tuple[str, object], style: JsonStyle) -> str:
    """Put a key and its value last into the object (without key: the array) that begins at `at`."""
    key, value = member
    held = list_parts(text, at)
    depth = _nesting_depth(text, at) + 1
    new_line = style.line_end + style.indent * depth
    piece = json.dumps(value, indent=style.indent, ensure_ascii=False).replace("\n", new_line)
    piece = new_line + (f"{json.dumps(key, ensure_ascii=False)}: " if key else "") + piece
    if held:
        return text[: held[-1].end] + "," + piece + text[held[-1].end :]
    closing = _skip_space(text, at + 1)
    return text[: at + 1] + piece + style.line_end + style.indent * (depth - 1) + text[closing:]


def replace_value(text: str, found: JsonMember, value: object) -> str:
    """Put another value in the place of one."""
    return text[: found.value_start] + json.dumps(value, ensure_ascii=False) + text[found.end :]


def remove_part(text: str, at: int, index: int) -> str:
    """Cut one part out of the object or array that begins at `at`, with its comma."""
    held = list_parts(text, at)
    if len(held) == 1:
        return text[: at + 1] + text[_skip_space(text, held[0].end) :]
    if index == len(held) - 1:
        return text[: held[index - 1].end] + text[held[index].end :]
    return text[: held[index].start] + text[held[index + 1].start :]


def _nesting_depth(text: str, at: int) -> int:
    """How many objects and arrays hold the one that begins at `at`."""
    depth, here = 0, root_offset(text)
    while here != at:
        here = next(one.value_start for one in list_parts(text, here) if one.value_start <= at < one.end)
        depth += 1
    return depth


def _object_parts(text: str, at: int) -> Iterator[JsonMember]:
    here = _skip_space(text, at + 1)
    while text[here] != "}":
        key, after = _DECODER.raw_decode(text, here)
        value_start = _skip_space(text, _skip_space(text, after) + 1)
        value, end = _DECODER.raw_decode(text, value_start)
        yield JsonMember(key, value, here, value_start, end)
        here = _next_part_offset(text, end)


def _array_parts(text: str, at: int) -> Iterator[JsonMember]:
    here = _skip_space(text, at + 1)
    while text[here] != "]":
        value, end = _DECODER.raw_decode(text, here)
        yield JsonMember("", value, here, here, end)
        here = _next_part_offset(text, end)


def _next_part_offset(text: str, end: int) -> int:
    here = _skip_space(text, end)
    return _skip_space(text, here + 1) if text[here] == "," else here


def _skip_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [one for one, _ in pairs].count(key) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found
