"""The functions source document 004 names, on the dataset of the repository one stands in."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flightlog.app import open_runtime
from flightlog.app.capturing import options, place_here, records
from flightlog.app.collecting import is_off, say_if_off
from flightlog.dataset.consent import permitted, values_of
from flightlog.dataset.layout import Place, cache_pages, write_shard
from flightlog.dataset.older import as_row
from flightlog.dataset.rows import BASES, Row, encoded, moment
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.store.pages import publish

_KINDS = {name: kind for kind, name in BASES.items()}

Record = Mapping[str, Any]


def append_to_tracked_jsonl(file: str | Path, record: Record, *, repository: Path | None = None) -> Path | None:
    """Add a record to what the base file of that name holds; return the shard, or None when it was there."""
    runtime = open_runtime()
    name = Path(file).name
    kind = _KINDS.get(name if name.endswith(".jsonl") else f"{name}.jsonl")
    if kind is None:
        raise Invalid(f"no such tracked file: {name[:60]}", hint=f"one of: {', '.join(BASES.values())}")
    row = as_row(kind, dict(record))
    if row is None:
        raise Invalid(f"a record for {name} needs an id", hint="ids come from the recording, never from text")
    return None if say_if_off(runtime) else _written(runtime, place_here(runtime, repository), row)


def append_chat_to_jsonl(entry: Record, *, repository: Path | None = None) -> Path | None:
    """Add a chat."""
    return append_to_tracked_jsonl("chats.jsonl", entry, repository=repository)


def append_session_to_jsonl(session: Record, *, repository: Path | None = None) -> Path | None:
    """Add a session."""
    return append_to_tracked_jsonl("sessions.jsonl", session, repository=repository)


def save_chat_entry(entry: Record, *, repository: Path | None = None) -> Path | None:
    """Write the older layout's file of one chat, and the tracked row with it; return the file, None when off."""
    runtime = open_runtime()
    place = place_here(runtime, repository)
    append_chat_to_jsonl(entry, repository=repository)
    return None if is_off(runtime) else _cached(runtime, place, "chat", entry)


def end_session(session: Record, summary: str | None = None, *, repository: Path | None = None) -> Path | None:
    """Write the older layout's file of a session that is over, and the tracked row with it; None when off."""
    runtime = open_runtime()
    given = {} if summary is None else {"summary": summary}
    ended = {"ended_at": moment(runtime.clock.now_ms()), **session, **given}
    place = place_here(runtime, repository)
    append_session_to_jsonl(ended, repository=repository)
    return None if is_off(runtime) else _cached(runtime, place, "session", ended)


def _written(runtime: Runtime, place: Place, row: Row) -> Path | None:
    cleaner = records(runtime, place)
    (permitted_row,) = values_of(permitted([row], cleaner, words=options(runtime, place).words))
    # The same record makes the same shard, which is written once.
    number = hashlib.sha256(encoded(permitted_row)).digest()[0]
    # It names a tracked file, so it is taken from the redacted row.
    session = str(permitted_row.get("session_id") or permitted_row.get("session") or "rows")
    return write_shard(place, session, [permitted_row], number, cleaner)


def _cached(runtime: Runtime, place: Place, kind: str, entry: Record) -> Path:
    row = as_row(kind, dict(entry))
    assert row is not None, "the tracked row was written from the same record"
    (permitted_row,) = values_of(permitted([row], records(runtime, place), words=options(runtime, place).words))
    (page,) = cache_pages([permitted_row])
    publish(place.root, [page], durable=False)
    return place.root / page.path
