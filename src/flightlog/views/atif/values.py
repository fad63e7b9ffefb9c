"""Looking into JSON values that may be of any shape."""

from collections.abc import Iterator
from typing import Any


def iter_dicts(holder: dict[str, Any], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list field with their places; anything else is passed over."""
    value = holder.get(name)
    if isinstance(value, list):
        yield from ((place, item) for place, item in enumerate(value) if isinstance(item, dict))


def dict_field(holder: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object field, or an empty one."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def number_field(holder: dict[str, Any], name: str) -> int | float | None:
    """Return a number field, or None."""
    value = holder.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def iter_results(step: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what came back in a step."""
    yield from iter_dicts(dict_field(step, "observation"), "results")


def iter_texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, keys included, with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from iter_texts(item, f"{where}[{place}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield where, name
            yield from iter_texts(item, f"{where}.{name}" if where else name)


def content_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a message or a result."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
