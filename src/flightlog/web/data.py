"""Where the pages get what they show: the list, a session, usage, search.

The one module that knows how the archive is asked; an index can take its place here without a
page noticing. The list is kept up to date by a thread of its own while somebody looks, newest
sessions first, so that a page is never behind a large archive.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo

from msgspec import Struct

from flightlog.archive import Archive, Recording
from flightlog.books import Books
from flightlog.model.errors import FlightlogError
from flightlog.views.report import UsageReport
from flightlog.views.summary import SessionSummary, summarise
from flightlog.views.usage import By
from flightlog.web.held import Held, hold, text_of

LOOK_EVERY_S = 1.0
FIRST_WAIT_S = 1.5
FIRST_ROWS = 60
PUBLISH_EVERY = 50
HELD_BYTES_MAX = 64 << 20
SNIPPET_CHARS = 90
Fingerprint = tuple[tuple[str, int, int], ...]


class Sources(Struct, frozen=True):
    """How to open what is on this machine, told from outside."""

    archive: Callable[[], Archive]
    books: Callable[[], Books]
    zone: tzinfo
    now_ms: Callable[[], int]
    sample: bool = False


class Listing(Struct, frozen=True):
    """The sessions known so far, newest first, and how many are still to be read."""

    sessions: tuple[SessionSummary, ...]
    pending: int
    version: int = 0


class Hit(Struct, frozen=True):
    """A place where the words were found."""

    session: str
    lane: str
    row: str
    before: str
    found: str
    after: str


class Data:
    """What is on this machine, read when asked for and kept while it does not change."""

    def __init__(self, sources: Sources) -> None:
        """Read nothing yet."""
        self.sources = sources
        self._archive: Archive | None = None
        self._told: dict[str, tuple[Fingerprint, SessionSummary]] = {}
        self._held: OrderedDict[str, tuple[Fingerprint, Held]] = OrderedDict()
        self._listing = Listing((), 0)
        self._asked = threading.Event()
        self._known = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def listing(self) -> Listing:
        """The list as it is now; the first caller waits a moment for something to show."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_up, name="flightlog-list", daemon=True)
                self._thread.start()
        self._known.wait(FIRST_WAIT_S)
        return self._listing

    def held(self, session: str) -> Held:
        """One session, from memory when it has not changed."""
        archive = self.archive(session)
        recording = archive.find(session)
        print_ = _fingerprint(recording)
        with self._lock:
            known = self._held.get(recording.session)
            if known is not None and known[0] == print_:
                self._held.move_to_end(recording.session)
                return known[1]
        held = hold(archive, recording.session)
        with self._lock:
            self._held[recording.session] = (print_, held)
            self._forget()
        return held

    def archive(self, session: str = "") -> Archive:
        """The archive as of now; one that knows `session` is not opened again by the caller's hurry."""
        archive = self.sources.archive()
        if session:
            archive.find(session)
        return archive

    def usage(self, breakdowns: Iterable[By]) -> dict[By, UsageReport]:
        """Usage and cost of everything, broken down in several ways."""
        books = self.sources.books()
        try:
            return {by: books.usage(by, self.sources.zone) for by in breakdowns}
        finally:
            books.close()

    def find(self, session: str, words: str, most: int) -> list[Hit]:
        """Where in a session the words stand."""
        held = self.held(session)
        hits: list[Hit] = []
        for hit in self._hits(self.archive(), held, words):
            if len(hits) >= most:
                break
            hits.append(hit)
        order = {row.id: place for place, row in enumerate(held.rows())}
        return sorted(hits, key=lambda hit: (hit.lane, order.get(hit.row, 0)))

    def search(self, words: str, most: int) -> Iterator[Hit]:
        """Sessions whose words match, newest first, one hit each."""
        archive = self.archive()
        ordered = sorted(archive.recordings.values(), key=lambda recording: -recording.changed_ms)
        found = 0
        for recording in ordered:
            if found >= most or self._closed.is_set():
                return
            for entry in archive.records_with(recording.session, words):
                snippet = _snippet(text_of(entry), words)
                if snippet is not None:
                    yield Hit(recording.session, "", "", *snippet)
                    found += 1
                    break

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(5)

    def _hits(self, archive: Archive, held: Held, words: str) -> Iterator[Hit]:
        seen: set[tuple[str, str]] = set()
        for entry in archive.records_with(held.session.id, words):
            place = held.by_place.get((entry.path, entry.offset))
            snippet = _snippet(text_of(entry), words)
            if place is not None and place not in seen and snippet is not None:
                seen.add(place)
                yield Hit(held.session.id, *place, *snippet)

    def _forget(self) -> None:
        """Keep what was looked at last, up to so many bytes of recordings, and always the last one."""
        size = 0
        for name in reversed(list(self._held)):
            size += sum(part[1] for part in self._held[name][0])
            if size > HELD_BYTES_MAX and name != next(reversed(self._held)):
                del self._held[name]

    def _keep_up(self) -> None:
        while not self._closed.is_set():
            self._asked.wait()
            self._asked.clear()
            if not self._closed.is_set():
                self._look()
            self._closed.wait(LOOK_EVERY_S)

    def _look(self) -> None:
        archive = self.sources.archive()
        ordered = sorted(archive.recordings.values(), key=lambda each: (-each.changed_ms, each.session))
        prints = {each.session: _fingerprint(each) for each in ordered}
        stale = [each for each in ordered if self._told.get(each.session, ((), None))[0] != prints[each.session]]
        self._told = {name: kept for name, kept in self._told.items() if name in prints}
        for done, recording in enumerate(stale):
            if self._closed.is_set():
                return
            if done and done % PUBLISH_EVERY == 0:
                self._publish(ordered, len(stale) - done)
            if done == FIRST_ROWS:
                self._known.set()
            try:
                told = summarise(hold(archive, recording.session).session, recording.changed_ms)
            except FlightlogError:  # gone since it was listed
                continue
            self._told[recording.session] = (prints[recording.session], told)
        self._publish(ordered, 0)
        self._known.set()

    def _publish(self, ordered: list[Recording], pending: int) -> None:
        known = (self._told.get(recording.session) for recording in ordered)
        told = tuple(each[1] for each in known if each is not None)
        before = self._listing
        if told != before.sessions or pending != before.pending:
            self._listing = Listing(told, pending, before.version + 1)


def _fingerprint(recording: Recording) -> Fingerprint:
    return tuple((file.path, file.size, file.changed_ns) for file in recording.files)


def _snippet(text: str, words: str) -> tuple[str, str, str] | None:
    at = text.lower().find(words.lower())
    if at < 0:
        return None
    end = at + len(words)
    return text[max(at - SNIPPET_CHARS, 0) : at], text[at:end], text[end : end + SNIPPET_CHARS]
