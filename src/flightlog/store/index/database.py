"""The index: one disposable SQLite file of answers that can always be worked out again.

Nothing in it is the truth. An index that is damaged, of another version or missing is built
anew, silently; an index that cannot be written costs time, never an answer. Its three levels
(usage, lines, text) live in the modules of those names.

Whoever throws a file away does so while nobody opens it: SQLite finds its side files by name, so that
an opening in between would join the sides of one file to another.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from typing import Any, TypeAlias, TypeVar

from flightlog.model.errors import Conflict, Misconfigured, Unavailable
from flightlog.store.locks import claim

VERSION = 5
_BUSY_SECONDS = 5.0
_GATE_SECONDS = 1.0  # making an index takes 20 ms; after fifty times that its holder is taken to be stuck
_APPLICATION = 0x666C6F67
_PAGE_BYTES = 1 << 14  # most of it is written in bulk: with SQLite's usual 4 KB that takes half as long again
_SIDES = ("", "-wal", "-shm", "-journal")

T = TypeVar("T")
Readable: TypeAlias = "sqlite3.Connection | Nothing"


class Nothing:
    """An index that nobody has made yet: there is nothing in it."""

    def execute(self, _: str, __: Sequence[object] = ()) -> "Nothing":
        """Find nothing."""
        return self

    def fetchone(self) -> Any:
        """Return no row."""

    def fetchall(self) -> list[Any]:
        """Return no rows."""
        return []

    def __iter__(self) -> Iterator[Any]:
        """Yield no rows."""
        return iter(())


class Index:
    """An index, opened when it is first asked. Use `asked`: it starts anew when the file turns out to be damaged."""

    def __init__(self, path: PathLike[str] | str | None) -> None:
        """Keep the index at `path`, or one in memory that is gone afterwards."""
        self.path = None if path is None else os.fspath(path)
        self._opened: sqlite3.Connection | None = None
        self._seen = 0, 0

    @property
    def database(self) -> sqlite3.Connection:
        """The open file."""
        if self._opened is None:
            self._opened = _open(self.path)
            self._seen = _identity(self.path)
        return self._opened

    def looked_up(self, question: Callable[["Readable"], T]) -> T:
        """Answer a question that only reads; nobody waits until an index is made to be told that it holds nothing."""
        if self._opened is None and not (self.path and _is_begun(self.path)):
            return question(Nothing())
        return self.asked(question)

    def asked(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer from the index; if it is damaged, from a new one."""
        try:
            return question(self.database)
        except sqlite3.DatabaseError as error:
            # A file somebody else holds for long is not damaged: this once, do without it.
            return self._asked_anew(question, None if _is_held(error) else self.path)
        except (TypeError, ValueError):
            # Damage can look like a row that nobody wrote.
            if self.path is None or is_sound(self.path):
                raise
            return self._asked_anew(question, self.path)

    def tried(self, question: Callable[[sqlite3.Connection], T], wait_s: float) -> T | None:
        """Answer as `asked` does, or with None if somebody else holds the file for longer than `wait_s`."""
        self._wait(wait_s)
        try:
            return question(self.database)
        except sqlite3.DatabaseError as error:
            return None if _is_held(error) else self.asked(question)
        finally:
            self._wait(_BUSY_SECONDS)

    def _wait(self, seconds: float) -> None:
        with suppress(sqlite3.Error):
            self.database.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _asked_anew(self, question: Callable[[sqlite3.Connection], T], path: str | None) -> T:
        self.close()
        self._opened = _opened_anew(path, self._seen)
        self._seen = _identity(self.path)
        return question(self._opened)

    def close(self) -> None:
        """Let go of the file."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()

    def __del__(self) -> None:
        """Let go of it where somebody forgot to."""
        self.close()


def is_sound(path: PathLike[str] | str) -> bool:
    """Look the whole file over; one that somebody else is writing counts as sound."""
    try:
        with closing(sqlite3.connect(f"file:{os.fspath(path)}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.DatabaseError as error:
        return _is_held(error)


def _is_held(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _open(path: str | None) -> sqlite3.Connection:
    if path is None:
        return _connected(":memory:")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - no report waits for pathlib
        with _gate(path, shared=_is_begun(path)):
            _create(path)
            seen = _identity(path)
            return _connected(path)
    except sqlite3.DatabaseError as error:
        return _opened_anew(None if _is_held(error) else path, seen)
    except (OSError, Conflict, Misconfigured):
        # A gate held for long costs time, never an answer: this once, work without the file.
        return _connected(":memory:")


def _opened_anew(path: str | None, seen: tuple[int, int]) -> sqlite3.Connection:
    """Throw away the file that was `seen`, unless somebody did so before; where that fails, answer from memory."""
    if path is not None:
        with suppress(OSError, sqlite3.Error, Conflict, Misconfigured), _gate(path):
            if _identity(path) == seen:
                for side in _SIDES:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{path}{side}")  # noqa: PTH108
            _create(path)
            return _connected(path)
    return _connected(":memory:")


def _create(path: str) -> None:
    """Make the file, readable by its owner alone, unless it is there.

    One that is there is never opened but by SQLite: closing any other handle would take away the locks that
    connections of this very process hold on it, and whoever closes theirs last would clear away what we write to.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _is_begun(path: str) -> bool:
    """Whether somebody made the file; who makes it is alone, because SQLite does not wait at that."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116 - as above
    except OSError:
        return False


@contextmanager
def _gate(path: str, *, shared: bool = False) -> Iterator[None]:
    """Open together, throw away alone; raise `Conflict` when another process holds the gate for long."""
    _check_layout(os.path.dirname(path))  # noqa: PTH120 - as above
    try:
        gate = os.open(f"{path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(Unavailable):  # where there are no locks, nothing waits
            claim(gate, f"{path}.gate", limit_s=_GATE_SECONDS, shared=shared)
        yield
    finally:
        os.close(gate)


def _check_layout(home: str) -> None:
    """Raise `Misconfigured` when the index is part of a store of a later version, which has its own idea of it."""
    if os.path.exists(f"{home}/layout.json"):  # noqa: PTH110 - as above
        from pathlib import Path  # noqa: PLC0415

        from flightlog.store.migration import ensure_writable  # noqa: PLC0415

        ensure_writable(Path(home))


def _identity(path: str | None) -> tuple[int, int]:
    """Which file stands under a name."""
    try:
        there = os.stat(path) if path is not None else None  # noqa: PTH116 - as above
    except OSError:
        return 0, 0
    return (there.st_dev, there.st_ino) if there is not None else (0, 0)


def _connected(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables, or refuse a file that is not ours or not of this version."""
    database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    # No report waits for the disk to take an empty file; a power cut that spoils it costs the time to make it again.
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA journal_mode = WAL")
    if not _is_ours(database):
        _make(database)
    database.execute("PRAGMA synchronous = NORMAL")


def _make(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    if _is_ours(database):  # somebody was quicker
        database.execute("ROLLBACK")
        return
    if database.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
        raise sqlite3.DatabaseError("an index of another version")
    from flightlog.store.index import files, lines, sessions, text, usage  # noqa: PLC0415 - only who makes it waits

    schema = files.SCHEMA + usage.SCHEMA + lines.SCHEMA + text.SCHEMA + sessions.SCHEMA
    for statement in filter(None, map(str.strip, schema.split(";"))):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {_APPLICATION}")
    database.execute(f"PRAGMA user_version = {VERSION}")
    database.execute("COMMIT")


def _is_ours(database: sqlite3.Connection) -> bool:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    return bool((version, application) == (VERSION, _APPLICATION))
