"""Changing one thing in a recorded request, and knowing what was changed.

A person gets the request as JSON, edits it and gives it back; or says `set` and `drop_thinking`.
Thinking is signed by the model's maker: a block is kept as it was or left out, and one that is
neither is refused here, before anything is sent. Pure.
"""

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flightlog.lab.resampling.reading import RequestEdit
from flightlog.model.errors import Invalid

THINKING = ("thinking", "redacted_thinking")
_PART = re.compile(r"-?\d+", re.ASCII)
_MISSING: Any = object()
Path = tuple[str | int, ...]


def parse_edited_request(text: str) -> dict[str, Any]:
    """Read an edited request."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the edited request is not JSON: {error}", hint="correct the line it names") from error
    if not isinstance(said, dict) or not isinstance(said.get("messages"), list):
        raise Invalid("the edited request is not one to a model: it has no messages", hint="begin with --dump")
    return said


def find_edits(original: dict[str, Any], edited: dict[str, Any]) -> tuple[RequestEdit, ...]:
    """Say what an edit changed; refuse one that changes nothing, or a thinking block."""
    _check_thinking(original, edited)
    found = tuple(_iter_edits((), original, edited))
    if not found:
        raise Invalid("nothing was changed in the request", hint="ask again as it was: flightlog lab resample RUN")
    return found


def replace_values(original: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Put values at places such as `temperature`, `system` or `messages.-1.content.0.text`; None takes one away."""
    edited = copy.deepcopy(dict(original))
    for place, value in values.items():
        _set_value(edited, place, value)
    return edited


def without_thinking(original: Mapping[str, Any]) -> dict[str, Any]:
    """Leave every thinking block out."""
    edited = copy.deepcopy(dict(original))
    for message in edited.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            message["content"] = [each for each in content if not _is_thinking(each)]
    return edited


def _check_thinking(original: dict[str, Any], edited: dict[str, Any]) -> None:
    """Each thinking block must be one of the original's, and they must come in its order."""
    signed = iter([block for _, block in _iter_thinking_blocks(original, ())])
    for place, block in _iter_thinking_blocks(edited, ()):
        if not any(block == each for each in signed):
            raise Invalid(
                f"a thinking block was edited, added or moved: {_format_path(place)}",
                hint="thinking is signed: keep each block as it was, or leave it out (--drop-thinking)",
            )


def _iter_thinking_blocks(value: Any, place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every thinking block, wherever it stands."""
    if _is_thinking(value):
        yield place, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _iter_thinking_blocks(each, (*place, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _iter_thinking_blocks(each, (*place, at))


def _is_thinking(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("type") in THINKING) and ("thinking" in value or "data" in value)


def _iter_edits(place: Path, one: Any, other: Any) -> Iterator[RequestEdit]:
    if isinstance(one, dict) and isinstance(other, dict) and not _is_thinking(one):
        for key in dict.fromkeys((*one, *other)):
            yield from _iter_edits((*place, key), one.get(key, _MISSING), other.get(key, _MISSING))
    elif isinstance(one, list) and isinstance(other, list):
        yield from _iter_list_edits(place, one, other)
    elif one is _MISSING or other is _MISSING or _format_value(one) != _format_value(other):
        yield RequestEdit(place, None if one is _MISSING else one, None if other is _MISSING else other)


def _iter_list_edits(place: Path, one: Sequence[Any], other: Sequence[Any]) -> Iterator[RequestEdit]:
    """Elements are matched by what they hold, so that one that is taken away is one edit, not one for each after it."""
    matcher = difflib.SequenceMatcher(
        None, [_format_value(each) for each in one], [_format_value(each) for each in other], False
    )
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            continue
        both = min(j - i, m - k)
        for at in range(both):
            yield from _iter_edits((*place, i + at), one[i + at], other[k + at])
        for at in range(i + both, j):
            yield RequestEdit((*place, at), one[at], None)
        for at in range(k + both, m):
            yield RequestEdit((*place, at), None, other[at])


def _format_value(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _set_value(edited: dict[str, Any], place: str, value: Any) -> None:
    parts: list[str | int] = [int(each) if _PART.fullmatch(each) else each for each in place.split(".")]
    at: Any = edited
    try:
        for part in parts[:-1]:
            at = at[part]
        if isinstance(at, dict) and value is None:
            at.pop(parts[-1], None)
        else:
            at[int(parts[-1]) if isinstance(at, list) else parts[-1]] = value
    except (KeyError, IndexError, TypeError, ValueError):
        hint = "write it as in `messages.-1.content.0.text`; see the request with --dump"
        raise Invalid(f"the request has no such place: {place[:80]}", hint=hint) from None


def _format_path(place: Path) -> str:
    return ".".join(map(str, place))
