"""The books: usage and words of everything recorded, kept up to date in the index.

A report is answered from memory first and written down afterwards, when `close` is called:
nobody waits for the disk. Without an index, or with a damaged one, the answers are the same.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.sources.claude_code.discover import Transcript
from flightlog.sources.claude_code.evidence import signs
from flightlog.sources.claude_code.parallel import scan_all
from flightlog.sources.claude_code.records import read_records, text_at
from flightlog.sources.claude_code.scan import Scan, Target
from flightlog.store.index import Index
from flightlog.store.index_files import Reading, Source, Work
from flightlog.store.index_text import Hit, Wanted, has_text, search, sync_text
from flightlog.store.index_usage import Account, UsageSync, sync_usage
from flightlog.views.digest import Said, SessionDigest, digested
from flightlog.views.prices import PRICES_FROM
from flightlog.views.query import Query, snippet
from flightlog.views.report import Only, UsageReport, limited, report, summed_up
from flightlog.views.truth import Evidence
from flightlog.views.usage import By

MADE_BY = f"1 {PRICES_FROM['source']} {PRICES_FROM['date']}"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionDigest).decode


class Found(Struct, frozen=True):
    """A record that matches a search, and the passage that does."""

    hit: Hit
    snippet: str


class Books:
    """What recorded files say about usage, and where they say what."""

    def __init__(self, files: Sequence[Transcript], index: Path | None) -> None:
        """Take `files` into account; keep the index at `index`, or nowhere."""
        self._files = files
        self._index = Index(index)
        self._sync: UsageSync | None = None

    @property
    def work(self) -> Work:
        """What the last report took."""
        return self._sync.work if self._sync else Work()

    def usage(self, by: By, zone: tzinfo, only: Only | None = None) -> UsageReport:
        """Report usage and cost of everything recorded, or of `only` a part of it."""
        self._sync = self._index.asked(self._synced)
        digests = [_decode(body) for body in self._sync.digests.values()]
        return report(digests if only is None else limited(digests, only), by, zone, self._sync.damaged)

    def search(self, query: Query, limit: int = 20) -> list[Found]:
        """Return the first records that match, the newest recordings first."""
        sources = [source(file) for file in self._files]
        sessions = self._costing(query)
        wanted = Wanted(query.match, query.since_ms, query.project, sessions, limit)
        self._index.asked(lambda database: sync_text(database, sources, read_records))
        hits = self._index.asked(lambda database: search(database, wanted))
        return [Found(hit, snippet(text_at(hit.path, hit.offset, hit.length), query.words)) for hit in hits]

    def _costing(self, query: Query) -> frozenset[str] | None:
        if query.costs(None):
            return None
        self._sync = self._index.asked(self._synced)
        digests = [_decode(body) for body in self._sync.digests.values()]
        return frozenset(each.session for each in digests if query.costs(summed_up([each]).cost.usd))

    def refresh(self) -> None:
        """Bring every level up to date that somebody has asked for before, and usage in any case."""
        self._sync = self._index.asked(self._synced)
        if self._index.asked(has_text):
            sources = [source(file) for file in self._files]
            self._index.asked(lambda database: sync_text(database, sources, read_records))

    def close(self) -> None:
        """Write down what the last report found out; a disk that refuses costs the next report some time."""
        if self._sync is not None:
            with suppress(sqlite3.Error):
                self._sync.commit()
        self._index.close()

    def _synced(self, database: sqlite3.Connection) -> UsageSync:
        return sync_usage(database, map(source, self._files), _scan, self._digest, MADE_BY)

    def _digest(self, group: Sequence[Account]) -> Mapping[str, bytes]:
        said = [Said(each.session, each.born_ms, each.rows, each.totals) for each in group]
        return {each.session: _encode(each) for each in digested(said, self._evidence)}

    def _evidence(self, session: str) -> Evidence:
        return Evidence(*signs(file.path for file in self._files if file.session == session))


def source(file: Transcript) -> Source:
    """Return a transcript as the index sees it."""
    return Source(file.path, file.path, file.session, file.lane, file.device, file.inode, file.size, file.changed_ns)


def _scan(readings: Sequence[Reading]) -> list[Scan]:
    targets = [Target(each.source.path, each.source.session, each.source.lane, each.start) for each in readings]
    sizes = [max(each.source.size - each.start, 0) for each in readings]
    return scan_all(targets, sizes, os.cpu_count() or 1)
