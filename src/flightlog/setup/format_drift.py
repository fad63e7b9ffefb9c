"""`doctor --formats`: format drift, and what the recordings of each agent contain.

Format drift is record types and fields that an agent writes, compared with the known ones.

`formats.json` holds what the pinned agent wrote in real sessions (made by tools/learn_formats.py).
A new version that adds or drops something is reported by type and field. Only shapes count: no
value of a record is stored, compared or shown.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from flightlog.agents import agent_label, agent_names, source_of
from flightlog.agents.claude_code.decode import DATA_FIELDS
from flightlog.agents.recordings import find_agent_dirs, list_recorded_files
from flightlog.model.entries import Entry, UnknownRecord
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.model.text import pluralize
from flightlog.setup.doctor import CheckLevel, CheckResult
from flightlog.sources.foreign_json import read_json_objects

_DEPTH_MAX = 4  # deeper levels are data of tools
# What a person asks of recordings, and the field of `Fidelity` that answers.
FACTS = {
    "prompt": "system_prompt",
    "tools": "tool_results",
    "thinking": "thinking",
    "usage": "usage",
    "exit_codes": "exit_codes",
    "permissions": "permissions",
    "files": "file_changes",
}


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
    new = ((kind, _field_names(seen[kind]) - _field_names(known.types[kind])) for kind in both)
    added = [(kind, field) for kind, fields in new for field in fields]
    gone = ((kind, set(known.types[kind].always) - _field_names(seen[kind])) for kind in both)
    dropped = [(kind, field) for kind, fields in gone for field in fields]
    sources = {_is_hook(kind) for kind in seen}
    regular = {kind for kind, shape in known.types.items() if shape.every_session}
    expected = {kind for kind in regular if _is_hook(kind) in sources}
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
        if key not in DATA_FIELDS and depth < _DEPTH_MAX:
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


def check_formats(runtime: Runtime) -> list[CheckResult]:
    """Compare Claude Code's records with the known format, and count unknown ones of other agents."""
    files = list_recorded_files(find_agent_dirs(runtime), runtime.data_dir).files
    own = [Path(file.path) for file in files if file.agent == DEFAULT_AGENT]
    drift = compare_formats(map(read_json_objects, own), load_known_format())
    added = [*drift.added_types, *map(".".join, drift.added_fields)]
    added += _find_unknown(file for file in files if file.agent != DEFAULT_AGENT)
    dropped = [*drift.dropped_types, *map(".".join, drift.dropped_fields)] if own else []
    results = [
        CheckResult(CheckLevel.NOTE, "format", f"new: {name}", "flightlog session list")
        for name in added
    ]
    results += [
        CheckResult(CheckLevel.NOTE, "format", f"not used here: {name}") for name in dropped
    ]
    known = f"only known fields in {pluralize(len(files), 'transcript')}"
    return results or [CheckResult(CheckLevel.OK, "format", known)]


def _find_unknown(files: Iterable[SessionFile]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for file in files:
        for item in source_of(file.agent).entries(file):
            if isinstance(item, Entry) and isinstance(item.event, UnknownRecord):
                counts[file.agent, item.event.kind] += 1
    return [
        f"{agent_label(agent)} {kind} ({pluralize(count, 'record')})"
        for (agent, kind), count in sorted(counts.items())
    ]


def list_fidelity() -> list[dict[str, Any]]:
    """Return for each agent which facts its recordings contain, as rows of a table."""
    rows = []
    for name in agent_names():
        fidelity = asdict(source_of(name).fidelity)
        facts = {fact: fidelity[field] for fact, field in FACTS.items()}
        missing = ", ".join(
            fact.replace("_", " ") for fact, is_kept in facts.items() if not is_kept
        )
        message = f"{agent_label(name)}: {f'not kept: {missing}' if missing else 'all kept'}"
        finding = CheckResult(CheckLevel.OK, "fidelity", message)
        rows.append({**asdict(finding), "agent": name, **facts})
    return rows


def tabulate_fidelity(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and cells of the rows as a table for a terminal."""
    heads = ["recorded by", *(fact.replace("_", " ") for fact in FACTS)]
    words = {True: "kept", False: "-"}
    return heads, [[row["agent"], *(words[row[fact]] for fact in FACTS)] for row in rows]
