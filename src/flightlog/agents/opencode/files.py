"""Find OpenCode's sessions: rows of `opencode.db` and, of older versions, files in `storage`.

All sessions share one database, so its own size and time say nothing about one of them. A session
is read again when its rows changed: their counts, which tell a deleted one, the times at which they
were written, and the number of its last event, which the client counts up with every write.
Listing reads no parts, except their times where a client counted no events.
"""

import os
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from flightlog.agents.opencode.rows import TOTALS, TREE, open_database, read_file
from flightlog.agents.session_files import list_entries
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.foreign_json import LATEST_MS, parse_object, text_field
from flightlog.sources.protocol import FileListing

AGENT_NAME = "opencode"
_DATABASE = re.compile(r"opencode(-[\w.-]+)?\.db")
_MS = "COALESCE(CAST({} AS INTEGER), 0)"  # in a damaged row a time may be anything
_TIME_END = 10**15  # later times are damage, and their sum is not to overflow
_NS = 1_000_000  # in a millisecond
_ROW_BYTES = 1 << 10  # a guess: the size of a session is not known before it is read


class ListedSession(NamedTuple):
    """A session, the directory of its virtual file, and the state of its rows."""

    id: str
    parent: str
    container: str
    changed_ms: int
    state: int
    row_count: int


def find_sessions(dirs: Sequence[str]) -> FileListing:
    """List the sessions below OpenCode's data directories."""
    damage: list[Damage] = []
    files = [file for folder in dirs for file in _make_files(_list_folder(folder, damage), damage)]
    return FileListing(tuple(files), tuple(damage))


def session_files(file: SessionFile) -> tuple[SessionFile, ...]:
    """List the current files of a session; of one in our own archive, nothing."""
    container = file.path.rpartition("/")[0]
    sessions: Iterable[ListedSession] = ()
    with suppress(OSError):
        if container.endswith(".json"):
            sessions = _list_storage(container.rpartition("/session/")[0], (), [])
        elif _DATABASE.fullmatch(container.rpartition("/")[2]):
            sessions = _list_database(container, file.session)
    files = _make_files({session.id: session for session in sessions}, [])
    return tuple(found for found in files if found.session == file.session)


def _list_folder(folder: str, damage: list[Damage]) -> dict[str, ListedSession]:
    listed: dict[str, ListedSession] = {}
    for entry in list_entries(folder, damage):
        if _DATABASE.fullmatch(entry.name):
            try:
                listed |= {session.id: session for session in _list_database(entry.path)}
            except OSError as error:
                damage.append(Damage(entry.path, 0, 0, error.strerror or "unreadable"))
    # A client that moved old sessions into its database left their files behind.
    old = _list_storage(f"{folder}/storage", listed, damage)
    return {session.id: session for session in (*listed.values(), *old)}


def _list_database(path: str, root: str = "") -> list[ListedSession]:
    """Return the sessions of a database, or only `root` and its subagents."""
    tree, only = (TREE, "IN (SELECT id FROM tree)") if root else ("", "IS NOT ?1")

    def fetch(columns: str, table: str, key: str, rest: str = "") -> dict[str, tuple[int, ...]]:
        select = f"{tree} SELECT {key}, {columns} FROM {table} WHERE {key} {only} {rest}"  # noqa: S608 - fixed names
        return {str(name): tuple(row) for name, *row in database.execute(select, (root or None,))}

    with open_database(path) as database:
        known = {row[1] for row in database.execute("PRAGMA table_info(session)")}
        totals = [name for name in TOTALS.values() if name in known]
        columns = ", ".join(("parent_id", _MS.format("time_updated"), *totals))
        sessions = fetch(columns, "session", "id")
        group = "GROUP BY session_id"
        written = f"COUNT(*), SUM({_MS.format('time_updated')} % {_TIME_END}), {_MS.format('MAX(time_updated)')}"
        messages = fetch(written, "message", "session_id", group)
        parts = fetch("COUNT(*)", "part", "session_id", group)
        events: dict[str, tuple[int, ...]] = {}
        with suppress(sqlite3.OperationalError):
            events = fetch("seq", "event_sequence", "aggregate_id")
        select = f"SELECT {written} FROM part WHERE session_id = ?"  # noqa: S608 - fixed names
        for name in sessions.keys() - events.keys():
            parts[name] = database.execute(select, (name,)).fetchone()
    listed = []
    for name, (parent, updated_ms, *rest) in sessions.items():
        own = messages.get(name, (0, 0, 0)), parts.get(name, (0,))
        state = zlib.crc32(repr((updated_ms, rest, own, events.get(name))).encode())
        changed_ms = min(max(updated_ms, own[0][2], 0), LATEST_MS)
        count = 1 + own[0][0] + own[1][0]
        listed.append(ListedSession(name, str(parent or ""), path, changed_ms, state, count))
    return listed


def _list_storage(
    storage: str, known: Iterable[str], damage: list[Damage]
) -> Iterator[ListedSession]:
    """Yield the sessions of older versions except the `known` ones."""
    for project in list_entries(f"{storage}/session", damage):
        for entry in list_entries(project.path, damage):
            name = entry.name.removesuffix(".json")
            if name == entry.name or name in known:
                continue
            # Parts are written before their message is complete: their directory's time will do.
            messages = [message.path for message in list_entries(f"{storage}/message/{name}", [])]
            parts = [f"{storage}/part/{path.rpartition('/')[2][:-5]}" for path in messages]
            times = [_changed_ns(path) for path in (entry.path, *messages, *parts)]
            try:
                parent = text_field(parse_object(read_file(entry.path)) or {}, "parentID")
            except OSError as error:
                damage.append(Damage(entry.path, 0, 0, error.strerror or "unreadable"))
                continue
            state = zlib.crc32(repr(times).encode())
            yield ListedSession(name, parent, entry.path, max(times) // _NS, state, len(times))


def _make_files(listed: Mapping[str, ListedSession], damage: list[Damage]) -> Iterator[SessionFile]:
    """Yield a file for each session; one that another session started is its subagent."""
    trees: dict[str, list[ListedSession]] = defaultdict(list)
    for session in listed.values():
        if is_safe(session.id):
            trees[_find_root(session, listed)].append(session)
        else:
            damage.append(Damage(session.container, 0, 0, "a session's id is not usable"))
    for root, tree in sorted(trees.items()):
        for session in sorted(tree, key=lambda session: (session.id != root, session.id)):
            is_root = session.id == root
            # The totals of a session include those of its subagents.
            state = zlib.crc32(repr(sorted(tree)).encode()) if is_root else session.state
            yield SessionFile(
                f"{session.container}/{session.id}",
                root,
                # Some caches compare only these: each change of rows is to show in both.
                session.row_count * _ROW_BYTES + state % _ROW_BYTES,
                session.changed_ms * _NS + state % _NS,
                "" if is_root else session.id,
                inode=state,
                agent=AGENT_NAME,
            )


def _find_root(session: ListedSession, listed: Mapping[str, ListedSession]) -> str:
    seen = {session.id}
    while session.parent in listed and is_safe(session.parent):
        if session.parent in seen:
            return min(seen)  # a damaged row may name one of its own subagents
        session = listed[session.parent]
        seen.add(session.id)
    return session.id


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - plain text
    except OSError:
        return 0
