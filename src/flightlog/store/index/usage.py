"""The first level of the index: what every file says about usage, and an answer per session.

Per file it keeps the rows that were scanned; per session a digest somebody else works out.
A session's digest depends on its own files and on the sessions it shares responses with, and
on nothing else: when a file changes, only those are worked out again, from their rows. What
counts, and what it costs, is decided by the functions passed in.
"""

import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from flightlog.model.usage import ClientTotals, Row
from flightlog.store.index.chunks import held, in_order, is_in, keys, numbers, pack, unpack
from flightlog.store.index.database import Readable
from flightlog.store.index.files import Known, Plan, Reading, Source, Work, drop_files, known_files, plan, save_files

if TYPE_CHECKING:
    from array import array

LEVEL = 1
SCHEMA = """
CREATE TABLE chunks(file INTEGER, start INTEGER, keys BLOB, body BLOB, PRIMARY KEY(file, start));
CREATE TABLE shares(session TEXT, other TEXT, PRIMARY KEY(session, other)) WITHOUT ROWID;
CREATE TABLE heard(level INTEGER PRIMARY KEY, numbers BLOB);
CREATE TABLE digests(session TEXT PRIMARY KEY, body BLOB);
CREATE TABLE made(level INTEGER PRIMARY KEY, by TEXT, serial INTEGER);
CREATE TABLE reports(name TEXT PRIMARY KEY, listing BLOB, body BLOB);
"""


class Scanned(Protocol):
    """What a scan of a file's new bytes tells."""

    rows: list[Row]
    totals: list[ClientTotals]
    end: int
    read: int
    decoded: int
    damaged: int
    born_ms: int
    fingerprint: int
    error: str
    packed: bytes
    keys: bytes
    digest: bytes


class Account(Struct):
    """Everything the files of one session say about usage."""

    session: str
    born_ms: int
    rows: list[Row]
    totals: list[ClientTotals]


Scan = Callable[[Sequence[Reading]], Iterable[tuple[int, Scanned]]]
"""Yields, in any order, what each reading says, beside its place among the others."""


Group = Callable[[], Sequence[Account]]
"""Sessions that share responses with each other and with nobody else, fetched when called."""


class Maker(NamedTuple):
    """Works out digests; those of another version are made again.

    `digest` is told whether the groups may be fetched in another process.
    """

    digest: Callable[[Sequence[Group], bool], Mapping[str, bytes]]
    version: str


class Before(Struct, frozen=True):
    """Reports as they stood before something changed, and the digests they were made of that were replaced since."""

    reports: dict[str, bytes]
    replaced: dict[str, bytes]


class UsageSync(Struct):
    """The digests of all sessions, and what is left to be written down.

    Where there is a report from `before`, only the digests that came since.
    """

    digests: dict[str, bytes]
    before: Before | None
    damaged: int
    work: Work
    commit: Callable[[sqlite3.Connection], None]
    reports: dict[str, bytes]


def kept_reports(database: Readable, names: Iterable[str], sources: Sequence[Source]) -> dict[str, bytes] | None:
    """Return the reports that were kept under `names`, if all are there and no file changed since."""
    return _reports(database, "SELECT body FROM reports WHERE name = ? AND listing = ?", names, _listing(sources))


def sync_usage(
    database: Readable, sources: Sequence[Source], scan: Scan, maker: Maker, reports: Iterable[str] = ()
) -> UsageSync:
    """Bring the usage level up to date in memory; `commit` of the result writes it down in the index it came from.

    What the caller puts in the `reports` of the result before the commit is kept until a file changes, and
    is then the one from before for whoever asks for `reports` of those names.
    """
    work = Work()
    database.execute("BEGIN")
    try:
        update = _Update(database, plan(known_files(database, LEVEL), sources, work), maker)
        update.listing = _listing(sources)
        update.take(scan(update.plan.readings), work)
        update.digest_again()
        before = update.before(reports)
        digests = update.fresh if before else update.digests()
    finally:
        database.execute("COMMIT")
    damaged = sum(row.damaged for row in update.files.values())
    return UsageSync(digests, before, damaged, work, update.write, update.reports)


class _Update:
    """One sync: what was there, what came, what changed."""

    def __init__(self, database: Readable, todo: Plan, maker: Maker) -> None:
        self.database, self.plan, self.maker = database, todo, maker
        self.files = dict(todo.kept)
        self.scans: list[tuple[Reading, Scanned]] = []
        self.edges: set[tuple[str, str]] = set()
        self.heard: AbstractSet[int] = set()
        self.fresh: dict[str, bytes] = {}
        self.stale: set[str] = set()
        self.listing = b""
        self.reports: dict[str, bytes] = {}
        made = database.execute("SELECT by, serial FROM made WHERE level = ?", (LEVEL,)).fetchone()
        self.serial = made[1] if made else 0
        self.renewed = bool(made) and made[0] != maker.version

    def take(self, scanned: Iterable[tuple[int, Scanned]], work: Work) -> None:
        """Take in what the scans find, as it comes, and who is affected by it."""
        came: dict[int, Scanned] = {}
        holders: dict[int, str] = {}
        for place, found in scanned:
            came[place] = found
            found.keys = found.keys or keys(found.rows)
            self._hear(self.plan.readings[place].source.session, found.keys, holders)
        self.heard = holders.keys()
        for place, reading in enumerate(self.plan.readings):
            found = came[place]
            self.scans.append((reading, found))
            work.opened += 1
            work.bytes_read += found.read
            work.decoded += found.decoded
            self.files[reading.file] = _advanced(self.files.get(reading.file), reading, found)
            self.stale.add(reading.source.session)
        self.stale.update(row.session for row in self.plan.back)
        if self.plan.kept and self.heard:
            self.edges |= self._stored_edges()

    def digest_again(self) -> None:
        """Work out the digests that may have changed, one group of sharing sessions after the other."""
        neighbours = self._neighbours()
        if self.renewed:
            self.stale.update(row.session for row in self.files.values())
        files: dict[str, list[int]] = defaultdict(list)
        for row in self.files.values():
            files[row.session].append(row.id)
        new: dict[int, list[Scanned]] = defaultdict(list)
        for reading, found in self.scans:
            new[reading.file].append(found)
        done: set[str] = set()
        todo: list[Group] = []
        for session in sorted(self.stale):
            if session in done:
                continue
            group = _group(session, neighbours)
            done |= group
            early = self._early(files[session], new) if len(group) == 1 else b""
            if early:
                self.fresh[session] = early
            else:
                todo.append(partial(self._accounts, {name: files[name] for name in sorted(group)}, new))
        self.fresh.update(self.maker.digest(todo, not self.plan.kept))
        self.stale = done

    def _early(self, files: Iterable[int], new: Mapping[int, list[Scanned]]) -> bytes:
        """A digest that was made where the files were scanned; it counts if they are all there is."""
        if self.plan.kept:
            return b""
        return next((found.digest for file in files for found in new.get(file, ()) if found.digest), b"")

    def before(self, names: Iterable[str]) -> Before | None:
        """Return the reports of those names from before, if all that happened since is in the digests."""
        if self.plan.back or self.renewed:
            return None
        found = _reports(self.database, "SELECT body FROM reports WHERE name = ?", names)
        if not found:
            return None
        ask = "SELECT session, body FROM digests WHERE session = ?"
        rows = (self.database.execute(ask, (session,)).fetchone() for session in sorted(self.fresh))
        return Before(found, dict(filter(None, rows)))

    def digests(self) -> dict[str, bytes]:
        """Return every session's digest, those of sessions without files left out."""
        sessions = {row.session for row in self.files.values()}
        kept = {}
        if sessions - self.stale:
            kept = dict(self.database.execute("SELECT session, body FROM digests").fetchall())
        every = {session: kept[session] for session in kept if session not in self.stale} | self.fresh
        return {session: every[session] for session in sorted(every) if session in sessions}

    def write(self, database: sqlite3.Connection) -> None:
        """Write down what changed, unless somebody else did so in the meantime."""
        if not (self.scans or self.plan.back or self.stale or self.reports):
            return
        database.execute("BEGIN IMMEDIATE")
        try:
            made = database.execute("SELECT serial FROM made WHERE level = ?", (LEVEL,)).fetchone()
            if (made[0] if made else 0) == self.serial:
                self._write_all(database)
            database.execute("COMMIT")
        except sqlite3.Error:
            database.execute("ROLLBACK")
            raise

    def _write_all(self, database: sqlite3.Connection) -> None:
        run = database.executemany
        back = [(row.id,) for row in self.plan.back]
        run("DELETE FROM chunks WHERE file = ?", back)
        drop_files(database, LEVEL, self.plan.back)
        save_files(database, LEVEL, [self.files[reading.file] for reading, _ in self.scans])
        run(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)",
            [
                (
                    reading.file,
                    reading.start,
                    found.keys,
                    found.packed or pack(found.rows, found.totals),
                )
                for reading, found in self.scans
                if found.rows or found.totals or found.packed
            ],
        )
        if not self.plan.kept:
            run("DELETE FROM heard WHERE level = ?", [(LEVEL,)])
        elif self.heard:
            run("INSERT OR REPLACE INTO heard VALUES (?, ?)", [(LEVEL, in_order(self.heard, self._known))])
        run("INSERT OR IGNORE INTO shares VALUES (?, ?)", sorted(self.edges))
        run("DELETE FROM digests WHERE session = ?", [(session,) for session in self.stale])
        run("INSERT OR REPLACE INTO digests VALUES (?, ?)", sorted(self.fresh.items()))
        run("DELETE FROM reports WHERE listing != ?", [(self.listing,)])
        run("INSERT OR REPLACE INTO reports VALUES (?, ?, ?)", [(k, self.listing, v) for k, v in self.reports.items()])
        run("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", [(LEVEL, self.maker.version, self.serial + 1)])

    def _accounts(self, group: Mapping[str, Iterable[int]], new: Mapping[int, list[Scanned]]) -> list[Account]:
        return [self._account(name, files, new) for name, files in group.items()]

    def _account(self, session: str, files: Iterable[int], new: Mapping[int, list[Scanned]]) -> Account:
        rows: list[Row] = []
        totals: list[ClientTotals] = []
        born = []
        for file in files:
            born.append(self.files[file].born_ms)
            for old_rows, old_totals in self._stored(file):
                rows += old_rows
                totals += old_totals
            for found in new.get(file, ()):
                new_rows, new_totals = content(found)
                rows += new_rows
                totals += new_totals
        return Account(session, min((each for each in born if each), default=0), rows, totals)

    def _stored(self, file: int) -> Iterator[tuple[list[Row], list[ClientTotals]]]:
        if file in self.plan.kept:
            for (body,) in self.database.execute("SELECT body FROM chunks WHERE file = ? ORDER BY start", (file,)):
                yield unpack(body)

    def _neighbours(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for one, two in [*self.database.execute("SELECT session, other FROM shares"), *self.edges]:
            found[one].add(two)
            found[two].add(one)
        return found

    def _hear(self, session: str, packed: bytes, holders: dict[int, str]) -> None:
        """Find the sessions that share a response with `session`, among those heard before.

        Only checksums of the names are compared: a chance hit joins two sessions that
        have nothing in common, which costs a little time and changes no answer.
        """
        for number in numbers(packed):
            other = holders.setdefault(number, session)
            if other != session:
                self.edges.add((min(session, other), max(session, other)))

    @cached_property
    def _known(self) -> "array[int]":
        """The numbers of all responses in the index, in order; those of files that are gone may be among them.

        They are put in order when somebody first asks, which a first report does not.
        """
        found = self.database.execute("SELECT numbers FROM heard WHERE level = ?", (LEVEL,)).fetchone()
        if found:
            return numbers(found[0])
        every = b"".join(packed for (packed,) in self.database.execute("SELECT keys FROM chunks"))
        return numbers(in_order(set(numbers(every)), numbers(b"")))

    def _stored_edges(self) -> set[tuple[str, str]]:
        shared = held(self.heard, self._known)
        if not shared:
            return set()
        edges = set()
        holders = {
            number: reading.source.session
            for reading, found in self.scans
            for number in shared.intersection(numbers(found.keys))
        }
        for file, packed in self.database.execute("SELECT file, keys FROM chunks"):
            if file in self.plan.kept:
                other = self.plan.kept[file].session
                sharing = {holders[number] for number in shared if is_in(number, packed)}
                edges |= {(min(one, other), max(one, other)) for one in sharing if one != other}
        return edges


def content(found: Scanned) -> tuple[list[Row], list[ClientTotals]]:
    """Return what a scan found, unpacked."""
    return unpack(found.packed) if found.packed else (found.rows, found.totals)


def _reports(database: Readable, ask: str, names: Iterable[str], *more: bytes) -> dict[str, bytes] | None:
    """Return the reports of those names, or none."""
    found = {name: database.execute(ask, (name, *more)).fetchone() for name in names}
    return {name: row[0] for name, row in found.items()} if None not in found.values() else None


def _listing(sources: Sequence[Source]) -> bytes:
    """Return a checksum of all files as they stand."""
    packed = msgspec.msgpack.encode(sources)
    # Two checksums of different kinds: a good hash would cost the import of OpenSSL, half of what this saves.
    return b"%08x%08x%x" % (zlib.crc32(packed), zlib.adler32(packed), len(packed))


def _advanced(row: Known | None, reading: Reading, found: Scanned) -> Known:
    source = reading.source
    return Known(
        reading.file,
        source.name,
        source.session,
        source.path,
        source.device,
        source.inode,
        source.size if not found.error else -1,
        source.changed_ns,
        found.end,
        found.fingerprint,
        row.born_ms if row and row.born_ms else found.born_ms,
        (row.damaged if row else 0) + found.damaged,
    )


def _group(session: str, neighbours: Mapping[str, set[str]]) -> set[str]:
    """Everybody who shares with somebody who shares with … `session`."""
    group = {session}
    border = [session]
    while border:
        for other in neighbours.get(border.pop(), ()):
            if other not in group:
                group.add(other)
                border.append(other)
    return group
