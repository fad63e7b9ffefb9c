"""The index: one disposable SQLite file of values that can always be computed again.

An index that is damaged, missing or of another version is replaced by an empty one without a
message; an index that cannot be written costs time, never an answer. Each level (usage,
records, full text, session values) brings its own schema and creates its tables when it first
opens the file.

A process deletes an index only while no other process opens it: SQLite finds the side files
(-wal, -shm) by name, so an open in between would join the side files of one index to another.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from flightlog.model.errors import Conflict, Misconfigured, Unavailable
from flightlog.store.locks import lock_file

VERSION = 14  # of all schemas; another version is replaced by an empty index
_BUSY_SECONDS = 5.0  # a sync writes for some seconds; then this query runs in memory
_GATE_SECONDS = 1.0  # creating an index takes 20 ms; after fifty times that its process is stuck
_APPLICATION = 0x666C6F67  # "flog": marks the file as ours
_PAGE_BYTES = 1 << 14  # most is written in bulk, which takes half as long again with SQLite's 4 KB
_SIDES = ("", "-wal", "-shm", "-journal")

T = TypeVar("T")
Readable: TypeAlias = "sqlite3.Connection | EmptyIndex"


class IndexSchema(NamedTuple):
    """The tables of one level of the index."""

    level: str
    statements: str


class EmptyIndex:
    """An index that does not exist yet; every query returns no rows."""

    def execute(self, _: str, __: Sequence[object] = ()) -> "EmptyIndex":
        """Find nothing."""
        return self

    def fetchone(self) -> Any:
        """Return no row."""

    def fetchall(self) -> list[Any]:
        """Return no rows."""
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Index:
    """An index, opened on first use; a damaged file is replaced by an empty one."""

    def __init__(self, path: PathLike[str] | str | None, *schemas: IndexSchema) -> None:
        """Use the index at `path`, or one in memory; create missing tables of `schemas`."""
        self.path = None if path is None else os.fspath(path)
        self._schemas = schemas
        self._opened: sqlite3.Connection | None = None
        self._identity = 0, 0

    @property
    def database(self) -> sqlite3.Connection:
        """The open database."""
        if self._opened is None:
            self._opened = _open_database(self.path, self._schemas)
            self._identity = _file_identity(self.path)
        return self._opened

    def query_existing(self, run: Callable[["Readable"], T]) -> T:
        """Return `run(index)` for a read-only query; use an `EmptyIndex` if no index exists yet."""
        if self._opened is None and not (self.path and _is_created(self.path)):
            return run(EmptyIndex())
        return self.query(run)

    def query(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Return `run(database)`; if the index is damaged, run it again on a new one."""
        try:
            return run(self.database)
        except sqlite3.DatabaseError as error:
            # A file another process locks for long is not damaged: this query runs in memory.
            return self._query_new(run, None if _is_locked_error(error) else self.path)
        except (TypeError, ValueError):
            # Damage can look like a row of wrong types.
            if self.path is None or is_sound(self.path):
                raise
            return self._query_new(run, self.path)

    def try_query(self, run: Callable[[sqlite3.Connection], T], wait_s: float) -> T | None:
        """Return what `query` does, or None if another process locks the file for `wait_s`."""
        self._set_busy_timeout(wait_s)
        try:
            return run(self.database)
        except sqlite3.DatabaseError as error:
            return None if _is_locked_error(error) else self.query(run)
        finally:
            self._set_busy_timeout(_BUSY_SECONDS)

    def _set_busy_timeout(self, seconds: float) -> None:
        with suppress(sqlite3.Error):
            self.database.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _query_new(self, run: Callable[[sqlite3.Connection], T], path: str | None) -> T:
        self.close()
        self._opened = _replace(path, self._identity, self._schemas)
        self._identity = _file_identity(self.path)
        return run(self._opened)

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()

    def __del__(self) -> None:
        """Close the file if the owner did not."""
        self.close()


@contextmanager
def write_transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit the writes of the block, or none of them after an error."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def is_sound(path: PathLike[str] | str) -> bool:
    """Return whether the whole file is sound; one that is being written counts as sound."""
    uri = f"file:{os.fspath(path)}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.DatabaseError as error:
        return _is_locked_error(error)


def _is_locked_error(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _open_database(path: str | None, schemas: Sequence[IndexSchema]) -> sqlite3.Connection:
    if path is None:
        return _connect(":memory:", schemas)
    try:
        # os.path here and below: a usage report does not load pathlib.
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with _hold_gate(path, shared=_is_created(path)):
            _create_database_file(path)
            identity = _file_identity(path)
            return _connect(path, schemas)
    except sqlite3.DatabaseError as error:
        return _replace(None if _is_locked_error(error) else path, identity, schemas)
    except (OSError, Conflict, Misconfigured):
        # A gate that is held for long must not block a report: work in memory this time.
        return _connect(":memory:", schemas)


def _replace(
    path: str | None, identity: tuple[int, int], schemas: Sequence[IndexSchema]
) -> sqlite3.Connection:
    """Delete the index with `identity` and open a new one; if that fails, one in memory."""
    if path is not None:
        with suppress(OSError, sqlite3.Error, Conflict, Misconfigured), _hold_gate(path):
            if _file_identity(path) == identity:
                for side in _SIDES:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{path}{side}")  # noqa: PTH108
            _create_database_file(path)
            return _connect(path, schemas)
    return _connect(":memory:", schemas)


def _create_database_file(path: str) -> None:
    """Make the file, readable by its owner only, unless it exists.

    An existing file is opened by SQLite only: closing another handle would release the locks that
    connections of this process hold on it, and the last process to close its connection would
    delete the WAL we write to.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _is_created(path: str) -> bool:
    """Return whether the index exists; SQLite does not wait while one is created."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116 - as above
    except OSError:
        return False


@contextmanager
def _hold_gate(path: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the gate: shared to open the index, alone to create or delete it.

    Raises `Conflict` if another process holds it for long.
    """
    _check_layout(os.path.dirname(path))  # noqa: PTH120 - as above
    try:
        gate = os.open(f"{path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(Unavailable):  # without locks, go on without waiting
            lock_file(gate, f"{path}.gate", limit_s=_GATE_SECONDS, shared=shared)
        yield
    finally:
        os.close(gate)


def _check_layout(home: str) -> None:
    """Raise `Misconfigured` if the index belongs to a data directory of a later version."""
    if os.path.exists(f"{home}/layout.json"):  # noqa: PTH110 - as above
        from flightlog.store.directories import ensure_writable  # noqa: PLC0415 - most reports write nothing there

        ensure_writable(Path(home))


def _file_identity(path: str | None) -> tuple[int, int]:
    try:
        stat = os.stat(path or "")  # noqa: PTH116 - as above
    except OSError:
        return 0, 0
    return stat.st_dev, stat.st_ino


def _connect(path: str, schemas: Sequence[IndexSchema]) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _prepare_database(database, schemas)
    except BaseException:
        database.close()
        raise
    return database


def _prepare_database(database: sqlite3.Connection, schemas: Sequence[IndexSchema]) -> None:
    """Create missing tables; raise `DatabaseError` for a foreign file or another version."""
    database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    # No report waits until an empty file is on disk; after a power cut it is made again.
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA journal_mode = WAL")
    if not _is_ours(database) or _missing(database, schemas):
        _create_tables(database, schemas)
    database.execute("PRAGMA synchronous = NORMAL")


def _create_tables(database: sqlite3.Connection, schemas: Sequence[IndexSchema]) -> None:
    database.execute("BEGIN IMMEDIATE")
    if not _is_ours(database):
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise sqlite3.DatabaseError("an index of another version")
        database.execute("CREATE TABLE levels(name TEXT PRIMARY KEY) WITHOUT ROWID")
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
    for schema in _missing(database, schemas):
        for statement in filter(None, map(str.strip, schema.statements.split(";"))):
            database.execute(statement)
        database.execute("INSERT INTO levels VALUES (?)", (schema.level,))
    database.execute("COMMIT")


def _missing(database: sqlite3.Connection, schemas: Sequence[IndexSchema]) -> list[IndexSchema]:
    present = {level for (level,) in database.execute("SELECT name FROM levels")}
    return [schema for schema in schemas if schema.level not in present]


def _is_ours(database: sqlite3.Connection) -> bool:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    return bool((version, application) == (VERSION, _APPLICATION))
