"""Finding words: in every session as somebody types, and in one session row by row."""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from flightlog.archive import Archive
from flightlog.archive.finder import SearchIndex, SearchResult
from flightlog.model.errors import Invalid
from flightlog.views.query import SearchQuery, parse_query
from flightlog.web.held import SessionPage, searchable_text
from flightlog.web.looking import Fingerprint, fingerprint_sessions

SNIPPET_CHARS = 90
_HALF = re.compile(r"\w{3}$")  # two letters begin too many words to look them all up


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
