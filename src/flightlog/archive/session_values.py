"""Values computed from whole sessions, cached in the index until a file of the session changes."""

import sqlite3
import time
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
    iter_values,
    load_value,
    store_values,
)
from flightlog.usage.price_table import PRICES_FROM

# Part of the stamp of every value: count the number up when a view that is cached here changes.
MADE_BY = f"{__version__} 8 {PRICES_FROM['source']} {PRICES_FROM['date']}"
BYTES_PER_S_FIRST = 8 << 20  # half of what one core scans for secrets, before it is measured
_BATCH = 64  # values per transaction: an interrupted run loses few, a long one commits seldom

T = TypeVar("T")


class ReadBudget:
    """How much may still be read: bytes, and seconds at the speed so far."""

    def __init__(self, bytes_max: int | None = None, limit_s: float | None = None) -> None:
        """Start the clock; None is no limit."""
        self.bytes_max, self._limit_s = bytes_max, limit_s
        self._began, self.read_bytes = time.monotonic(), 0

    def take(self, size: int) -> bool:
        """Return whether `size` more bytes can be read; if so they count as read."""
        is_small = self.bytes_max is None or self.read_bytes + size <= self.bytes_max
        if self._limit_s is not None:
            spent_s = time.monotonic() - self._began
            speed = max(self.read_bytes / spent_s, 1.0) if self.read_bytes else BYTES_PER_S_FIRST
            is_small = is_small and spent_s + size / speed < self._limit_s
        self.read_bytes += size if is_small else 0
        return is_small


class SessionValueCache(Generic[T]):
    """Values of one kind, one for each session."""

    def __init__(self, kind: str, value: type[T], index: Path | None) -> None:
        """Cache values of type `value` in the index at `index`, or in memory."""
        self._kind = kind
        self._index = Index(index, VALUES_SCHEMA)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(value).decode
        self._rows: list[tuple[str, int, bytes]] = []

    def iter_values(
        self, sessions: Mapping[str, Iterable[SessionFile]], make: Callable[[str], T]
    ) -> Iterator[T]:
        """Yield every session's value in the order given; `make` computes those that changed."""
        stamps = {session: file_stamp(files, MADE_BY) for session, files in sessions.items()}
        values = self._load_current(stamps)
        for session, stamp in stamps.items():
            value = values.pop(session, None)
            if value is None:
                value = make(session)
                self._add_row(session, stamp, value)
            yield value
        self._store_rows()

    def iter_items(
        self,
        sessions: Mapping[str, Iterable[SessionFile]],
        make_all: Callable[[list[str]], Iterable[tuple[str, T]]],
    ) -> Iterator[tuple[str, T]]:
        """Yield every session with its value; one that `make_all` leaves out is left out."""
        stamps = {session: file_stamp(files, MADE_BY) for session, files in sessions.items()}
        values = self._load_current(stamps)
        stale = [session for session in stamps if session not in values]
        for session, value in make_all(stale) if stale else ():
            values[session] = value
            self._add_row(session, stamps[session], value)
        self._store_rows()
        yield from ((session, values[session]) for session in stamps if session in values)

    def get_or_compute(
        self, session: str, files: Iterable[SessionFile], make: Callable[[str], T]
    ) -> T:
        """Return one session's value; `make` computes it if a file changed."""
        files = list(files)
        value = self.get_if_current(session, files)
        if value is None:
            value = make(session)
            self._add_row(session, file_stamp(files, MADE_BY), value)
            self._store_rows()
        return value

    def get_if_current(self, session: str, files: Iterable[SessionFile]) -> T | None:
        """Return one session's value if it was computed from the files as they are."""
        stored = self._index.query(lambda database: load_value(database, self._kind, session))
        return self._decode_if_current(stored, file_stamp(files, MADE_BY))

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _load_current(self, stamps: Mapping[str, int]) -> dict[str, T]:
        """Return the current values; each is decoded as it is read: all bodies take 10 MB."""

        def decode_all(database: sqlite3.Connection) -> dict[str, T]:
            decoded = (
                (session, self._decode_if_current((stamp, body), stamps.get(session, -1)))
                for session, stamp, body in iter_values(database, self._kind)
            )
            return {session: value for session, value in decoded if value is not None}

        return self._index.query(decode_all)

    def _decode_if_current(self, stored: tuple[int, bytes] | None, stamp: int) -> T | None:
        if stored is None or stored[0] != stamp:
            return None
        try:
            return self._decode(stored[1])
        except msgspec.MsgspecError:
            return None

    def _add_row(self, session: str, stamp: int, value: T) -> None:
        self._rows.append((session, stamp, self._encode(value)))
        if len(self._rows) >= _BATCH:
            self._store_rows()

    def _store_rows(self) -> None:
        rows, self._rows = self._rows, []
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
