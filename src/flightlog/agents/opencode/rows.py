"""Read OpenCode's sessions as lines: rows of a database, or the files of older versions.

A session is a line with what never changes of it, one line for each message with its parts, and
last its title and totals, which change with every message: what is before only grows. All lines are
of one state of the database. It is opened read-only and with its write-ahead log, in which
everything may be that the client wrote.

A fork copies messages under new ids but with their times. So a response is named by the time of the
session's first message and its own; subagents' messages are never copied and keep their ids.
"""

import errno
import os
import re
import sqlite3
import stat
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from flightlog.model.errors import UNREADABLE
from flightlog.sources.foreign_json import int_field, object_field, parse_object, text_field

# `<database>/<session>`, and for older versions `<the session's own file>/<session>`.
SESSION_PATHS = re.compile(
    r".*/(?:opencode(?:-[\w.-]+)?\.db|storage/session/[^/]+/[^/]+\.json)/[^/]+"
)
TOTALS = {
    "cost": "cost",
    "input": "tokens_input",
    "output": "tokens_output",
    "reasoning": "tokens_reasoning",
    "read": "tokens_cache_read",
    "write": "tokens_cache_write",
}
_BUSY_SECONDS = 0.25  # readers of a write-ahead log wait only while another process repairs it
_FIXED = ("id", "project_id", "parent_id", "slug", "directory", "version", "time_created")
# A session and its subagents, at any depth.
TREE = (
    "WITH RECURSIVE tree(id) AS (VALUES (?1) UNION"
    " SELECT session.id FROM session JOIN tree ON session.parent_id = tree.id)"
)
_MESSAGES = (
    "SELECT CAST(id AS TEXT), COALESCE(CAST(time_created AS INTEGER), 0),"
    " COALESCE(CAST(data AS BLOB), x'') FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_PARTS = (
    "SELECT CAST(message_id AS TEXT), CAST(id AS TEXT), COALESCE(CAST(data AS BLOB), x'')"
    " FROM part WHERE session_id = ?"
)
# Times of the first message and of those that an older session with the same first one has, too.
_COPIED = """
WITH first(id, at) AS (SELECT session_id, MIN(time_created) FROM message GROUP BY session_id)
SELECT own.at, message.time_created FROM first AS own JOIN message ON message.session_id = own.id
WHERE own.id = ?1 AND message.time_created IN (
    SELECT copy.time_created FROM session JOIN first ON first.id = session.id
    JOIN message AS copy ON copy.session_id = session.id
    WHERE first.at = own.at AND session.parent_id IS NULL
    AND session.time_created < (SELECT time_created FROM session WHERE id = ?1))
"""
_encode = msgspec.json.Encoder().encode
_connections: dict[tuple[str, int, int, int, int], sqlite3.Connection] = {}


class SessionRows(NamedTuple):
    """The rows of a session: id, time and content of messages, id and content of their parts."""

    session: dict[str, Any]
    messages: list[tuple[str, int, bytes]]
    parts: Mapping[str, list[tuple[str, bytes]]]


def read_session(path: str) -> bytes:
    """Return the lines of the session at `path`, or raise `OSError`."""
    return b"".join(_make_lines(_load(path, with_parts=True)))


def read_messages(path: str) -> bytes:
    """Return the same lines without the parts, which count no tokens and are most of the bytes."""
    return b"".join(_make_lines(_load(path, with_parts=False)))


def find_copied_responses(path: str) -> frozenset[str]:
    """Return the messages that the session at `path` has from an older one, whose fork it is."""
    container, _, session = path.rpartition("/")
    with open_database(container) as database:
        copied = database.execute(_COPIED, (session,)).fetchall()
    return frozenset(_name_response(first_ms, at_ms) for first_ms, at_ms in copied)


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Yield a connection on one state of a database; raise `OSError` if it cannot be read.

    It stays open for the next session: opening reads the whole write-ahead log. A forked process
    and another thread need their own.
    """
    state = os.stat(path)  # noqa: PTH116 - as text, like all paths here
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a file", path)  # SQLite would wait for a named pipe
    key = (path, state.st_dev, state.st_ino, os.getpid(), threading.get_ident())
    try:
        database = _connections.get(key)
        if database is None:
            close_databases()
            database = _connections[key] = _connect(path)
        database.execute("BEGIN")
        try:
            yield database
        finally:
            database.execute("COMMIT")
    except sqlite3.Error as error:
        close_databases()
        raise OSError(errno.EIO, str(error), path) from error


def close_databases() -> None:
    """Close what this thread has open."""
    own = (os.getpid(), threading.get_ident())
    for key in [key for key in _connections if key[3:] == own]:
        with suppress(sqlite3.Error):
            _connections.pop(key).close()


def _connect(path: str) -> sqlite3.Connection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri, timeout = f"file:{quoted}?mode=ro", _BUSY_SECONDS
    database = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
    database.text_factory = _decode_text
    return database


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _load(path: str, *, with_parts: bool) -> SessionRows:
    container, _, session = path.rpartition("/")
    if container.endswith(".json"):
        return _load_files(container, session, with_parts=with_parts)
    with open_database(container) as database:
        columns = _fetch_row(database, "SELECT * FROM session WHERE id = ?1", session)
        if columns is None:
            raise FileNotFoundError(errno.ENOENT, "no such session in the database", path)
        messages = database.execute(_MESSAGES, (session,)).fetchall()
        parts: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        if with_parts:
            for message, part, data in database.execute(_PARTS, (session,)):
                parts[message].append((part, data))
        if columns.keys() >= {*TOTALS.values()}:
            sums = ", ".join(f'SUM({column}) AS "{name}"' for name, column in TOTALS.items())
            select = f"{TREE} SELECT {sums} FROM session JOIN tree USING (id)"  # noqa: S608 - fixed names
            columns["tree"] = _fetch_row(database, select, session)
    return SessionRows(columns, messages, parts)


def _fetch_row(database: sqlite3.Connection, select: str, session: str) -> dict[str, Any] | None:
    cursor = database.execute(select, (session,))
    row = cursor.fetchone()
    return row and dict(zip([column[0] for column in cursor.description], row, strict=True))


def _load_files(path: str, session: str, *, with_parts: bool) -> SessionRows:
    """Read the files in which older versions kept each row."""
    storage = path.rpartition("/session/")[0]
    info = parse_object(read_file(path)) or {}
    times = object_field(info, "time")
    columns = {
        "id": session,
        "parent_id": text_field(info, "parentID") or None,
        "directory": text_field(info, "directory"),
        "version": text_field(info, "version"),
        "title": text_field(info, "title"),
        "time_created": int_field(times, "created"),
        "time_updated": int_field(times, "updated"),
    }
    messages = []
    parts: dict[str, list[tuple[str, bytes]]] = {}
    for name, data in _iter_files(f"{storage}/message/{session}"):
        created = object_field(parse_object(data) or {}, "time")
        messages.append((name, int_field(created, "created"), data))
        parts[name] = list(_iter_files(f"{storage}/part/{name}")) if with_parts else []
    messages.sort(key=lambda message: (message[1], message[0]))
    return SessionRows(columns, messages, parts)


def _iter_files(folder: str) -> Iterator[tuple[str, bytes]]:
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - plain text
            if name.endswith(".json"):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield name.removesuffix(".json"), read_file(f"{folder}/{name}")


def read_file(path: str) -> bytes:
    """Return the content of a file; raise `OSError` for anything else, such as a named pipe."""
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        raise FileNotFoundError(errno.ENOENT, "not a file", path)
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def _make_lines(rows: SessionRows) -> Iterator[bytes]:
    known = {key: value for key, value in rows.session.items() if value is not None}
    fixed = {key: known.pop(key) for key in _FIXED if key in known}
    yield _encode({"type": "session", **fixed}) + b"\n"
    own_ids = "parent_id" in fixed
    names: set[str] = set()
    for message, created_ms, data in rows.messages:
        response = message if own_ids else _name_response(rows.messages[0][1], created_ms)
        response = response if response not in names else message
        names.add(response)
        head = {"type": "message", "id": message, "response": response, "time_created": created_ms}
        yield from _message_lines(head, data, rows.parts.get(message, ()))
    for message in sorted(rows.parts.keys() - {message for message, _, _ in rows.messages}):
        head = {"type": "parts without a message", "id": message}
        yield from _message_lines(head, b"{}", rows.parts[message])
    yield _encode({"type": "state", "id": fixed["id"], **known}) + b"\n"


def _name_response(first_ms: int, at_ms: int) -> str:
    return f"{first_ms:x}-{at_ms:x}"


def _message_lines(
    head: dict[str, Any], data: bytes, parts: Iterable[tuple[str, bytes]]
) -> Iterator[bytes]:
    """Yield a line with the client's own JSON in it, after one for each damaged part."""
    sound = []
    for part, content in sorted(parts):
        line = b'{"id":%s,"data":%s}' % (_encode(part), content.replace(b"\n", b" "))
        if _is_json(content):
            sound.append(line)
        else:
            yield line + b"\n"
    joined, body = b",".join(sound), data.replace(b"\n", b" ")
    yield b'%s,"data":%s,"parts":[%s]}\n' % (_encode(head)[:-1], body, joined)


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True
