"""What the index has read of every file, what has to be read now, and values per session.

A file is identified by its device, inode, size, time and a fingerprint of its beginning and of
the bytes before the offset it was read to. A file that only grew is read from there; after any
other change its rows are removed and it is read again. Each level of the index has its own
record of the files, because each is built when it is first used. A computed value of a session
is valid until one of its files changes.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from mmap import mmap
from typing import NamedTuple

from msgspec import Struct

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema, Readable, write_transaction
from flightlog.store.recordings.reader import Reader, open_reader

FINGERPRINT_BYTES = 256  # one transcript line is longer, so two files seldom share it

SCHEMA = IndexSchema(
    "files",
    """
CREATE TABLE files(
    level INTEGER, path TEXT, id INTEGER, session TEXT, device INTEGER, inode INTEGER, size INTEGER,
    changed_ns INTEGER, offset INTEGER, fingerprint INTEGER, first_ms INTEGER, damaged INTEGER,
    PRIMARY KEY(level, path)) WITHOUT ROWID;
""",
)
VALUES_SCHEMA = IndexSchema(
    "session_values",
    """
CREATE TABLE session_values(
    kind TEXT, session TEXT, stamp INTEGER, body BLOB, PRIMARY KEY(kind, session));
""",
)  # With rowids: otherwise a lookup reads the whole bodies of the rows that it compares, up to 30 MB.
_COLUMNS = (
    "id, path, session, device, inode, size, changed_ns, offset, fingerprint, first_ms, damaged"
)


class IndexedFile(NamedTuple):
    """The state of a file when it was last read."""

    id: int
    path: str
    session: str
    device: int
    inode: int
    size: int
    changed_ns: int
    offset: int
    fingerprint: int
    first_ms: int
    damaged_lines: int


class PendingRead(Struct, frozen=True):
    """A file to read from byte `start` on; `id` is its number in the index."""

    file: SessionFile
    id: int
    start: int


class SyncPlan(Struct, frozen=True):
    """What a sync has to read; rows of `removed` files are deleted, those of `current` stay."""

    pending: list[PendingRead]
    removed: list[IndexedFile]
    current: dict[int, IndexedFile]


class SyncStats(Struct):
    """The work of a sync in counts, because times are noisy."""

    files: int = 0
    opened: int = 0
    bytes_read: int = 0
    decoded: int = 0


def indexed_files(database: Readable, level: int) -> dict[str, IndexedFile]:
    """Return the files that `level` of the index has read, by path."""
    rows = database.execute(f"SELECT {_COLUMNS} FROM files WHERE level = ?", (level,))  # noqa: S608 - fixed columns
    return {row.path: row for row in map(IndexedFile._make, rows)}


def save_files(database: sqlite3.Connection, level: int, rows: Iterable[IndexedFile]) -> None:
    """Record how far each file was read."""
    marks = ", ".join("?" * (len(IndexedFile._fields) + 1))
    database.executemany(
        f"INSERT OR REPLACE INTO files({_COLUMNS}, level) VALUES ({marks})",  # noqa: S608 - fixed columns
        [(*row, level) for row in rows],
    )


def drop_files(database: sqlite3.Connection, level: int, rows: Iterable[IndexedFile]) -> None:
    """Remove files from the record."""
    delete = "DELETE FROM files WHERE level = ? AND path = ?"
    database.executemany(delete, [(level, row.path) for row in rows])


def plan_sync(
    indexed: dict[str, IndexedFile], files: Iterable[SessionFile], stats: SyncStats
) -> SyncPlan:
    """Return what to read and remove, given the files that were read and those that exist."""
    pending: list[PendingRead] = []
    current: dict[int, IndexedFile] = {}
    removed = dict(indexed)
    free_id = max((row.id for row in indexed.values()), default=0)
    for file in files:
        stats.files += 1
        row = removed.pop(file.path, None)
        if row is not None and _is_unchanged(row, file):
            current[row.id] = row
        elif row is not None and _has_grown(row, file, stats):
            current[row.id] = row
            pending.append(PendingRead(file, row.id, row.offset))
        else:
            if row is not None:
                removed[file.path] = row
            free_id += 1
            pending.append(PendingRead(file, free_id, 0))
    return SyncPlan(pending, list(removed.values()), current)


def fingerprint_file(file: Reader, end: int) -> int:
    """Return a checksum of the beginning of `file` and of the bytes before `end`."""
    head = file.read(0, min(FINGERPRINT_BYTES, end))
    start = max(0, end - FINGERPRINT_BYTES)
    return zlib.crc32(file.read(start, end - start), zlib.crc32(head))


def fingerprint_mapped(content: mmap, end: int) -> int:
    """Return the same checksum of a file that is mapped into memory."""
    start = max(0, end - FINGERPRINT_BYTES)
    return zlib.crc32(content[start:end], zlib.crc32(content[: min(FINGERPRINT_BYTES, end)]))


def file_stamp(files: Iterable[SessionFile], made_by: str) -> int:
    """Return a number that changes with each of the files and with the code, `made_by`."""
    states = sorted(
        (file.path, file.device, file.inode, file.size, file.changed_ns) for file in files
    )
    return zlib.crc32(repr((made_by, states)).encode("utf-8", "surrogateescape"))


def iter_values(database: sqlite3.Connection, kind: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield session, stamp and body of all values of one kind."""
    select = "SELECT session, stamp, body FROM session_values WHERE kind = ?"
    yield from database.execute(select, (kind,))


def load_value(database: sqlite3.Connection, kind: str, session: str) -> tuple[int, bytes] | None:
    """Return stamp and body of the value of one session."""
    select = "SELECT stamp, body FROM session_values WHERE kind = ? AND session = ?"
    row = database.execute(select, (kind, session)).fetchone()
    return (row[0], row[1]) if row else None


def store_values(
    database: sqlite3.Connection, kind: str, rows: Iterable[tuple[str, int, bytes]]
) -> None:
    """Store values as session, stamp and body."""
    with write_transaction(database):
        insert = "INSERT OR REPLACE INTO session_values VALUES (?, ?, ?, ?)"
        database.executemany(insert, [(kind, *row) for row in rows])


def _is_unchanged(row: IndexedFile, file: SessionFile) -> bool:
    state = (row.size, row.changed_ns, row.inode, row.device)
    return state == (file.size, file.changed_ns, file.inode, file.device)


def _has_grown(row: IndexedFile, file: SessionFile, stats: SyncStats) -> bool:
    """Return whether the file is the one that was read, with more bytes at its end."""
    if row.device != file.device or row.inode != file.inode or file.size <= row.size:
        return False
    stats.opened += 1
    try:
        with closing(open_reader(file.path)) as reader:
            return fingerprint_file(reader, row.offset) == row.fingerprint
    except OSError:
        return False
