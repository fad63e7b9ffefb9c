"""The third level of the index: words, found at once.

A contentless full-text table: it knows which record holds a word, the recording knows the
rest. SQLite 3.40 cannot delete from such a table, so rows that were taken back are found by
their missing line and passed over; when they are a fifth of all, the words are indexed anew.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema
from flightlog.store.index.files import SyncStats
from flightlog.store.index.records import WORDED, IndexedRecord, Read, RecordSync, sync_records, write_transaction

HASH_BYTES = 64 << 20
GONE_SHARE_MAX = 0.2
_COLUMNS = "said, output, tool, file, model"
_FTS = (
    f"CREATE VIRTUAL TABLE words USING fts5({_COLUMNS}, content='', columnsize=0, tokenize='unicode61');",
    f"INSERT INTO words(words, rank) VALUES ('hashsize', {HASH_BYTES});",  # noqa: S608 - a number of ours
    # Few large segments instead of many merges, which take time and leave holes in the file.
    "INSERT INTO words(words, rank) VALUES ('automerge', 16);",
)
SCHEMA = IndexSchema("fulltext", "CREATE TABLE gone(first INTEGER, last INTEGER);" + "".join(_FTS))


class RecordMatch(Struct, frozen=True):
    """A record that matches."""

    path: str
    offset: int
    length: int
    session: str
    lane: str
    uuid: str
    at_ms: int
    project: str


class RecordQuery(Struct, frozen=True):
    """What to look for: a full-text expression, and what else must hold of a record."""

    match: str = ""
    since_ms: int = 0
    project: str = ""
    sessions: frozenset[str] | None = None
    limit: int = 20
    once: bool = False  # one hit for each session


def sync_text(database: sqlite3.Connection, sources: Iterable[SessionFile], read: Read) -> SyncStats:
    """Bring lines and words up to date; too many rows taken back mean a new start."""
    work = sync_records(database, sources, RecordSync(read, add_words, words=True))
    if _is_mostly_deleted(database):
        _recreate_tables(database)
        again = sync_records(database, sources, RecordSync(read, add_words, words=True))
        work.opened += again.opened
        work.bytes_read += again.bytes_read
        work.decoded += again.decoded
    return work


def has_text(database: sqlite3.Connection) -> bool:
    """Whether this level was ever asked for."""
    return database.execute("SELECT 1 FROM files WHERE level = ? LIMIT 1", (WORDED,)).fetchone() is not None


def add_words(database: sqlite3.Connection, rows: Sequence[tuple[int, IndexedRecord]]) -> None:
    """Index what records say."""
    database.executemany(
        "INSERT INTO words(rowid, said, output, tool, file, model) VALUES (?, ?, ?, ?, ?, ?)",
        [(number, *record[5:10]) for number, record in rows if record[5] or record[6] or record[7]],
    )


def search_words(database: sqlite3.Connection, wanted: RecordQuery) -> list[RecordMatch]:
    """Return the first hits, the newest recordings first."""
    hits: list[RecordMatch] = []
    seen: set[str] = set()
    for hit in _iter_last_hits(database, wanted) if wanted.once and wanted.match else _iter_hits(database, wanted):
        if (wanted.sessions is None or hit.session in wanted.sessions) and hit.session not in seen:
            hits.append(hit)
            if wanted.once:
                seen.add(hit.session)
            if len(hits) >= wanted.limit:
                break
    return hits


def _iter_last_hits(database: sqlite3.Connection, wanted: RecordQuery) -> Iterator[RecordMatch]:
    """Yield the last hit of each stretch of lines; the others of a long session are passed over by number alone."""
    found = database.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC", (wanted.match,))
    below = 1 << 62
    for (number,) in found:
        if number >= below:
            continue
        row = database.execute(
            "SELECT p.path, l.offset, l.length, p.session, p.lane, l.uuid, l.at_ms, p.project, s.first FROM lines l "
            "JOIN places p ON p.file = l.file JOIN spans s ON s.file = l.file AND ? BETWEEN s.first AND s.last "
            "WHERE l.id = ?",
            (number, number),
        ).fetchone()
        if row is None:
            continue
        path, offset, length, session, lane, uuid, at_ms, of, below = row
        if at_ms >= wanted.since_ms and wanted.project.lower() in of.lower():
            yield RecordMatch(path, offset, length, session, lane, _uuid_text(uuid), at_ms, of)


def _iter_hits(database: sqlite3.Connection, wanted: RecordQuery) -> Iterator[RecordMatch]:
    select = (
        "SELECT p.path, l.offset, l.length, p.session, p.lane, l.uuid, l.at_ms, p.project "
        "FROM {} JOIN places p ON p.file = l.file WHERE {} l.at_ms >= ? AND instr(lower(p.project), ?) "
    )
    project = wanted.project.lower()
    if wanted.match:
        found = database.execute(
            select.format("words w CROSS JOIN lines l ON l.id = w.rowid", "words MATCH ? AND")
            + "ORDER BY w.rowid DESC",
            (wanted.match, wanted.since_ms, project),
        )
    else:
        found = database.execute(select.format("lines l", "") + "ORDER BY l.id DESC", (wanted.since_ms, project))
    for path, offset, length, session, lane, uuid, at_ms, of in found:
        yield RecordMatch(path, offset, length, session, lane, _uuid_text(uuid), at_ms, of)


def _uuid_text(uuid: bytes | str) -> str:
    if isinstance(uuid, str):
        return uuid
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _is_mostly_deleted(database: sqlite3.Connection) -> bool:
    """Whether too many rows were taken back."""
    count = "SELECT coalesce(sum(last - first + 1), 0) FROM {}"
    gone, there = (database.execute(count.format(table)).fetchone()[0] for table in ("gone", "spans"))
    return bool(gone > GONE_SHARE_MAX * (gone + there))


def _recreate_tables(database: sqlite3.Connection) -> None:
    with write_transaction(database):
        if not _is_mostly_deleted(database):  # somebody was quicker
            return
        for table in ("gone", "lines", "spans", "places"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables
        database.execute("DELETE FROM files WHERE level > 1")
        database.execute("DROP TABLE words")
        for statement in _FTS:
            database.execute(statement)
