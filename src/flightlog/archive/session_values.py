"""Values computed from whole sessions, cached in the index until a file of the session changes."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from flightlog import __version__
from flightlog.model.session import SessionFile
from flightlog.store.index.database import Index
from flightlog.store.index.files import (
    VALUES_SCHEMA,
    file_stamp,
    load_value,
    load_values,
    store_values,
)
from flightlog.usage.prices import PRICES_FROM

# Part of the stamp of every value: count the number up when a view that is cached here changes.
MADE_BY = f"{__version__} 4 {PRICES_FROM['source']} {PRICES_FROM['date']}"
_BATCH = 64  # values per transaction: an interrupted run loses few, a long one commits seldom

T = TypeVar("T")


class SessionValueCache(Generic[T]):
    """Values of one kind, one for each session."""

    def __init__(self, kind: str, value: type[T], index: Path | None) -> None:
        """Cache values of type `value` in the index at `index`, or in memory."""
        self._kind = kind
        self._index = Index(index, VALUES_SCHEMA)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(value).decode

    def iter_values(
        self, sessions: Mapping[str, Iterable[SessionFile]], make: Callable[[str], T]
    ) -> Iterator[T]:
        """Yield every session's value in the order given; `make` computes those that changed."""
        stored = self._index.query(lambda database: load_values(database, self._kind))
        fresh: list[tuple[str, int, bytes]] = []
        for session, files in sessions.items():
            stamp = file_stamp(files, MADE_BY)
            value = self._decode_if_current(stored.get(session), stamp)
            if value is None:
                value = make(session)
                fresh.append((session, stamp, self._encode(value)))
                if len(fresh) >= _BATCH:
                    self._store_rows(fresh)
                    fresh = []
            yield value
        self._store_rows(fresh)

    def get_or_compute(
        self, session: str, files: Iterable[SessionFile], make: Callable[[str], T]
    ) -> T:
        """Return one session's value; `make` computes it if a file changed."""
        files = list(files)
        value = self.get_if_current(session, files)
        if value is None:
            value = make(session)
            self._store_rows([(session, file_stamp(files, MADE_BY), self._encode(value))])
        return value

    def get_if_current(self, session: str, files: Iterable[SessionFile]) -> T | None:
        """Return one session's value if it was computed from the files as they are."""
        stored = self._index.query(lambda database: load_value(database, self._kind, session))
        return self._decode_if_current(stored, file_stamp(files, MADE_BY))

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _decode_if_current(self, stored: tuple[int, bytes] | None, stamp: int) -> T | None:
        if stored is None or stored[0] != stamp:
            return None
        try:
            return self._decode(stored[1])
        except msgspec.MsgspecError:
            return None

    def _store_rows(self, rows: list[tuple[str, int, bytes]]) -> None:
        if rows:
            with suppress(sqlite3.Error):  # without the cache the next call computes them again
                store_values(self._index.database, self._kind, rows)


def report_progress(
    items: Iterable[T], progress: Callable[[int, int], None] | None, total: int
) -> Iterator[T]:
    """Yield `items`, and report before each how many of `total` came before it."""
    for done, item in enumerate(items):
        if progress is not None:
            progress(done, total)
        yield item
