"""What was worked out about whole sessions, kept until one of their files changes.

Whoever asks brings the function that works it out; here it is only kept, by session, kind
and the stamp of the session's files. Like all of the index it can be thrown away.
"""

import sqlite3
import zlib
from collections.abc import Iterable

from flightlog.model.session import SessionFile
from flightlog.store.index.database import IndexSchema

SCHEMA = IndexSchema(
    "session_values",
    """
CREATE TABLE told(kind TEXT, session TEXT, stamp INTEGER, body BLOB, PRIMARY KEY(kind, session)) WITHOUT ROWID;
""",
)


def file_stamp(sources: Iterable[SessionFile], made_by: str) -> int:
    """Return a number that changes when a file does, or the code that reads it."""
    told = sorted((each.path, each.device, each.inode, each.size, each.changed_ns) for each in sources)
    return zlib.crc32(repr((made_by, told)).encode("utf-8", "surrogateescape"))


def load_values(database: sqlite3.Connection, kind: str) -> dict[str, tuple[int, bytes]]:
    """Return everything of one kind: stamp and body by session."""
    rows = database.execute("SELECT session, stamp, body FROM told WHERE kind = ?", (kind,))
    return {session: (number, body) for session, number, body in rows}


def load_value(database: sqlite3.Connection, kind: str, session: str) -> tuple[int, bytes] | None:
    """Return what is kept of one session."""
    row = database.execute("SELECT stamp, body FROM told WHERE kind = ? AND session = ?", (kind, session)).fetchone()
    return (row[0], row[1]) if row else None


def store_values(database: sqlite3.Connection, kind: str, rows: Iterable[tuple[str, int, bytes]]) -> None:
    """Write down what was worked out."""
    database.execute("BEGIN IMMEDIATE")
    try:
        database.executemany("INSERT OR REPLACE INTO told VALUES (?, ?, ?, ?)", [(kind, *row) for row in rows])
        database.execute("COMMIT")
    except sqlite3.Error:
        database.execute("ROLLBACK")
        raise
