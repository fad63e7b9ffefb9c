"""A tool's input as a person would write it: the telling argument first, files as what changes in them."""

import json
from typing import Any

_TELLING = ("command", "file_path", "pattern", "url", "query", "prompt")


def format_arguments(given: dict[str, Any]) -> str:
    """Write a tool's input."""
    name = next((name for name in _TELLING if isinstance(given.get(name), str)), None)
    if name is None:
        return _to_json(given) if given else ""
    body, shown = _format_body(given)
    rest = {key: value for key, value in given.items() if key not in {name, "description", *shown}}
    head = f"{given[name]} {_to_json(rest)}" if rest else str(given[name])
    return f"{head}\n{body}" if body else head


def _format_body(given: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Show a change of a file line by line, as a diff does."""
    old, new, content = given.get("old_string"), given.get("new_string"), given.get("content")
    if isinstance(old, str) and isinstance(new, str):
        return f"{_mark_lines('-', old)}\n{_mark_lines('+', new)}", ("old_string", "new_string", "replace_all")
    if isinstance(content, str):
        return _mark_lines("+", content), ("content",)
    return "", ()


def _mark_lines(mark: str, text: str) -> str:
    return "\n".join(f"{mark} {line}".rstrip() for line in text.rstrip("\n").split("\n"))


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
