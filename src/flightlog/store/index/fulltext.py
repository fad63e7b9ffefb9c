"""The third level of the index: full-text search.

The table is contentless: it maps words to records, whose text stays in the recording. SQLite
3.40 cannot delete from such a table, so deleted rows are recognized by their missing line and
skipped; when they are a fifth of all rows, the words are indexed again.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, json

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema, Readable, write_transaction
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
# The columns of a `RecordMatch`.
_MATCH = "p.path, l.offset, l.length, p.session, p.subagent, l.uuid, l.at_ms, p.project"
_COLUMNS = "said, output, tool, file, model"
_SPANS = "SELECT first, last, file FROM spans WHERE file IN (SELECT value FROM json_each(?)) ORDER BY first"
_IN_RANGE = (
    "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC"
)
_SKIPPED_AFTER = 5_000  # matches of one file; starting the query again below it takes less time
_FTS = (
    f"CREATE VIRTUAL TABLE words USING fts5({_COLUMNS}, content='', columnsize=0, tokenize='unicode61');",
    f"INSERT INTO words(words, rank) VALUES ('hashsize', {HASH_BYTES});",  # noqa: S608 - a number of ours
    # Few large segments instead of many merges, which take time and leave holes in the file.
    "INSERT INTO words(words, rank) VALUES ('automerge', 16);",
)
_decode_numbers = json.Decoder(list[int]).decode
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


class ScopedFile(NamedTuple):
    """A file of the index, its state when it was read, and the time of its last record."""

    number: int
    session: str
    subagent: str
    project: str
    path: str
    size: int
    changed_ns: int
    device: int
    inode: int
    last_ms: int


class MatchLimits(NamedTuple):
    """How many matches are returned, in all and of one file.

    Once there are enough of them, at most `examined` are looked at to count the files.
    """

    total: int
    per_file: int
    examined: int = 5_000  # some 5 ms; common words match hundreds of thousands


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
    select = "SELECT 1 FROM files WHERE level = ? LIMIT 1"
    return database.execute(select, (WORDED,)).fetchone() is not None


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
        is_wanted = query.sessions is None or match.session in query.sessions
        if is_wanted and match.session not in seen:
            if not query.limit or len(matches) < query.limit:
                matches.append(match)
            elif not query.once_per_session:
                return matches, _count_records(database, query)
            if query.once_per_session:
                seen.add(match.session)
                if len(seen) == SESSIONS_COUNTED_MAX:
                    break
    return matches, len(seen) or len(matches)


def iter_scoped_files(database: Readable, roots: Sequence[str] | None) -> Iterator[ScopedFile]:
    """Yield the files of the sessions that began at or below `roots`, session by session.

    None means everywhere.
    """
    where, values = "1", []
    if roots is not None:
        where = " OR ".join(["project = ? OR substr(project, 1, ?) = ?"] * len(roots)) or "0"
        values = [value for root in roots for value in (root, len(root) + 1, f"{root}/")]
    rows = database.execute(
        "SELECT p.file, p.session, p.subagent, p.project, p.path, f.size, f.changed_ns, f.device, f.inode,"  # noqa: S608 - fixed texts
        # The last records of a file may be without a time.
        " coalesce((SELECT max(at_ms) FROM lines l, (SELECT max(last) AS last FROM spans s"
        " WHERE s.file = p.file) e WHERE l.id > e.last - 8 AND l.id <= e.last AND l.file = p.file), 0)"
        " FROM places p JOIN files f ON f.level = ? AND f.path = p.path "
        f"WHERE p.session IN (SELECT session FROM places WHERE subagent = '' AND ({where})) "
        "ORDER BY p.session, p.subagent, p.path",
        (WORDED, *values),
    )
    return map(ScopedFile._make, rows)


def search_files(
    database: Readable, match: str, files: Iterable[int], limits: MatchLimits
) -> tuple[list[RecordMatch], int, bool]:
    """Return the newest matches in some files, how many files match, and whether that is all.

    Of a file with many matches the rest is skipped, so that one long session does not hide the
    others.
    """
    wanted = f"[{','.join(map(str, files))}]"
    spans = database.execute(_SPANS, (wanted,)).fetchall()
    firsts = [first for first, _, _ in spans]
    counts: Counter[int] = Counter()
    numbers: list[int] = []
    high, examined = spans[-1][1] if spans else 0, 0
    is_all = False
    while spans and high >= firsts[0] and not is_all:
        rows = database.execute(_IN_RANGE, (match, firsts[0], high))
        is_all = True
        for (number,) in rows:
            first, last, file = spans[bisect_right(firsts, number) - 1]
            examined += 1
            if first <= number <= last:
                counts[file] += 1
                if counts[file] <= limits.per_file and len(numbers) < limits.total:
                    numbers.append(number)
            if len(numbers) >= limits.total and examined >= limits.examined:
                high, is_all = 0, False
                break
            if first <= number <= last and counts[file] >= _SKIPPED_AFTER:
                high, is_all = first - 1, False
                break
    join = f"SELECT {_MATCH} FROM lines l JOIN places p ON p.file = l.file WHERE l.id = ?"  # noqa: S608 - as above
    found = (database.execute(join, (number,)).fetchone() for number in numbers)
    return [_make_match(row) for row in found if row], len(counts), is_all or high > 0


def _count_records(database: sqlite3.Connection, query: RecordQuery) -> int:
    """Return the number of all records that match."""
    counts: Counter[str] = Counter()
    above = 0
    if query.match and not query.since_ms:
        # SQLite counts three times as fast as Python. That is exact after the last deleted row.
        top, is_all = 1 << 62, query.sessions is None and not query.project
        if is_all:
            (top,) = database.execute("SELECT coalesce(max(last), 0) FROM gone").fetchone()
            select = "SELECT count(*) FROM words WHERE words MATCH ? AND rowid > ?"
            (above,) = database.execute(select, (query.match, top)).fetchone()
        # Looking up 50,000 rows takes longer than the search: count them by the span they are in.
        numbers = sorted(_matching_rows(database, query.match, top)) if top else []
        select = "SELECT session, project, first, last FROM spans JOIN places USING (file)"
        for session, project, first, last in database.execute(select) if numbers else ():
            if query.project.lower() in project.lower():
                counts[session] += bisect_right(numbers, last) - bisect_left(numbers, first)
    else:
        counts.update(match.session for match in _iter_matches(database, query))
    wanted = counts if query.sessions is None else counts.keys() & query.sessions
    return above + sum(counts[session] for session in wanted)


def _matching_rows(database: sqlite3.Connection, match: str, top: int) -> list[int]:
    """Return the numbers of the rows up to `top` that match; as one text, in half the time."""
    select = "SELECT group_concat(rowid) FROM words WHERE words MATCH ? AND rowid <= ?"
    (numbers,) = database.execute(select, (match, top)).fetchone()
    return _decode_numbers(f"[{numbers or ''}]")


def _iter_last_matches(database: sqlite3.Connection, query: RecordQuery) -> Iterator[RecordMatch]:
    """Yield the last match of each span; skip the others of a long session by number."""
    select = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC"
    rows = database.execute(select, (query.match,))
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
        f"WHERE {'words MATCH ?' if query.match else 'l.has_words'} AND l.at_ms >= ? AND instr(lower(p.project), ?) "
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
