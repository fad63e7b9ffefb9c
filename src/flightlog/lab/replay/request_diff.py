"""In which places two requests differ, named as a person would: `tools.Bash.description`, `messages[3].content[0]`.

Marks for the cache and the two ways to write a single text are the same thing to a model, and are
not told apart. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

NAMED_MAX = 40


def canonical_value(value: Any) -> Any:
    """A value without marks for the cache, every message's content as blocks."""
    if isinstance(value, list):
        return [canonical_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {key: canonical_value(each) for key, each in value.items() if key != "cache_control"}
    if "role" in told and isinstance(told.get("content"), str):
        told["content"] = [{"type": "text", "text": told["content"]}]
    return told


def find_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> Iterator[str]:
    """Name the places in which `one` is not `other`, in the order of `other`; not more than a screen of them."""
    mine, theirs = (
        {
            name: _tools_by_name(name, value)
            for name, value in canonical_value(dict(each)).items()
            if name not in ignored
        }
        for each in (one, other)
    )
    for number, place in enumerate(_iter_differences(mine, theirs, "")):
        if number == NAMED_MAX:
            yield "and more"
            return
        yield place


def _tools_by_name(name: str, value: Any) -> Any:
    """Tools by their names, so that one more does not make every other look changed."""
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
