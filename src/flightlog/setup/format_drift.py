"""Format drift: record types and fields that an agent writes, compared with the known ones.

`formats.json` holds what the pinned agent wrote in real sessions (made by tools/learn_formats.py).
A new version that adds or drops something is reported by type and field. Only shapes count: no
value of a record is stored, compared or shown.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

_DEPTH_MAX = 4  # deeper levels are data of tools
# Below these, keys are data (tool inputs, file names, model names), not format.
_OPAQUE = frozenset(
    {
        *(
            "input",
            "tool_input",
            "tool_response",
            "toolUseResult",
            "updatedInput",
            "trackedFileBackups",
        ),
        *(
            "modelUsage",
            "params",
            "shape",
            "tool_calls",
            "permission_suggestions",
            "cacheControl",
            "stdin",
        ),
    }
)


class TypeFormat(Struct, frozen=True):
    """The fields of one record type: those in every record, and those in some."""

    always: tuple[str, ...]
    sometimes: tuple[str, ...] = ()
    every_session: bool = False


class Format(Struct, frozen=True):
    """What one version of an agent writes."""

    agent: str
    version: str
    types: dict[str, TypeFormat]


class FormatDrift(Struct, frozen=True):
    """Differences from the known format; fields are (type, field)."""

    added_types: tuple[str, ...] = ()
    dropped_types: tuple[str, ...] = ()
    added_fields: tuple[tuple[str, str], ...] = ()
    dropped_fields: tuple[tuple[str, str], ...] = ()
    record_count: int = 0

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return bool(
            self.added_types or self.dropped_types or self.added_fields or self.dropped_fields
        )


def load_known_format() -> Format:
    """Return the known format."""
    text = files("flightlog.setup").joinpath("formats.json").read_bytes()
    return msgspec.json.decode(text, type=Format)


def compare_formats(sessions: Iterable[Iterable[Mapping[str, Any]]], known: Format) -> FormatDrift:
    """Compare the records of some sessions with a format.

    A field counts as dropped if it was in every record before and is in none now; a type, if every
    session had it before and none has it now.
    """
    seen = learn_types(sessions)
    both = seen.keys() & known.types.keys()
    added = [
        (kind, field)
        for kind in both
        for field in _field_names(seen[kind]) - _field_names(known.types[kind])
    ]
    dropped = [
        (kind, field)
        for kind in both
        for field in set(known.types[kind].always) - _field_names(seen[kind])
    ]
    sources = {_is_hook(kind) for kind in seen}
    expected = {
        kind
        for kind, shape in known.types.items()
        if shape.every_session and _is_hook(kind) in sources
    }
    return FormatDrift(
        added_types=tuple(sorted(seen.keys() - known.types.keys())),
        dropped_types=tuple(sorted(expected - seen.keys())),
        added_fields=tuple(sorted(added)),
        dropped_fields=tuple(sorted(dropped)),
        record_count=sum(shape.count for shape in seen.values()),
    )


class FormatObservation(Struct):
    """One record type, as observed so far."""

    count: int = 0
    sessions: int = 0
    met: defaultdict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))

    @property
    def always(self) -> tuple[str, ...]:
        """Return the fields that are in every record."""
        return tuple(sorted(field for field, count in self.met.items() if count == self.count))

    @property
    def sometimes(self) -> tuple[str, ...]:
        """Return the fields that are in some records."""
        return tuple(sorted(field for field, count in self.met.items() if count < self.count))


def learn_types(sessions: Iterable[Iterable[Mapping[str, Any]]]) -> dict[str, FormatObservation]:
    """Return the types and fields in the records of some sessions."""
    observed: defaultdict[str, FormatObservation] = defaultdict(FormatObservation)
    for session in sessions:
        kinds = set()
        for record in session:
            kind = record_type(record)
            kinds.add(kind)
            observed[kind].count += 1
            for field in set(iter_field_paths(record)):
                observed[kind].met[field] += 1
        for kind in kinds:
            observed[kind].sessions += 1
    return dict(observed)


def read_json_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, skipping damaged lines."""
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def record_type(record: Mapping[str, Any]) -> str:
    """Return the type of a record, with the subtype that decides on its fields."""
    if "hook_event_name" in record:
        return f"hook/{record['hook_event_name']}"
    kind = str(record.get("type", "without a type"))
    attachment = record.get("attachment")
    subtype = record.get("subtype") or (
        attachment.get("type") if isinstance(attachment, dict) else None
    )
    return f"{kind}/{subtype}" if isinstance(subtype, str) else kind


def iter_field_paths(record: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[str]:
    """Yield the paths of a record's fields: `message.content[].type`."""
    for key, value in record.items():
        path = f"{prefix}{key}"
        yield path
        if key not in _OPAQUE and depth < _DEPTH_MAX:
            yield from _nested_fields(value, path, depth)


def _nested_fields(value: object, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield from iter_field_paths(value, f"{path}.", depth + 1)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from iter_field_paths(item, f"{path}[].", depth + 1)


def _is_hook(kind: str) -> bool:
    return kind.startswith("hook/")


def _field_names(fields: TypeFormat | FormatObservation) -> set[str]:
    return {*fields.always, *fields.sometimes}
