"""Name the differences between two requests, as in `messages[3].content[0]`.

Cache markers and the two spellings of a single text are the same to a model, so they do not count
as differences. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

NAMED_MAX = 40  # about one screen


def canonical_value(value: Any) -> Any:
    """Return a value without cache markers, with the content of every message as blocks."""
    if isinstance(value, list):
        return [canonical_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    mapping = {key: canonical_value(item) for key, item in value.items() if key != "cache_control"}
    if "role" in mapping and isinstance(mapping.get("content"), str):
        mapping["content"] = [{"type": "text", "text": mapping["content"]}]
    return mapping


def find_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> Iterator[str]:
    """Yield the names of places where `one` differs from `other`, in the order of `other`.

    Stops with "and more" after `NAMED_MAX` names.
    """
    left, right = (
        {
            name: _tools_by_name(name, value)
            for name, value in canonical_value(dict(request)).items()
            if name not in ignored
        }
        for request in (one, other)
    )
    for number, name in enumerate(_iter_differences(left, right, "")):
        if number == NAMED_MAX:
            yield "and more"
            return
        yield name


def _tools_by_name(name: str, value: Any) -> Any:
    """Key tools by name, so that an added tool does not make every other look changed."""
    if name != "tools" or not isinstance(value, list):
        return value
    return {str(tool.get("name", at)) if isinstance(tool, dict) else str(at): tool for at, tool in enumerate(value)}


def _iter_differences(one: Any, other: Any, at: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*other, *one)):
            inner = f"{at}.{name}" if at else str(name)
            if name not in one or name not in other:
                yield f"{inner} ({'missing' if name not in one else 'added'})"
            else:
                yield from _iter_differences(one[name], other[name], inner)
    elif isinstance(one, list) and isinstance(other, list):
        for number in range(max(len(one), len(other))):
            inner = f"{at}[{number}]"
            if number >= len(one) or number >= len(other):
                yield f"{inner} ({'missing' if number >= len(one) else 'added'})"
            else:
                yield from _iter_differences(one[number], other[number], inner)
    elif one != other or type(one) is not type(other):
        yield at
