"""What was worked out about whole sessions, kept in the index until one of their files changes."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from flightlog import __version__
from flightlog.model.session import SessionFile
from flightlog.store.index.database import Index
from flightlog.store.index.files import VALUES_SCHEMA, file_stamp, load_value, load_values, store_values
from flightlog.usage.prices import PRICES_FROM

MADE_BY = f"{__version__} 2 {PRICES_FROM['source']} {PRICES_FROM['date']}"
_BATCH = 64

T = TypeVar("T")


class SessionValueCache(Generic[T]):
    """Values of one kind, one for each session."""

    def __init__(self, kind: str, value: type[T], index: Path | None) -> None:
        """Keep values of type `value` in the index at `index`, or nowhere."""
        self._kind = kind
        self._index = Index(index, VALUES_SCHEMA)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(value).decode

    def iter_values(self, sessions: Mapping[str, Iterable[SessionFile]], make: Callable[[str], T]) -> Iterator[T]:
        """Yield every session's value in the order given; what changed is worked out by `make`."""
        known = self._index.query(lambda database: load_values(database, self._kind))
        fresh: list[tuple[str, int, bytes]] = []
        for session, files in sessions.items():
            number = _files_stamp(files)
            value = self._decode_if_current(known.get(session), number)
            if value is None:
                value = make(session)
                fresh.append((session, number, self._encode(value)))
                if len(fresh) >= _BATCH:
                    self._store_rows(fresh)
                    fresh = []
            yield value
        self._store_rows(fresh)

    def get_or_compute(self, session: str, files: Iterable[SessionFile], make: Callable[[str], T]) -> T:
        """Return one session's value."""
        files = list(files)
        value = self.get_if_current(session, files)
        if value is None:
            value = make(session)
            self._store_rows([(session, _files_stamp(files), self._encode(value))])
        return value

    def get_if_current(self, session: str, files: Iterable[SessionFile]) -> T | None:
        """Return one session's value if it was worked out since its files changed."""
        have = self._index.query(lambda database: load_value(database, self._kind, session))
        return self._decode_if_current(have, _files_stamp(files))

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _decode_if_current(self, have: tuple[int, bytes] | None, number: int) -> T | None:
        if have is None or have[0] != number:
            return None
        try:
            return self._decode(have[1])
        except msgspec.MsgspecError:
            return None

    def _store_rows(self, rows: list[tuple[str, int, bytes]]) -> None:
        """A disk that refuses costs the next one who asks some time."""
        if rows:
            with suppress(sqlite3.Error):
                store_values(self._index.database, self._kind, rows)


def _files_stamp(files: Iterable[SessionFile]) -> int:
    return file_stamp(files, MADE_BY)
