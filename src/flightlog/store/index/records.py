"""The second level of the index: the location of every record.

A row has the file, offset and length of a record; its text stays in the recording. The rows of
one read have consecutive numbers, so the rows of a file are deleted by span.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema, write_transaction
from flightlog.store.index.files import (
    IndexedFile,
    PendingRead,
    SyncStats,
    drop_files,
    indexed_files,
    plan_sync,
    save_files,
)

LEVEL = 2  # files whose records are indexed
WORDED = 3  # files whose words are indexed too
BATCH_BYTES = 96 << 20  # per transaction: few commits, and a crash loses some seconds of work
AHEAD_BYTES = 4 << 20  # read before the transaction, so that other writers do not wait for it
ROUNDS_MAX = 3  # other processes may keep writing; the next query continues
# A query of filters alone finds what these kinds said: most other records have no text to show.
_SPOKEN = frozenset({"user", "assistant"})
SCHEMA = IndexSchema(
    "records",
    """
CREATE TABLE lines(
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, offset INTEGER, length INTEGER, uuid BLOB,
    has_words INTEGER, at_ms INTEGER);
CREATE TABLE spans(file INTEGER, first INTEGER, last INTEGER);
CREATE INDEX spans_of ON spans(file);
CREATE TABLE places(
    file INTEGER PRIMARY KEY, path TEXT UNIQUE, session TEXT, subagent TEXT, project TEXT);
""",
)


class IndexedRecord(NamedTuple):
    """One record, and its text by the column it is searched in."""

    offset: int
    length: int
    uuid: str
    kind: str
    at_ms: int
    text: str = ""
    output: str = ""
    tool: str = ""
    file: str = ""
    model: str = ""
    project: str = ""


class RecordBatch(Struct, array_like=True):
    """The records of a file's new bytes; `end` is where the next read starts.

    The batches of a large file follow one another; `is_last` is false for all but the last.
    """

    records: list[IndexedRecord]
    end: int = 0
    bytes_read: int = 0
    damaged_lines: int = 0
    fingerprint: int = 0
    error: str = ""
    is_last: bool = True


Read = Callable[[Sequence[PendingRead]], Iterator[RecordBatch]]
LastTime = Callable[[SessionFile], int]
"""The time of a file's last record."""
AddWords = Callable[[sqlite3.Connection, Sequence[tuple[int, IndexedRecord]]], None]


class RecordSync(NamedTuple):
    """How to read records and index their words, and whether to index the words of all files."""

    read: Read
    add_words: AddWords
    last_ms: LastTime
    words: bool


def sync_records(
    database: sqlite3.Connection, files: Iterable[SessionFile], how: RecordSync
) -> SyncStats:
    """Bring the record level up to date, and with `words` the text level too.

    Files are committed a few at a time, so that a crash costs only the last ones. A file whose
    words are indexed keeps them; one without is read again when words are needed. Rows that
    another process wrote meanwhile stay, and what it left out is written in the next round.
    """
    stats = SyncStats()
    for _ in range(ROUNDS_MAX):
        if _write_new(database, files, how, stats):
            break
    return stats


def _write_new(
    database: sqlite3.Connection, files: Iterable[SessionFile], how: RecordSync, stats: SyncStats
) -> bool:
    """Write the new records; return False if another process wrote some of them meanwhile."""
    plain, worded = indexed_files(database, LEVEL), indexed_files(database, WORDED)
    plan = plan_sync(worded if how.words else plain | worded, files, stats)
    outdated = [*plan.removed, *(plain.values() if how.words else ())]
    if outdated:
        _delete_records(database, outdated, worded)
    # The oldest recordings first, so that newer rows have higher numbers.
    pending = sorted(plan.pending, key=lambda read: (how.last_ms(read.file), read.file.path))
    batches = how.read(pending)
    late = 0
    for reads in _iter_transactions(pending):
        ready: Iterable[tuple[PendingRead, RecordBatch]] = _iter_batches(reads, batches)
        if sum(read.file.size - read.start for read in reads) <= AHEAD_BYTES:
            ready = list(ready)
        with write_transaction(database):
            for read, batch in ready:
                if not _is_next(database, read):
                    late += 1
                    continue
                level = WORDED if how.words or read.file.path in worded else LEVEL
                rows = _write_records(database, level, read, batch, stats)
                if level == WORDED:
                    how.add_words(database, rows)
    return not late


def _iter_transactions(pending: Sequence[PendingRead]) -> Iterator[list[PendingRead]]:
    reads: list[PendingRead] = []
    size = 0
    for read in pending:
        reads.append(read)
        size += read.file.size - read.start
        if size >= BATCH_BYTES:
            yield reads
            reads, size = [], 0
    if reads:
        yield reads


def _iter_batches(
    reads: Iterable[PendingRead], batches: Iterator[RecordBatch]
) -> Iterator[tuple[PendingRead, RecordBatch]]:
    """Yield each batch with its read, which starts where the batch does."""
    for read in reads:
        start = read.start
        for batch in batches:
            yield replace(read, start=start), batch
            start = batch.end
            if batch.is_last:
                break


def _is_next(database: sqlite3.Connection, read: PendingRead) -> bool:
    """Return whether a read starts where the index ends now."""
    select = "SELECT offset FROM files WHERE path = ? AND level IN (?, ?)"
    row = database.execute(select, (read.file.path, LEVEL, WORDED)).fetchone()
    return bool((row[0] if row else 0) == read.start)


def _write_records(
    database: sqlite3.Connection,
    level: int,
    read: PendingRead,
    batch: RecordBatch,
    stats: SyncStats,
) -> list[tuple[int, IndexedRecord]]:
    file = _file_id(database, read.file)
    top = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'lines'").fetchone()
    rows = list(enumerate(batch.records, start=top[0] + 1 if top else 1))
    lines = [
        (number, file, record.offset, record.length, *_pack_fields(record))
        for number, record in rows
    ]
    database.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
    if rows:
        database.execute("INSERT INTO spans VALUES (?, ?, ?)", (file, rows[0][0], rows[-1][0]))
        project = next((record.project for _, record in rows if record.project), "")
        update = "UPDATE places SET project = ? WHERE file = ? AND project = ''"
        database.execute(update, (project, file))
    save_files(database, level, [_advance_file_row(read, batch)])
    stats.opened += batch.is_last
    stats.bytes_read += batch.bytes_read
    stats.decoded += len(rows)
    return rows


def _file_id(database: sqlite3.Connection, file: SessionFile) -> int:
    insert = "INSERT OR IGNORE INTO places(path, session, subagent, project) VALUES (?, ?, ?, '')"
    database.execute(insert, (file.path, file.session, file.subagent))
    (number,) = database.execute("SELECT file FROM places WHERE path = ?", (file.path,)).fetchone()
    assert isinstance(number, int)
    return number


def _delete_records(
    database: sqlite3.Connection, rows: Iterable[IndexedFile], worded: Mapping[str, IndexedFile]
) -> None:
    select = "SELECT file FROM places WHERE path = ?"
    select_spans = "SELECT first, last FROM spans WHERE file = ?"
    with write_transaction(database):
        for row in rows:
            for file in database.execute(select, (row.path,)).fetchall():
                spans = database.execute(select_spans, file).fetchall()
                database.executemany("DELETE FROM lines WHERE id BETWEEN ? AND ?", spans)
                database.execute("DELETE FROM spans WHERE file = ?", file)
                database.execute("DELETE FROM places WHERE file = ?", file)
                if row.path in worded:
                    database.executemany("INSERT INTO gone VALUES (?, ?)", spans)
            drop_files(database, LEVEL, [row])
            drop_files(database, WORDED, [row])


def _pack_fields(record: IndexedRecord) -> tuple[bytes | str, bool, int]:
    has_words = record.kind in _SPOKEN and bool(record.text or record.output)
    return _pack_uuid(record.uuid), has_words, record.at_ms


def _pack_uuid(text: str) -> bytes | str:
    """Return the 16 bytes of a uuid; other text as it is."""
    digits = text.replace("-", "")
    try:
        return bytes.fromhex(digits) if len(digits) == 32 and len(text) == 36 else text
    except ValueError:
        return text


def _advance_file_row(read: PendingRead, batch: RecordBatch) -> IndexedFile:
    file = read.file
    # -1 differs from every size, so the file is read again.
    size = -1 if batch.error or not batch.is_last else file.size
    state = (file.device, file.inode, size, file.changed_ns)
    return IndexedFile(
        0, file.path, file.session, *state, batch.end, batch.fingerprint, 0, batch.damaged_lines
    )
