"""The source document's Python interface to the dataset, and its command line.

    from ml_data_collector import append_chat_to_jsonl
    append_chat_to_jsonl({"id": "chat-20251216-150332-abc123", "session_id": "13a84f73", "input": "…", …})

Records are redacted, words are withheld unless the project tracks them, and each record becomes a
shard: appending to one file would make branches conflict.
"""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flightlog.app.runtime import open_runtime
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.sync import convert_legacy_row, may_prepare
from flightlog.dataset.layout import DatasetDirs, cache_pages, prepare_dataset, write_shard
from flightlog.dataset.rows import BASES, Row, encode_row, format_row_time
from flightlog.dataset.service import load_options, locate_dataset, make_row_redactor
from flightlog.dataset.state import is_off, report_if_off
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.store.output_files import write_output_files

_KINDS = {name: kind for kind, name in BASES.items()}
Record = Mapping[str, Any]
__all__ = [
    "append_chat_to_jsonl",
    "append_session_to_jsonl",
    "append_to_tracked_jsonl",
    "end_session",
    "main",
    "save_chat_entry",
]


def append_to_tracked_jsonl(
    file: str | Path, record: Record, *, repository: Path | None = None
) -> Path | None:
    """Add a record of that base file; return its shard, or None if it already exists."""
    runtime = open_runtime()
    name = Path(file).name
    kind = _KINDS.get(name if name.endswith(".jsonl") else f"{name}.jsonl")
    if kind is None:
        raise Invalid(
            f"no such tracked file: {name[:60]}", hint=f"one of: {', '.join(BASES.values())}"
        )
    row = convert_legacy_row(kind, dict(record))
    if row is None:
        raise Invalid(
            f"a record for {name} needs an id", hint="ids come from the recording, never from text"
        )
    if report_if_off(runtime):
        return None
    return _append_row(runtime, locate_dataset(runtime, repository), row)


def append_chat_to_jsonl(entry: Record, *, repository: Path | None = None) -> Path | None:
    """Add a chat."""
    return append_to_tracked_jsonl("chats.jsonl", entry, repository=repository)


def append_session_to_jsonl(session: Record, *, repository: Path | None = None) -> Path | None:
    """Add a session."""
    return append_to_tracked_jsonl("sessions.jsonl", session, repository=repository)


def save_chat_entry(entry: Record, *, repository: Path | None = None) -> Path | None:
    """Write a chat's file of the older layout and its tracked row; return the file.

    Return None if collection is off.
    """
    runtime = open_runtime()
    dirs = locate_dataset(runtime, repository)
    append_chat_to_jsonl(entry, repository=repository)
    return None if is_off(runtime) else _write_cache_file(runtime, dirs, "chat", entry)


def end_session(
    session: Record, summary: str | None = None, *, repository: Path | None = None
) -> Path | None:
    """Write an ended session's file of the older layout and its tracked row; return the file.

    Return None if collection is off.
    """
    runtime = open_runtime()
    ended = {"ended_at": format_row_time(runtime.clock.now_ms()), **session}
    ended |= {} if summary is None else {"summary": summary}
    dirs = locate_dataset(runtime, repository)
    append_session_to_jsonl(ended, repository=repository)
    return None if is_off(runtime) else _write_cache_file(runtime, dirs, "session", ended)


def _append_row(runtime: Runtime, dirs: DatasetDirs, row: Row) -> Path | None:
    redactor = make_row_redactor(runtime, dirs)
    if not (dirs.root / ".gitattributes").exists() and may_prepare(dirs):
        prepare_dataset(dirs, redactor)
    row = _permitted_row(runtime, dirs, row)
    # The same record makes the same shard, which is written once.
    number = hashlib.sha256(encode_row(row)).digest()[0]
    # The session is part of a tracked file's name, so it comes from the redacted row.
    session = str(row.get("session_id") or row.get("session") or "rows")
    return write_shard(dirs, session, [row], number, redactor)


def _permitted_row(runtime: Runtime, dirs: DatasetDirs, row: Row) -> Row:
    words = load_options(runtime, dirs).words
    return values_of(permitted_rows([row], make_row_redactor(runtime, dirs), words=words))[0]


def _write_cache_file(runtime: Runtime, dirs: DatasetDirs, kind: str, entry: Record) -> Path:
    row = convert_legacy_row(kind, dict(entry))
    assert row is not None, "the tracked row was written from the same record"
    (page,) = cache_pages([_permitted_row(runtime, dirs, row)])
    write_output_files(dirs.root, [page], durable=False)
    return dirs.root / page.path


def main(arguments: list[str] | None = None) -> Any:
    """Run `ml-data-collector`."""
    from flightlog.cli.main import run_alias  # noqa: PLC0415 - importing this module must stay quick

    sys.exit(
        run_alias("dataset", "ml-data-collector", sys.argv[1:] if arguments is None else arguments)
    )


if __name__ == "__main__":
    main()
