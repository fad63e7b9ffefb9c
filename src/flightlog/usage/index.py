"""The usage level of the index: rows per file and a digest per session, in SQLite.

A session's digest depends on its own files and on the sessions it shares responses with, and
on nothing else: when a file changes, only those digests are made again, from the stored rows.
Serves the bars of a report after growth (12 times ccusage) and of an unchanged one (4 times
tokscale).
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING

from flightlog.model.session import SessionFile
from flightlog.model.usage import ClientTotals, UsageLine
from flightlog.sources.protocol import UsageScan
from flightlog.sources.usage_rows import (
    has_key,
    intersect_sorted,
    merge_sorted,
    pack_rows,
    response_keys,
    unpack_keys,
    unpack_rows,
)
from flightlog.store.index.database import IndexSchema, Readable
from flightlog.store.index.files import (
    IndexedFile,
    PendingRead,
    SyncStats,
    drop_files,
    indexed_files,
    plan_sync,
    save_files,
)
from flightlog.usage.digest import SessionUsage

if TYPE_CHECKING:
    from array import array


LEVEL = 1  # of the tables that several levels of the index share
SCHEMA = IndexSchema(
    "usage",
    """
CREATE TABLE chunks(file INTEGER, start INTEGER, keys BLOB, body BLOB, PRIMARY KEY(file, start));
CREATE TABLE shares(session TEXT, other TEXT, PRIMARY KEY(session, other)) WITHOUT ROWID;
CREATE TABLE response_keys(level INTEGER PRIMARY KEY, keys BLOB);
CREATE TABLE digests(session TEXT PRIMARY KEY, body BLOB);
CREATE TABLE made(level INTEGER PRIMARY KEY, version TEXT, serial INTEGER);
""",
)

SessionGroup = tuple[str, ...]
"""Ids of sessions that share responses with each other and with no other session."""


class UsageIndexUpdate:
    """One run over the index: the plan, the new scans, the new digests, and the write at the end.

    Everything but `write` only reads, so a report is printed before the disk is touched.
    """

    def __init__(self, database: Readable, files: Sequence[SessionFile], version: str) -> None:
        """Plan which `files` to read; digests of another `version` are made again."""
        self.stats = SyncStats()
        self.plan = plan_sync(indexed_files(database, LEVEL), files, self.stats)
        self.version = version
        self.fresh: dict[str, bytes] = {}
        self._database = database
        self._sources = files
        self._files = dict(self.plan.current)
        self._scans: dict[int, tuple[PendingRead, UsageScan]] = {}
        self._new_keys: AbstractSet[int] = set()
        self._new_shares: set[tuple[str, str]] = set()
        self._stale: set[str] = set()
        select = "SELECT version, serial FROM made WHERE level = ?"
        made = database.execute(select, (LEVEL,)).fetchone()
        self._serial = made[1] if made else 0
        self._is_outdated = bool(made) and made[0] != version

    @property
    def damaged_spans(self) -> int:
        """Damaged spans in all files."""
        return sum(file.damaged_lines for file in self._files.values())

    def merge_scans(self, scans: Iterable[tuple[int, UsageScan]]) -> None:
        """Add the scans of the pending files as they arrive, each with its position in the plan."""
        first_owner: dict[int, str] = {}
        for position, scan in scans:
            read = self.plan.pending[position]
            scan.keys = scan.keys or response_keys(scan.rows)
            self._scans[read.id] = read, scan
            self._find_shares(read.file.session, scan.keys, first_owner)
            self.stats.opened += 1
            self.stats.bytes_read += scan.bytes_read
            self.stats.decoded += scan.records_decoded
            self._files[read.id] = _advance(self._files.get(read.id), read, scan)
            self._stale.add(read.file.session)
        self._new_keys = first_owner.keys()
        self._stale.update(row.session for row in self.plan.removed)
        if self.plan.current and self._new_keys:
            self._new_shares |= self._shares_with_stored()

    def stale_groups(self) -> list[SessionGroup]:
        """Return the groups whose digests may have changed, and mark all their sessions as stale."""
        if self._is_outdated:
            self._stale.update(row.session for row in self._files.values())
        neighbors = self._neighbors()
        groups: list[SessionGroup] = []
        seen: set[str] = set()
        for session in sorted(self._stale):
            if session not in seen:
                group = _connected_sessions(session, neighbors)
                seen |= group
                groups.append(tuple(sorted(group)))
        self._stale = seen
        return groups

    def load_usage(self, group: SessionGroup) -> list[SessionUsage]:
        """Return the rows and client totals of each session of a group, stored and new."""
        return [self._load_session(session) for session in group]

    def digests(self) -> dict[str, bytes]:
        """Return the digest of every session that has files, in the order of their ids."""
        sessions = {row.session for row in self._files.values()}
        digests: dict[str, bytes] = {}
        if sessions - self._stale:
            digests = dict(self._database.execute("SELECT session, body FROM digests").fetchall())
        digests |= self.fresh
        return {session: digests[session] for session in sorted(digests) if session in sessions}

    def write(self, database: sqlite3.Connection) -> None:
        """Write the changes, unless another process wrote its own in the meantime."""
        if not (self._scans or self.plan.removed or self._stale):
            return
        database.execute("BEGIN IMMEDIATE")
        try:
            made = database.execute("SELECT serial FROM made WHERE level = ?", (LEVEL,)).fetchone()
            if (made[0] if made else 0) == self._serial:
                self._write_all(database)
            database.execute("COMMIT")
        except sqlite3.Error:
            database.execute("ROLLBACK")
            raise

    def _write_all(self, database: sqlite3.Connection) -> None:
        run = database.executemany
        run("DELETE FROM chunks WHERE file = ?", [(row.id,) for row in self.plan.removed])
        drop_files(database, LEVEL, self.plan.removed)
        save_files(database, LEVEL, [self._files[file] for file in self._scans])
        run(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)",
            [
                (read.id, read.start, scan.keys, scan.packed or pack_rows(scan.rows, scan.totals))
                for read, scan in self._scans.values()
                if scan.rows or scan.totals or scan.packed
            ],
        )
        if not self.plan.current:
            run("DELETE FROM response_keys WHERE level = ?", [(LEVEL,)])
        elif self._new_keys:
            keys = merge_sorted(self._new_keys, self._stored_keys)
            run("INSERT OR REPLACE INTO response_keys VALUES (?, ?)", [(LEVEL, keys)])
        run("INSERT OR IGNORE INTO shares VALUES (?, ?)", sorted(self._new_shares))
        run("DELETE FROM digests WHERE session = ?", [(session,) for session in self._stale])
        run("INSERT OR REPLACE INTO digests VALUES (?, ?)", sorted(self.fresh.items()))
        made = [(LEVEL, self.version, self._serial + 1)]
        run("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", made)

    @cached_property
    def _ids_by_session(self) -> Mapping[str, Sequence[int]]:
        ids: dict[str, list[int]] = defaultdict(list)
        for row in self._files.values():
            ids[row.session].append(row.id)
        return ids

    def _load_session(self, session: str) -> SessionUsage:
        rows: list[UsageLine] = []
        totals: list[ClientTotals] = []
        agents: dict[str, str] = {}
        files = self._ids_by_session[session]
        names = {file: self._agents_by_path[self._files[file].path] for file in files}
        for file in files:
            for file_rows, file_totals in self._load_file(file):
                rows += file_rows
                totals += file_totals
                if len(set(names.values())) > 1:
                    agents |= {row.message_id: names[file] for row in file_rows}
        first = (self._files[file].first_ms for file in files)
        return SessionUsage(session, min(filter(None, first), default=0), rows, totals, agents)

    @cached_property
    def _agents_by_path(self) -> Mapping[str, str]:
        return {file.path: file.agent for file in self._sources}

    def _load_file(self, file: int) -> Iterator[tuple[list[UsageLine], list[ClientTotals]]]:
        if file in self.plan.current:
            query = "SELECT body FROM chunks WHERE file = ? ORDER BY start"
            for (body,) in self._database.execute(query, (file,)):
                yield unpack_rows(body)
        if file in self._scans:
            _, scan = self._scans[file]
            yield unpack_rows(scan.packed) if scan.packed else (scan.rows, scan.totals)

    def _neighbors(self) -> Mapping[str, set[str]]:
        neighbors: dict[str, set[str]] = defaultdict(set)
        stored = self._database.execute("SELECT session, other FROM shares")
        for session, other in [*stored, *self._new_shares]:
            neighbors[session].add(other)
            neighbors[other].add(session)
        return neighbors

    def _find_shares(self, session: str, keys: bytes, first_owner: dict[int, str]) -> None:
        """Find the new sessions that share a response with `session`.

        Only 32-bit keys are compared: a chance hit joins two sessions that share nothing, which
        costs a little time and changes no figure.
        """
        for key in unpack_keys(keys):
            other = first_owner.setdefault(key, session)
            if other != session:
                self._new_shares.add((min(session, other), max(session, other)))

    @cached_property
    def _stored_keys(self) -> "array[int]":
        """The keys of all stored responses, sorted; those of removed files may be among them.

        They are sorted by the first report that grows, because a first report needs none.
        """
        select = "SELECT keys FROM response_keys WHERE level = ?"
        row = self._database.execute(select, (LEVEL,)).fetchone()
        if row:
            return unpack_keys(row[0])
        keys = b"".join(chunk for (chunk,) in self._database.execute("SELECT keys FROM chunks"))
        return unpack_keys(merge_sorted(set(unpack_keys(keys)), unpack_keys(b"")))

    def _shares_with_stored(self) -> set[tuple[str, str]]:
        shared = intersect_sorted(self._new_keys, self._stored_keys)
        if not shared:
            return set()
        owners: dict[int, set[str]] = defaultdict(set)
        for read, scan in self._scans.values():
            for key in shared.intersection(unpack_keys(scan.keys)):
                owners[key].add(read.file.session)
        pairs = set()
        for file, keys in self._database.execute("SELECT file, keys FROM chunks"):
            if file in self.plan.current:
                stored = self.plan.current[file].session
                others = {owner for key in shared if has_key(key, keys) for owner in owners[key]}
                foreign = (owner for owner in others if owner != stored)
                pairs |= {(min(owner, stored), max(owner, stored)) for owner in foreign}
        return pairs


def _advance(row: IndexedFile | None, read: PendingRead, scan: UsageScan) -> IndexedFile:
    file = read.file
    return IndexedFile(
        id=read.id,
        path=file.path,
        session=file.session,
        device=file.device,
        inode=file.inode,
        size=file.size if not scan.error else -1,
        changed_ns=file.changed_ns,
        offset=scan.end,
        fingerprint=scan.fingerprint,
        first_ms=row.first_ms if row and row.first_ms else scan.first_ms,
        damaged_lines=(row.damaged_lines if row else 0) + scan.damaged_lines,
    )


def _connected_sessions(session: str, neighbors: Mapping[str, set[str]]) -> set[str]:
    """Return every session that shares responses with `session`, directly or through others."""
    group = {session}
    border = [session]
    while border:
        for other in neighbors.get(border.pop(), ()):
            if other not in group:
                group.add(other)
                border.append(other)
    return group
