"""Writing plain values as YAML the way the templates do: block style, strings in double quotes.

A page is written at each task's end, so this is a few lines and not a general emitter. A JSON
string is a YAML string; what a person may edit is read back with a real parser.
"""

import json
from collections.abc import Iterator
from typing import Any


def dump_yaml(value: dict[str, Any]) -> str:
    """Write a mapping; its top-level blocks are set apart by an empty line, as in the templates."""
    blocks = [[]] if value else []  # type: list[list[str]]
    for name, each in value.items():
        lines = list(_entry_lines(name, each, ""))
        if isinstance(each, dict | list) and each and blocks[-1]:
            blocks.append([])
        blocks[-1] += lines
        if isinstance(each, dict | list) and each:
            blocks.append([])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _entry_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    key = f"{indent}{_quote_key(name)}:"
    match value:
        case dict() if value:
            yield key
            for each, inner in value.items():
                yield from _entry_lines(str(each), inner, indent + "  ")
        case list() | tuple() if value:
            yield key
            for each in value:
                yield from _item_lines(each, indent + "  ")
        case _:
            yield f"{key} {_format_scalar(value)}"


def _item_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        lines = [line for name, inner in value.items() for line in _entry_lines(str(name), inner, indent + "  ")]
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        yield f"{indent}- {_format_scalar(value)}"


def _quote_key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit() else json.dumps(name)


def _format_scalar(value: Any) -> str:
    """A leaf, or a whole value in JSON's own form, which is YAML too."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
