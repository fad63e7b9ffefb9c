"""The page `docs/reference/json.md`, from the types of what commands print; and the check that they print it."""

import enum
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, NotRequired, Union, get_args, get_origin

import msgspec
from tools.docs.json_types import ELSEWHERE, OUTPUTS

from flightlog.model.usage import TokenCounts, TokensAndCost

_HEAD = """# JSON

What commands print with `--json`. Keys keep their names and types from one release to the next; new keys may come.
Tokens and cost have the same keys everywhere: `input_tokens` (without cached ones), `output_tokens` (with thinking),
`cache_read_tokens`, `cache_write_tokens` (all of them), `cache_write_1h_tokens` (those kept for an hour), `cost_usd`
(null if unknown) and `cost_source`. Counts of which none was recorded are null, never zero. Times that end in `_ms` are
milliseconds since 1970, UTC. Keys of files that other documents define, of trajectories (ATIF) and of the agents keep
the names they have there.
"""


class JsonKey(NamedTuple):
    """One key of an object: its name in JSON, its type, and whether it may be absent."""

    name: str
    type: Any
    optional: bool


def json_page() -> str:
    """Return the page: commands first, then the objects they print."""
    rows = [f"| `{command}` | {_link(kind)} |" for command, kind in OUTPUTS.items()]
    rows += [f"| `{command}` | {text} |" for command, text in ELSEWHERE.items()]
    parts = [_HEAD, "\n".join(["| command | prints |", "|---|---|", *sorted(rows)]) + "\n"]
    for kind in sorted(_objects(), key=lambda kind: kind.__name__):
        lines = [
            f"| `{key.name}` | {_link(key.type)} | {'optional' if key.optional else ''} |"
            for key in keys_of(kind)
        ]
        table = "\n".join(["| key | type | |", "|---|---|---|", *lines])
        parts += [f"## {kind.__name__}\n", f"{_sentence(kind)}\n", f"{table}\n"]
    return "\n".join(parts)


def keys_of(kind: Any) -> list[JsonKey]:
    """Return the keys of a struct or typed dictionary."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if _is_struct(kind):
        tag = kind.__struct_config__.tag
        first = [JsonKey(kind.__struct_config__.tag_field, str, optional=False)] if tag else []
        fields = msgspec.structs.fields(kind)
        omits = bool(kind.__struct_config__.omit_defaults)
        if issubclass(kind, TokensAndCost):  # null where no response has counts
            hints |= dict.fromkeys(TokenCounts.__struct_fields__, int | None)
        return first + [
            JsonKey(field.encode_name, hints[field.name], optional=omits and not field.required)
            for field in fields
        ]
    if _is_named_tuple(kind):
        return [JsonKey(name, hint, optional=False) for name, hint in hints.items()]
    return [
        JsonKey(
            name,
            get_args(hint)[0] if get_origin(hint) is NotRequired else hint,
            optional=get_origin(hint) is NotRequired,
        )
        for name, hint in hints.items()
    ]


def find_mismatches(value: Any, kind: Any, where: str = "") -> Iterator[str]:
    """Yield the places at which a printed value has other keys than its type."""
    kind = _plain(kind)
    if _is_object(kind):
        yield from _object_mismatches(value, kind, where)
    elif _is_union(kind):
        outcomes = [list(find_mismatches(value, part, where)) for part in get_args(kind)]
        if all(outcomes):
            yield from min(outcomes, key=len)
    elif get_origin(kind) in (list, tuple):
        yield from _list_mismatches(value, kind, where)
    elif kind is type(None):
        yield from () if value is None else (f"{where}: not null",)
    elif kind in (str, int, bool) and not isinstance(value, kind):
        yield f"{where}: {value!r} is not {kind.__name__}"


def _object_mismatches(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: not an object"
        return
    keys = {key.name: key for key in keys_of(kind)}
    for name in value.keys() - keys.keys():
        yield f"{where}.{name}: not described in {kind.__name__}"
    for name, key in keys.items():
        if name in value:
            yield from find_mismatches(value[name], key.type, f"{where}.{name}")
        elif not key.optional:
            yield f"{where}.{name}: missing"


def _list_mismatches(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: not a list"
        return
    parts = [part for part in get_args(kind) if part is not Ellipsis]
    if len(parts) == 1:
        for index, item in enumerate(value):
            yield from find_mismatches(item, parts[0], f"{where}[{index}]")


def _objects() -> list[Any]:
    objects: dict[str, Any] = {}

    def visit(kind: Any) -> None:
        kind = _plain(kind)
        if _is_object(kind) and kind.__name__ not in objects:
            objects[kind.__name__] = kind
            for key in keys_of(kind):
                visit(key.type)
        for part in get_args(kind):
            visit(part)

    for kind in OUTPUTS.values():
        visit(kind)
    return list(objects.values())


def _link(kind: Any) -> str:
    kind = _plain(kind)
    if _is_object(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if _is_union(kind):
        return " or ".join(_link(part) for part in get_args(kind))
    match get_origin(kind):
        case origin if origin in (list, tuple, set, frozenset):
            parts = [part for part in get_args(kind) if part is not Ellipsis]
            return "list of " + ", ".join(_link(part) for part in parts)
        case origin if origin is not None:
            return "object"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in kind)
    names = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(kind, "any value")


def _plain(kind: Any) -> Any:
    while get_origin(kind) in (typing.Annotated, NotRequired):
        kind = get_args(kind)[0]
    return kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_object(kind: Any) -> bool:
    if _is_struct(kind):
        return not kind.__struct_config__.array_like
    return typing.is_typeddict(kind)


def _sentence(kind: Any) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
