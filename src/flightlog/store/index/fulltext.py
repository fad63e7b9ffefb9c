"""The third level of the index: full-text search.

The table is contentless: it maps words to records, whose text stays in the recording. SQLite
3.40 cannot delete from such a table, so deleted rows are recognized by their missing line and
skipped; when they are a fifth of all rows, the words are indexed again.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema, write_transaction
from flightlog.store.index.files import SyncStats
from flightlog.store.index.records import (
    WORDED,
    IndexedRecord,
    LastTime,
    Read,
    RecordSync,
    sync_records,
)

HASH_BYTES = 32 << 20  # words collected in memory before SQLite writes a segment
# Counting all of 10,000 sessions takes longer than a search while one types may take.
SESSIONS_COUNTED_MAX = 1_000
GONE_SHARE_MAX = 0.2  # deleted rows slow every search; indexing again costs minutes
_MATCH = (
    "p.path, l.offset, l.length, p.session, p.subagent, l.uuid, l.at_ms, p.project"  # RecordMatch
)
_COLUMNS = "said, output, tool, file, model"
# A query of filters alone finds what was said: most other records have no text to show.
_SAID = "l.kind IN ('user', 'assistant')"
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
    subagent: str
    uuid: str
    at_ms: int
    project: str


class RecordQuery(Struct, frozen=True):
    """A full-text expression and filters."""

    match: str = ""
    since_ms: int = 0
    project: str = ""
    sessions: frozenset[str] | None = None
    limit: int = 20  # 0 for no limit
    once_per_session: bool = False  # one match for each of the newest `SESSIONS_COUNTED_MAX`


def sync_text(
    database: sqlite3.Connection, sources: Iterable[SessionFile], read: Read, last_ms: LastTime
) -> SyncStats:
    """Bring records and words up to date; start again if too many rows were deleted."""
    how = RecordSync(read, add_words, last_ms, words=True)
    stats = sync_records(database, sources, how)
    if _is_mostly_deleted(database):
        _recreate_tables(database)
        again = sync_records(database, sources, how)
        stats.opened += again.opened
        stats.bytes_read += again.bytes_read
        stats.decoded += again.decoded
    return stats


def has_text(database: sqlite3.Connection) -> bool:
    """Return whether this level was ever built."""
    return (
        database.execute("SELECT 1 FROM files WHERE level = ? LIMIT 1", (WORDED,)).fetchone()
        is not None
    )


def add_words(database: sqlite3.Connection, rows: Sequence[tuple[int, IndexedRecord]]) -> None:
    """Index the text of records."""
    database.executemany(
        f"INSERT INTO words(rowid, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - fixed columns
        [
            (number, record.text, record.output, record.tool, record.file, record.model)
            for number, record in rows
            if record.text or record.output or record.tool
        ],
    )


def search_words(database: sqlite3.Connection, query: RecordQuery) -> tuple[list[RecordMatch], int]:
    """Return the first matches, the newest recordings first, and how many there are in all.

    Without a limit every match is returned. Once per session, sessions are counted, and those
    after the newest `SESSIONS_COUNTED_MAX` are left out.
    """
    matches: list[RecordMatch] = []
    seen: set[str] = set()
    find = _iter_last_matches if query.once_per_session and query.match else _iter_matches
    for match in find(database, query):
        if (
            query.sessions is None or match.session in query.sessions
        ) and match.session not in seen:
            if not query.limit or len(matches) < query.limit:
                matches.append(match)
            elif not query.once_per_session:
                return matches, _count_records(database, query)
            if query.once_per_session:
                seen.add(match.session)
                if len(seen) == SESSIONS_COUNTED_MAX:
                    break
    return matches, len(seen) or len(matches)


def _count_records(database: sqlite3.Connection, query: RecordQuery) -> int:
    """Return the number of all records that match."""
    counts: Counter[str] = Counter()
    if query.match and not query.since_ms:
        # Looking up 50,000 rows takes longer than the search: count them by the span they are in.
        rows = database.execute("SELECT rowid FROM words WHERE words MATCH ?", (query.match,))
        numbers = sorted(number for (number,) in rows)
        select = (
            "SELECT p.session, p.project, s.first, s.last FROM spans s JOIN places p USING (file)"
        )
        for session, project, first, last in database.execute(select):
            if query.project.lower() in project.lower():
                counts[session] += bisect_right(numbers, last) - bisect_left(numbers, first)
    else:
        counts.update(match.session for match in _iter_matches(database, query))
    return sum(
        count
        for session, count in counts.items()
        if query.sessions is None or session in query.sessions
    )


def _iter_last_matches(database: sqlite3.Connection, query: RecordQuery) -> Iterator[RecordMatch]:
    """Yield the last match of each span; skip the others of a long session by number."""
    rows = database.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC", (query.match,)
    )
    select = (
        f"SELECT {_MATCH}, s.first FROM lines l "  # noqa: S608 - fixed columns
        "JOIN places p ON p.file = l.file "
        "JOIN spans s ON s.file = l.file AND ? BETWEEN s.first AND s.last WHERE l.id = ?"
    )
    below = 1 << 62
    for (number,) in rows:
        row = database.execute(select, (number, number)).fetchone() if number < below else None
        if row is not None:
            *fields, below = row
            match = _make_match(fields)
            if match.at_ms >= query.since_ms and query.project.lower() in match.project.lower():
                yield match


def _iter_matches(database: sqlite3.Connection, query: RecordQuery) -> Iterator[RecordMatch]:
    # CROSS JOIN makes SQLite search the words first.
    table = "words w CROSS JOIN lines l ON l.id = w.rowid" if query.match else "lines l"
    select = (
        f"SELECT {_MATCH} FROM {table} JOIN places p ON p.file = l.file "  # noqa: S608 - fixed columns
        f"WHERE {'words MATCH ?' if query.match else _SAID} AND l.at_ms >= ? AND instr(lower(p.project), ?) "
        f"ORDER BY {'w.rowid' if query.match else 'l.id'} DESC"
    )
    values = (*((query.match,) if query.match else ()), query.since_ms, query.project.lower())
    return map(_make_match, database.execute(select, values))


def _make_match(row: Sequence[Any]) -> RecordMatch:
    path, offset, length, session, subagent, uuid, at_ms, project = row
    if isinstance(uuid, bytes):
        digits = uuid.hex()
        uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return RecordMatch(path, offset, length, session, subagent, uuid, at_ms, project)


def _is_mostly_deleted(database: sqlite3.Connection) -> bool:
    count = "SELECT coalesce(sum(last - first + 1), 0) FROM {}"
    deleted, present = (
        database.execute(count.format(table)).fetchone()[0] for table in ("gone", "spans")
    )
    return bool(deleted > GONE_SHARE_MAX * (deleted + present))


def _recreate_tables(database: sqlite3.Connection) -> None:
    with write_transaction(database):
        if not _is_mostly_deleted(database):  # another process recreated them meanwhile
            return
        for table in ("gone", "lines", "spans", "places"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables
        database.execute("DELETE FROM files WHERE level > 1")
        database.execute("DROP TABLE words")
        for statement in _FTS:
            database.execute(statement)
