"""What the index knows of each recorded file, and what has to be read again.

A file that only grew is read from where the last reading ended; a file that was rewritten,
shortened or replaced is read from the start and its old rows are taken back. Each level of
the index keeps its own account, because each is built when it is first asked for.
"""

import sqlite3
import zlib
from collections.abc import Iterable
from contextlib import closing
from mmap import mmap
from typing import NamedTuple

from msgspec import Struct

from flightlog.store.index.database import Readable
from flightlog.store.reading import Reader, open_reader

FINGERPRINT_BYTES = 256

SCHEMA = """
CREATE TABLE files(
    level INTEGER, name TEXT, id INTEGER, session TEXT, path TEXT, device INTEGER, inode INTEGER, size INTEGER,
    changed_ns INTEGER, offset INTEGER, fingerprint INTEGER, born_ms INTEGER, damaged INTEGER,
    PRIMARY KEY(level, name)) WITHOUT ROWID;
"""
_COLUMNS = "id, name, session, path, device, inode, size, changed_ns, offset, fingerprint, born_ms, damaged"


class Source(Struct, frozen=True):
    """A recorded file as it stands now. `name` is whose recording it is, wherever the bytes lie."""

    name: str
    path: str
    session: str
    lane: str
    device: int
    inode: int
    size: int
    changed_ns: int


class Known(NamedTuple):
    """A file as it stood when it was last read."""

    id: int
    name: str
    session: str
    path: str
    device: int
    inode: int
    size: int
    changed_ns: int
    offset: int
    fingerprint: int
    born_ms: int
    damaged: int


class Reading(Struct, frozen=True):
    """A file to read from byte `start` on."""

    source: Source
    file: int
    start: int


class Plan(Struct, frozen=True):
    """What a sync has to do; `back` are the files whose rows are taken back."""

    readings: list[Reading]
    back: list[Known]
    kept: dict[int, Known]


class Work(Struct):
    """What a sync did, counted where time is noisy."""

    files: int = 0
    opened: int = 0
    bytes_read: int = 0
    decoded: int = 0


def known_files(database: Readable, level: int) -> dict[str, Known]:
    """Return what `level` of the index knows, by name."""
    found = database.execute(f"SELECT {_COLUMNS} FROM files WHERE level = ?", (level,))  # noqa: S608 - fixed columns
    return {row[1]: Known._make(row) for row in found}


def save_files(database: sqlite3.Connection, level: int, rows: Iterable[Known]) -> None:
    """Write down how far each file was read."""
    marks = ", ".join("?" * (len(Known._fields) + 1))
    database.executemany(
        f"INSERT OR REPLACE INTO files({_COLUMNS}, level) VALUES ({marks})",  # noqa: S608 - fixed columns
        [(*row, level) for row in rows],
    )


def drop_files(database: sqlite3.Connection, level: int, rows: Iterable[Known]) -> None:
    """Forget files."""
    database.executemany("DELETE FROM files WHERE level = ? AND name = ?", [(level, row.name) for row in rows])


def plan(known: dict[str, Known], sources: Iterable[Source], work: Work) -> Plan:
    """Compare what is known with what is there."""
    readings: list[Reading] = []
    kept: dict[int, Known] = {}
    back = dict(known)
    free = max((row.id for row in known.values()), default=0)
    for source in sources:
        work.files += 1
        row = back.pop(source.name, None)
        if row is not None and _same(row, source):
            kept[row.id] = row
        elif row is not None and _grown(row, source, work):
            kept[row.id] = row
            readings.append(Reading(source, row.id, row.offset))
        else:
            if row is not None:
                back[source.name] = row
            free += 1
            readings.append(Reading(source, free, 0))
    return Plan(readings, list(back.values()), kept)


def fingerprint(file: Reader, end: int) -> int:
    """Return a checksum of the beginning of `file` and of the bytes before `end`."""
    head = file.read(0, min(FINGERPRINT_BYTES, end))
    start = max(0, end - FINGERPRINT_BYTES)
    return zlib.crc32(file.read(start, end - start), zlib.crc32(head))


def fingerprint_of(content: mmap, end: int) -> int:
    """Return the same checksum of a file that lies in memory."""
    start = max(0, end - FINGERPRINT_BYTES)
    return zlib.crc32(content[start:end], zlib.crc32(content[: min(FINGERPRINT_BYTES, end)]))


def _same(row: Known, source: Source) -> bool:
    return row[4:8] == (source.device, source.inode, source.size, source.changed_ns) and row.path == source.path


def _grown(row: Known, source: Source, work: Work) -> bool:
    """Whether the file is the one we know, with more at its end."""
    if row[4:6] != (source.device, source.inode) or source.size <= row.size:
        return False
    work.opened += 1
    try:
        with closing(open_reader(source.path)) as file:
            return fingerprint(file, row.offset) == row.fingerprint
    except OSError:
        return False
