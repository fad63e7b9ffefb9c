"""Finding records by what they say, over everything recorded.

The words are indexed when they are first asked for; a passage is read from the recording
itself, so what is shown is what was said.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.sources.claude_code.records import read_records, read_text_at
from flightlog.sources.claude_code.stream import read_all
from flightlog.sources.protocol import SessionFile
from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.files import SyncStats
from flightlog.store.index.lines import SCHEMA as RECORDS
from flightlog.store.index.text import SCHEMA as FULLTEXT
from flightlog.store.index.text import RecordMatch, RecordQuery, has_text, search_words, sync_text
from flightlog.usage.pipeline import UsagePipeline
from flightlog.views.query import SearchQuery, cut_snippet

PATIENCE_S = 20.0  # whoever indexes a large archive for the first time lets go for a moment only
TRY_S = 1.0


class SearchResult(Struct, frozen=True):
    """A record that matches a search, and the passage that does."""

    hit: RecordMatch
    snippet: str


class SearchIndex:
    """Searches recorded files."""

    def __init__(self, files: Sequence[SessionFile], index: Path | None) -> None:
        """Look into `files`; keep the index at `index`, or nowhere."""
        self._files, self._path = files, index
        self._index = Index(index, FILES, RECORDS, FULLTEXT)

    def sync_index(self) -> SyncStats:
        """Index what is new; `search` does so by itself."""
        done = self._index.try_query(self._index_new, PATIENCE_S)
        # Somebody holds the index and does not let go: this once, do without it.
        return self._index.query(self._index_new) if done is None else done

    def try_sync(self) -> SyncStats | None:
        """Index what is new, unless somebody else is writing just now."""
        return self._index.try_query(self._index_new, TRY_S)

    def search_records(self, query: SearchQuery, limit: int = 20) -> list[SearchResult]:
        """Return the first records that match, the newest recordings first."""
        self.sync_index()
        return self.search_indexed(query, limit)

    def search_indexed(self, query: SearchQuery, limit: int = 20) -> list[SearchResult]:
        """Return what `search` does, of what is already indexed."""
        return self._fetch_snippets(
            query, RecordQuery(query.match, query.since_ms, query.project, self._sessions_within_cost(query), limit)
        )

    def search_once_per_session(self, query: SearchQuery, limit: int) -> list[SearchResult]:
        """Return the first record of each session that matches, of what is already indexed."""
        costing = self._sessions_within_cost(query)
        return self._fetch_snippets(
            query, RecordQuery(query.match, query.since_ms, query.project, costing, limit, once=True)
        )

    def _fetch_snippets(self, query: SearchQuery, wanted: RecordQuery) -> list[SearchResult]:
        hits = self._index.query(lambda database: search_words(database, wanted))
        return [
            SearchResult(hit, cut_snippet(read_text_at(hit.path, hit.offset, hit.length), query.words)) for hit in hits
        ]

    def refresh(self) -> None:
        """Bring the words up to date if somebody has searched before."""
        if self._index.query(has_text):
            self.try_sync()

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _index_new(self, database: sqlite3.Connection) -> SyncStats:
        return sync_text(database, self._files, lambda reads: read_all(reads, read_records))

    def _sessions_within_cost(self, query: SearchQuery) -> frozenset[str] | None:
        """The sessions of the cost that is asked for; None means any."""
        if query.matches_cost(None):
            return None
        pipeline = UsagePipeline(self._files, self._path)
        rows = pipeline.session_rows()
        pipeline.save()
        return frozenset(session for session, row in rows.items() if query.matches_cost(row.cost.usd))
