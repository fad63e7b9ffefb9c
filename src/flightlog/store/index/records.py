"""The second level of the index: where every record stands.

A record is a row with its file, offset and length; what it says stays in the recording. Rows
of one reading have numbers that follow each other, so a file's rows are taken back by span.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema
from flightlog.store.index.files import (
    IndexedFile,
    PendingRead,
    SyncStats,
    drop_files,
    indexed_files,
    plan_sync,
    save_files,
)

LEVEL = 2
WORDED = 3
BATCH_BYTES = 96 << 20
AHEAD_BYTES = 4 << 20
ROUNDS_MAX = 3
SCHEMA = IndexSchema(
    "records",
    """
CREATE TABLE lines(
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, offset INTEGER, length INTEGER, uuid BLOB, kind TEXT,
    at_ms INTEGER);
CREATE TABLE spans(file INTEGER, first INTEGER, last INTEGER);
CREATE INDEX spans_of ON spans(file);
CREATE TABLE places(
    file INTEGER PRIMARY KEY, path TEXT UNIQUE, session TEXT, lane TEXT, project TEXT);
""",
)


class IndexedRecord(NamedTuple):
    """One record of a recording, and its words by the column they are searched in."""

    offset: int
    length: int
    uuid: str
    kind: str
    at_ms: int
    said: str = ""
    output: str = ""
    tool: str = ""
    file: str = ""
    model: str = ""
    project: str = ""


class RecordBatch(Struct, array_like=True):
    """The records of a file's new bytes; `end` is where the next reading starts."""

    records: list[IndexedRecord]
    end: int = 0
    read: int = 0
    damaged: int = 0
    fingerprint: int = 0
    error: str = ""


Read = Callable[[Sequence[PendingRead]], Iterator[RecordBatch]]
AddWords = Callable[[sqlite3.Connection, Sequence[tuple[int, IndexedRecord]]], None]


class RecordSync(NamedTuple):
    """How records are read and their words indexed, and whether those of all files are wanted."""

    read: Read
    add_words: AddWords
    words: bool


def sync_records(database: sqlite3.Connection, files: Iterable[SessionFile], how: RecordSync) -> SyncStats:
    """Bring the line level up to date, and with `words` the text level too.

    Files go in a few at a time, so that a crash costs only the last ones. A file whose words
    are indexed keeps them indexed; one that has only lines is read again when words are asked for.
    What somebody else wrote down while we read is left as it is, and what they left is looked for again.
    """
    work = SyncStats()
    for _ in range(ROUNDS_MAX):
        if _write_new(database, files, how, work):
            break
    return work


def _write_new(database: sqlite3.Connection, files: Iterable[SessionFile], how: RecordSync, work: SyncStats) -> bool:
    """Write down what is new; False means that somebody else was quicker with some of it."""
    plain, worded = indexed_files(database, LEVEL), indexed_files(database, WORDED)
    upgraded = list(plain.values()) if how.words else []
    todo = plan_sync(worded if how.words else plain | worded, files, work)
    back = [*todo.removed, *upgraded]
    if back:
        _delete_records(database, back, worded)
    # The oldest recordings first, so that newer rows have higher numbers.
    readings = sorted(todo.pending, key=lambda each: (each.file.changed_ns, each.file.path))
    found = how.read(readings)
    late = 0
    for batch in _iter_batches(readings):
        came: Iterable[RecordBatch] = islice(found, len(batch))
        if sum(each.file.size - each.start for each in batch) <= AHEAD_BYTES:
            came = list(came)  # nobody waits for our reading
        with write_transaction(database):
            for reading, records in zip(batch, came, strict=True):
                if not _is_next(database, reading):
                    late += 1
                    continue
                level = WORDED if how.words or reading.file.path in worded else LEVEL
                rows = _write_records(database, level, reading, records, work)
                if level == WORDED:
                    how.add_words(database, rows)
    return not late


@contextmanager
def write_transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _iter_batches(readings: Sequence[PendingRead]) -> Iterator[list[PendingRead]]:
    """Cut readings into transactions."""
    batch: list[PendingRead] = []
    size = 0
    for reading in readings:
        batch.append(reading)
        size += reading.file.size - reading.start
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_next(database: sqlite3.Connection, reading: PendingRead) -> bool:
    """Whether a reading goes on where the index ends now."""
    known = database.execute(
        "SELECT offset FROM files WHERE path = ? AND level IN (?, ?)", (reading.file.path, LEVEL, WORDED)
    ).fetchone()
    return bool((known[0] if known else 0) == reading.start)


def _write_records(
    database: sqlite3.Connection, level: int, reading: PendingRead, found: RecordBatch, work: SyncStats
) -> list[tuple[int, IndexedRecord]]:
    file = _file_id(database, reading.file)
    top = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'lines'").fetchone()
    rows = list(enumerate(found.records, start=top[0] + 1 if top else 1))
    database.executemany(
        "INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, file, one.offset, one.length, _pack_uuid(one.uuid), one.kind, one.at_ms) for number, one in rows],
    )
    if rows:
        database.execute("INSERT INTO spans VALUES (?, ?, ?)", (file, rows[0][0], rows[-1][0]))
        project = next((record.project for _, record in rows if record.project), "")
        database.execute("UPDATE places SET project = ? WHERE file = ? AND project = ''", (project, file))
    save_files(database, level, [_advance_file_row(reading, found)])
    work.opened += 1
    work.bytes_read += found.read
    work.decoded += len(rows)
    return rows


def _file_id(database: sqlite3.Connection, source: SessionFile) -> int:
    database.execute(
        "INSERT OR IGNORE INTO places(path, session, lane, project) VALUES (?, ?, ?, '')",
        (source.path, source.session, source.lane),
    )
    (file,) = database.execute("SELECT file FROM places WHERE path = ?", (source.path,)).fetchone()
    assert isinstance(file, int)
    return file


def _delete_records(
    database: sqlite3.Connection, rows: Iterable[IndexedFile], worded: Mapping[str, IndexedFile]
) -> None:
    with write_transaction(database):
        for row in rows:
            for file in database.execute("SELECT file FROM places WHERE path = ?", (row.path,)).fetchall():
                spans = database.execute("SELECT first, last FROM spans WHERE file = ?", file).fetchall()
                database.executemany("DELETE FROM lines WHERE id BETWEEN ? AND ?", spans)
                database.execute("DELETE FROM spans WHERE file = ?", file)
                database.execute("DELETE FROM places WHERE file = ?", file)
                if row.path in worded:
                    database.executemany("INSERT INTO gone VALUES (?, ?)", spans)
            drop_files(database, LEVEL, [row])
            drop_files(database, WORDED, [row])


def _pack_uuid(text: str) -> bytes | str:
    """Keep a uuid in 16 bytes if it is one."""
    plain = text.replace("-", "")
    try:
        return bytes.fromhex(plain) if len(plain) == 32 and len(text) == 36 else text
    except ValueError:
        return text


def _advance_file_row(reading: PendingRead, found: RecordBatch) -> IndexedFile:
    source = reading.file
    size = source.size if not found.error else -1
    place = (source.device, source.inode, size, source.changed_ns)
    return IndexedFile(0, source.path, source.session, *place, found.end, found.fingerprint, 0, found.damaged)
