"""The session list and the search index, kept current in background threads.

The newest sessions are read and published first, so that a page need not wait for a large archive.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlencode

from msgspec import Struct

from flightlog.archive import search
from flightlog.archive.archive import Archive
from flightlog.model.addresses import parse_address
from flightlog.model.runtime import Runtime
from flightlog.model.text import parse_since
from flightlog.store.index.fulltext import SESSIONS_COUNTED_MAX
from flightlog.views.session.outline import SessionSummary, sort_newest_first
from flightlog.web.session_page import SessionPage, searchable_text

LOOK_EVERY_S = 1.0  # pages poll every 3 s at limit
REST = 3  # pause three times as long as a refresh took, so that it uses a quarter of a core
FIRST_WAIT_S = 1.5  # wait of the first page for something to show
PUBLISH_EVERY_S = 0.4  # during the first read
MATCHES_LOCATED = 500  # records whose rows are looked up at once
SNIPPET_CHARS = 90  # before and after a match; one line of a page


class SessionListing(Struct, frozen=True):
    """The sessions known so far, newest first, and how many are still to be read."""

    sessions: tuple[SessionSummary, ...]
    pending: int
    version: int = 0


class SessionListWatcher:
    """Refresh the list in a thread, as long as pages ask for it."""

    def __init__(self, archive: Callable[[], Archive]) -> None:
        """Take `archive`, which opens the archive again at each refresh."""
        self._archive = archive
        self._listing = SessionListing((), 0)
        self._requested = threading.Event()
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._fingerprint: int | None = None
        self._titles: tuple[int, dict[str, str]] = (0, {})

    def current_list(self) -> SessionListing:
        """Return the current list; the first caller waits up to 1.5 s for something to show."""
        self._requested.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_watcher, name="flightlog-list", daemon=True
                )
                self._thread.start()
        self._ready.wait(FIRST_WAIT_S)
        return self._listing

    def find_summary(self, session: str) -> SessionSummary | None:
        """Return the summary of a listed session."""
        listed = self._listing.sessions
        return next((summary for summary in listed if summary.session == session), None)

    def session_titles(self) -> dict[str, str]:
        """Return the title of each session."""
        listing = self._listing
        if self._titles[0] != listing.version:
            self._titles = (
                listing.version,
                {summary.session: summary.title for summary in listing.sessions},
            )
        return self._titles[1]

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._requested.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run_watcher(self) -> None:
        while not self._closed.is_set():
            self._requested.wait()
            self._requested.clear()
            began = time.monotonic()
            if not self._closed.is_set():
                self._refresh()
            self._closed.wait(max(LOOK_EVERY_S, REST * (time.monotonic() - began)))

    def _refresh(self) -> None:
        """Read sessions that changed; the first time, publish them while reading."""
        archive = self._archive()
        total = len(archive.recordings)
        if archive.fingerprint != self._fingerprint or not self._ready.is_set():
            summaries: list[SessionSummary] = []
            first, published = not self._listing.sessions, time.monotonic()
            if first:
                self._replace_list(summaries, total)
            for summary in archive.iter_summaries():
                if self._closed.is_set():
                    return
                summaries.append(summary)
                if first and time.monotonic() - published > PUBLISH_EVERY_S:
                    self._replace_list(summaries, total - len(summaries))
                    self._ready.set()
                    published = time.monotonic()
            self._replace_list(summaries, 0)
            archive.usage_pipeline.save()
            del archive.usage_pipeline  # of ten thousand sessions it takes 10 MB
            self._fingerprint = archive.fingerprint
        self._ready.set()

    def _replace_list(self, summaries: list[SessionSummary], pending: int) -> None:
        old, newest = self._listing, tuple(sort_newest_first(summaries))
        if len(summaries) != len(old.sessions) or pending != old.pending or newest != old.sessions:
            self._listing = SessionListing(newest, pending, old.version + 1)


class RowMatch(Struct, frozen=True):
    """A row that matches, with the text around the match."""

    session: str
    subagent: str
    row: str
    before: str
    match: str
    after: str


class SessionMatch(Struct, frozen=True):
    """The last match in a session, with its passage; `offset` is that of its record."""

    hit: search.SearchHit
    subagent: str
    offset: int
    before: str
    match: str
    after: str

    @property
    def url(self) -> str:
        """The page of the session, at the step of the match if that is known."""
        address = parse_address(self.hit.address)
        subagent = address.subagent or self.subagent
        query = {"subagent": subagent} if subagent else {}
        if not address.turn:  # the page finds the row when it is opened
            query |= {"offset": str(self.offset)}
            return f"/sessions/{quote(self.hit.session)}?{urlencode(query)}"
        row = f"{address.turn}.{address.step}" if address.step else str(address.turn)
        return f"/sessions/{quote(self.hit.session)}?{urlencode(query | {'at': row})}#{row}"


class SessionMatches(Struct, frozen=True):
    """The newest sessions that match, and how many there are in all, or at least."""

    matches: list[SessionMatch]
    total: int

    @property
    def is_lower_bound(self) -> bool:
        """Return whether counting ended before the last session."""
        return self.total >= SESSIONS_COUNTED_MAX


class SearchWorker:
    """Search one query at a time, in the one thread that holds the index open.

    While another process writes the index, its current content is searched and `is_behind` is set.
    """

    def __init__(
        self,
        archive: Callable[[], Archive],
        listing: Callable[[], SessionListing],
        runtime: Runtime,
    ) -> None:
        """Take functions that return the archive and the list, and the clock of `runtime`."""
        self._archive = archive
        self._list = listing
        self._runtime = runtime
        self._thread = ThreadPoolExecutor(1, "flightlog-search")
        self._index: tuple[int | None, search.SearchIndex] | None = None
        self._latest_query = ""
        self.is_behind = False

    def search_sessions(self, typed: str, limit: int, read_bytes_max: int = 0) -> SessionMatches:
        """Return matching sessions, newest first, one hit each, or raise `Invalid`.

        At most `read_bytes_max` are read to find the steps of the hits. A search that was
        superseded by a newer one while it waited returns nothing.
        """
        self._latest_query = typed
        now_ms, zone = self._runtime.clock.now_ms(), self._runtime.zone
        query = search.parse_query(typed, lambda text: parse_since(text, now_ms, zone))
        return self._thread.submit(self._run_search, typed, query, limit, read_bytes_max).result()

    def close(self) -> None:
        """Close the index."""
        self._thread.submit(self._close_index)
        self._thread.shutdown()

    def _close_index(self) -> None:
        if self._index is not None:
            self._index[1].close()

    def _run_search(
        self, typed: str, query: search.SearchQuery, limit: int, read_bytes_max: int
    ) -> SessionMatches:
        if self._latest_query != typed:
            return SessionMatches([], 0)
        archive = self._archive()
        if self._index is None or self._index[0] != archive.fingerprint:
            self._index_new(archive)
        assert self._index is not None
        found = self._index[1].search_indexed(query, limit, once=True)
        # The list knows the costs; a report would read the index of ten thousand sessions.
        costs = {summary.session: summary.cost for summary in self._list().sessions}
        if any(result.hit.session not in costs for result in found.results):
            # The list is still being read.
            rows = archive.usage_pipeline.session_rows({hit.hit.session for hit in found.results})
            costs = {session: row.cost for session, row in rows.items()}
        # While a person types nothing is read: the page of a session finds the row.
        hits = search.locate_results(archive, found.results, costs, read_bytes_max)
        matches = [
            SessionMatch(
                hit,
                result.hit.subagent,
                result.hit.offset,
                *_split_around_match(hit.snippet, query.words),
            )
            for hit, result in zip(hits, found.results, strict=True)
        ]
        return SessionMatches(matches, found.total)

    def _index_new(self, archive: Archive) -> None:
        self._close_index()
        files = [file for recording in archive.recordings.values() for file in recording.files]
        index = search.SearchIndex(files, archive.index_path)
        self.is_behind = index.try_sync() is None
        self._index = (None if self.is_behind else archive.fingerprint, index)


def find_in_page(archive: Archive, page: SessionPage, words: str, limit: int) -> list[RowMatch]:
    """Return the rows of a session that contain the words, in order."""
    hits: list[tuple[str, int, RowMatch]] = []
    for subagent, row, hit in _iter_matches(archive, page, words):
        if len(hits) >= limit:
            break
        hits.append((subagent, row, hit))
    return [hit for _, _, hit in sorted(hits, key=lambda ranked: ranked[:2])]


def _iter_matches(
    archive: Archive, page: SessionPage, words: str
) -> Iterator[tuple[str, int, RowMatch]]:
    cuts = (
        ((entry.path, entry.offset), snippet)
        for entry in archive.find_entries(page.session.id, words)
        if (snippet := _cut_snippet(searchable_text(entry), words)) is not None
    )
    matched: set[tuple[str, int]] = set()
    # Each batch is one pass over the rows.
    while batch := dict(itertools.islice(cuts, MATCHES_LOCATED)):
        rows = page.find_rows(batch.keys())
        for location, snippet in batch.items():
            row_key = rows.get(location)
            if row_key is not None and row_key not in matched:
                matched.add(row_key)
                subagent, row = row_key
                name = page.thread_of(subagent).id_at(row)
                yield subagent, row, RowMatch(page.session.id, subagent, name, *snippet)


def _cut_snippet(text: str, words: str) -> tuple[str, str, str] | None:
    start = text.lower().find(words.lower())
    if start < 0:
        return None
    end = start + len(words)
    before, after = text[max(start - SNIPPET_CHARS, 0) : start], text[end : end + SNIPPET_CHARS]
    return before, text[start:end], after


def _split_around_match(snippet: str, words: Iterable[str]) -> tuple[str, str, str]:
    """Split a passage into the text before, of and after the first word that matches."""
    cuts = (_cut_snippet(snippet, word) for word in words)
    return next((cut for cut in cuts if cut is not None), (snippet, "", ""))
