"""List and search kept current in threads.

Newest sessions first, published as they are read, so that a page is never behind a large archive.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from flightlog.archive.archive import Archive, SessionFiles
from flightlog.archive.search import SearchIndex, SearchQuery, SearchResult, parse_query
from flightlog.model.errors import Invalid
from flightlog.views.session.outline import SessionSummary
from flightlog.web.session_page import SessionPage, searchable_text

LOOK_EVERY_S = 1.0
REST = 3  # a look that takes long is followed by a longer rest
FIRST_WAIT_S = 1.5
PUBLISH_EVERY_S = 0.4
Fingerprint = tuple[tuple[str, int, int], ...]
SNIPPET_CHARS = 90
_HALF = re.compile(r"\w{3}$")  # two letters begin too many words to look them all up


class SessionListing(Struct, frozen=True):
    """The sessions known so far, newest first, and how many are still to be read."""

    sessions: tuple[SessionSummary, ...]
    pending: int
    version: int = 0


class SessionListWatcher:
    """Looks at the archive again and again, as long as somebody asks."""

    def __init__(self, archive: Callable[[], Archive]) -> None:
        """Look at what `archive` opens afresh."""
        self._archive = archive
        self._listing = SessionListing((), 0)
        self._asked = threading.Event()
        self._known = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen: dict[str, Fingerprint] = {}
        self._titles: tuple[int, dict[str, str]] = (0, {})

    def current_list(self) -> SessionListing:
        """The list as it is now; the first caller waits a moment for something to show."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_watcher, name="flightlog-list", daemon=True)
                self._thread.start()
        self._known.wait(FIRST_WAIT_S)
        return self._listing

    def session_titles(self) -> dict[str, str]:
        """What the list calls each session."""
        listing = self._listing
        if self._titles[0] != listing.version:
            self._titles = (listing.version, {each.session: each.title for each in listing.sessions})
        return self._titles[1]

    def close(self) -> None:
        """Stop looking."""
        self._closed.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run_watcher(self) -> None:
        while not self._closed.is_set():
            self._asked.wait()
            self._asked.clear()
            began = time.monotonic()
            if not self._closed.is_set():
                self._refresh()
            self._closed.wait(max(LOOK_EVERY_S, REST * (time.monotonic() - began)))

    def _refresh(self) -> None:
        """Read what changed since the last look; a first look shows what it has as it goes."""
        archive = self._archive()
        seen = fingerprint_sessions(archive)
        if seen != self._seen or not self._known.is_set():
            told: list[SessionSummary] = []
            first, published = not self._listing.sessions, time.monotonic()
            if first:
                self._replace_list(told, len(seen))
            for summary in archive.iter_summaries():
                if self._closed.is_set():
                    return
                told.append(summary)
                if first and time.monotonic() - published > PUBLISH_EVERY_S:
                    self._replace_list(told, len(seen) - len(told))
                    self._known.set()
                    published = time.monotonic()
            self._replace_list(told, 0)
            self._seen = seen
            archive.usage_pipeline.save()
        self._known.set()

    def _replace_list(self, told: list[SessionSummary], pending: int) -> None:
        before = self._listing
        if len(told) != len(before.sessions) or pending != before.pending or tuple(told) != before.sessions:
            self._listing = SessionListing(tuple(told), pending, before.version + 1)


def fingerprint_sessions(archive: Archive) -> dict[str, Fingerprint]:
    """How every session's files stand."""
    return {name: _fingerprint_recording(each) for name, each in archive.recordings.items()}


def _fingerprint_recording(recording: SessionFiles) -> Fingerprint:
    return tuple((file.path, file.size, file.changed_ns) for file in recording.files)


class RowMatch(Struct, frozen=True):
    """A place where the words were found."""

    session: str
    lane: str
    row: str
    before: str
    found: str
    after: str


class SearchWorker:
    """Searches one question at a time, in the one thread that holds the index open.

    While somebody else writes the index, what it holds is searched; `is_behind` says so.
    """

    def __init__(self, archive: Callable[[], Archive]) -> None:
        """Search what `archive` opens."""
        self._archive = archive
        self._thread = ThreadPoolExecutor(1, "flightlog-search")
        self._finder: tuple[dict[str, Fingerprint], SearchIndex] | None = None
        self._archive_seen: Archive | None = None
        self._wanted = ""
        self.is_behind = False

    def search_sessions(self, typed: str, most: int) -> list[RowMatch]:
        """Sessions whose words match, newest first, one hit each; the last word may be half typed.

        Whoever waits behind a newer search gets nothing, as nobody looks any more.
        """
        self._wanted = typed
        query = parse_query(f"{typed}*" if _HALF.search(typed) else typed, _refuse_time)
        found = self._thread.submit(self._run_search, typed, query, most).result()
        return [RowMatch(each.hit.session, "", "", *_split_around_match(each.snippet, query.words)) for each in found]

    def close(self) -> None:
        """Let go of the index."""
        self._thread.submit(self._close_index)
        self._thread.shutdown()

    def _close_index(self) -> None:
        if self._finder is not None:
            self._finder[1].close()

    def _run_search(self, typed: str, query: SearchQuery, most: int) -> list[SearchResult]:
        """What is new is indexed first."""
        if self._wanted != typed:
            return []
        archive = self._archive()
        if archive is not self._archive_seen:
            self._index_new(archive)
        assert self._finder is not None
        return self._finder[1].search_once_per_session(query, most)

    def _index_new(self, archive: Archive) -> None:
        """Index what is new."""
        seen = fingerprint_sessions(archive)
        if self._finder is None or self._finder[0] != seen:
            self._close_index()
            files = [file for each in archive.recordings.values() for file in each.files]
            self._finder = (seen, SearchIndex(files, archive.index_path))
            work = self._finder[1].try_sync()
            self.is_behind = work is None
            if work is None:
                self._finder = ({}, self._finder[1])
                return
        self._archive_seen = archive


def find_in_page(archive: Archive, held: SessionPage, said: str, most: int) -> list[RowMatch]:
    """Where in a session the words stand, in its order."""
    hits: list[tuple[str, int, RowMatch]] = []
    for lane, row, hit in _iter_matches(archive, held, said):
        if len(hits) >= most:
            break
        hits.append((lane, row, hit))
    return [hit for _, _, hit in sorted(hits, key=lambda each: each[:2])]


def _iter_matches(archive: Archive, held: SessionPage, said: str) -> Iterator[tuple[str, int, RowMatch]]:
    seen: set[tuple[str, int]] = set()
    for entry in archive.find_entries(held.session.id, said):
        place = held.rows_by_location.get((entry.path, entry.offset))
        snippet = _cut_snippet(searchable_text(entry), said)
        if place is not None and place not in seen and snippet is not None:
            seen.add(place)
            lane, row = place
            yield lane, row, RowMatch(held.session.id, lane, held.thread_of(lane).id_at(row), *snippet)


def _cut_snippet(text: str, words: str) -> tuple[str, str, str] | None:
    at = text.lower().find(words.lower())
    if at < 0:
        return None
    end = at + len(words)
    return text[max(at - SNIPPET_CHARS, 0) : at], text[at:end], text[end : end + SNIPPET_CHARS]


def _split_around_match(snippet: str, words: Iterable[str]) -> tuple[str, str, str]:
    """Cut a passage in three around the first word that was looked for."""
    cuts = (_cut_snippet(snippet, word) for word in words)
    return next((cut for cut in cuts if cut is not None), (snippet, "", ""))


def _refuse_time(said: str) -> int:
    raise Invalid(f"a time is not understood here: {said[:40]!r}", hint="flightlog session search")
