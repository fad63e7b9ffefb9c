"""Where the pages get what they show: the list, a session, usage, search.

The one module that knows how the archive is asked; an index can take its place here without a
page noticing. The list is kept up to date by a thread of its own while somebody looks, newest
sessions first, so that a page is never behind a large archive.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive import Archive, Recording
from flightlog.archive.finder import Finder, Found
from flightlog.model.errors import Invalid
from flightlog.views.query import Query, parse
from flightlog.views.report import UsageReport
from flightlog.views.summary import SessionSummary
from flightlog.views.usage import By
from flightlog.web.held import Held, hold, text_of

LOOK_EVERY_S = 1.0
FRESH_S = 3.0
REST = 3  # a look that takes long is followed by a longer rest
FIRST_WAIT_S = 1.5
PUBLISH_EVERY = 100
HELD_BYTES_MAX = 64 << 20
SNIPPET_CHARS = 90
Fingerprint = tuple[tuple[str, int, int], ...]


class Sources(Struct, frozen=True):
    """How to open what is on this machine, told from outside."""

    archive: Callable[[], Archive]
    zone: tzinfo
    now_ms: Callable[[], int]
    sample: bool = False
    redact: Callable[[], Callable[[Any], Any]] | None = None


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
        self._opened: tuple[Archive | None, float] = (None, 0.0)
        self._held: OrderedDict[str, tuple[Fingerprint, Held]] = OrderedDict()
        self._listing = Listing((), 0)
        self._asked = threading.Event()
        self._known = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.RLock()  # a read that is done at once reports while it is being started
        self._thread: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(2, "flightlog-read")
        self._reads: dict[str, Future[Held]] = {}
        self._searcher = ThreadPoolExecutor(1, "flightlog-search")
        self._finder: tuple[dict[str, Fingerprint], Finder] | None = None
        self._wanted = ""
        self._seen: dict[str, Fingerprint] = {}
        self._used: tuple[dict[str, Fingerprint] | None, dict[By, UsageReport]] = (None, {})

    def listing(self) -> Listing:
        """The list as it is now; the first caller waits a moment for something to show."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_up, name="flightlog-list", daemon=True)
                self._thread.start()
        self._known.wait(FIRST_WAIT_S)
        return self._listing

    def reading(self, session: str) -> Future[Held]:
        """Begin to read a session, once however many ask for it at a time."""
        with self._lock:
            running = self._reads.get(session)
            if running is None or running.done():
                running = self._reads[session] = self._readers.submit(self.held, session)
                running.add_done_callback(lambda _: self._reads.pop(session, None))
            return running

    def held(self, session: str) -> Held:
        """One session, from memory when it has not changed."""
        archive = self.archive(session)
        recording = archive.find(session)
        name, version = recording.session, _fingerprint(recording)
        with self._lock:
            known = self._held.get(name)
            if known is not None and known[0] == version:
                self._held.move_to_end(name)
                return known[1]
        state = stamp(archive, name)
        held = hold(archive, name)
        held.version = state
        title = next((each.title for each in self._listing.sessions if each.session == name), "")
        held.session = replace(held.session, title=title or held.session.title)
        with self._lock:
            self._held[name] = (version, held)
            self._forget()
        return held

    def archive(self, session: str = "") -> Archive:
        """The archive as of a moment ago; a session it does not know is looked for again."""
        with self._lock:
            archive, opened = self._opened
        if archive is None or time.monotonic() - opened > FRESH_S or (session and session not in archive.recordings):
            archive = self.sources.archive()
            archive.recordings  # noqa: B018 - look now, while nobody waits for the lock
            with self._lock:
                self._opened = (archive, time.monotonic())
        if session:
            archive.find(session)
        return archive

    def usage(self, breakdowns: Iterable[By]) -> dict[By, UsageReport]:
        """Usage and cost of everything, broken down in several ways."""
        seen = _fingerprints(self.archive())
        if self._used[0] != seen:
            books = self.sources.archive().books
            try:
                self._used = (seen, {by: books.usage(by, self.sources.zone) for by in breakdowns})
            finally:
                books.close()
        return self._used[1]

    def find(self, session: str, words: str, most: int) -> list[Hit]:
        """Where in a session the words stand."""
        held = self.held(session)
        hits: list[Hit] = []
        for hit in self._hits(self.archive(session), held, words):
            if len(hits) >= most:
                break
            hits.append(hit)
        order = {row.id: place for place, row in enumerate(held.rows())}
        return sorted(hits, key=lambda hit: (hit.lane, order.get(hit.row, 0)))

    def search(self, typed: str, most: int) -> list[Hit]:
        """Sessions whose words match, newest first, one hit each; the last word may be half typed.

        One search at a time: whoever waits behind a newer one gets nothing, as nobody looks any more.
        """
        self._wanted = typed
        query = parse(f"{typed}*" if typed[-1:].isalnum() else typed, _no_time)
        found = self._searcher.submit(self._searched, typed, query, most * 4).result()
        once = {each.hit.session: each for each in reversed(found)}
        ordered = sorted(once.values(), key=found.index)[:most]
        return [Hit(each.hit.session, "", "", *_marked(each.snippet, query.words)) for each in ordered]

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(5)
        self._searcher.submit(self._let_go)
        self._searcher.shutdown()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _let_go(self) -> None:
        if self._finder is not None:
            self._finder[1].close()

    def _searched(self, typed: str, query: Query, most: int) -> list[Found]:
        """Search in the one thread that holds the index open; what is new is indexed first."""
        if self._wanted != typed:
            return []
        archive = self.archive()
        seen = _fingerprints(archive)
        if self._finder is None or self._finder[0] != seen:
            if self._finder is not None:
                self._finder[1].close()
            self._finder = (
                seen,
                Finder([file for each in archive.recordings.values() for file in each.files], archive.index),
            )
            self._finder[1].sync()
        return self._finder[1].look(query, most)

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
            began = time.monotonic()
            if not self._closed.is_set():
                self._look()
            self._closed.wait(max(LOOK_EVERY_S, REST * (time.monotonic() - began)))

    def _look(self) -> None:
        """Read what changed since the last look; a first look shows what it has as it goes."""
        archive = self.sources.archive()
        seen = _fingerprints(archive)
        with self._lock:
            self._opened = (archive, time.monotonic())
        if seen != self._seen or not self._known.is_set():
            told: list[SessionSummary] = []
            for summary in archive.sessions():
                if self._closed.is_set():
                    return
                told.append(summary)
                if len(told) % PUBLISH_EVERY == 0 and len(told) > len(self._listing.sessions):
                    self._publish(told, len(seen) - len(told))
                    self._known.set()
            self._publish(told, 0)
            self._seen = seen
            archive.books.close()
        self._known.set()

    def _publish(self, told: list[SessionSummary], pending: int) -> None:
        before = self._listing
        if len(told) != len(before.sessions) or pending != before.pending or tuple(told) != before.sessions:
            self._listing = Listing(tuple(told), pending, before.version + 1)


def stamp(archive: Archive, session: str) -> str:
    """A short print of how a session's files stand now."""
    return hashlib.blake2b(repr(archive.state(session)).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _fingerprints(archive: Archive) -> dict[str, Fingerprint]:
    return {name: _fingerprint(each) for name, each in archive.recordings.items()}


def _fingerprint(recording: Recording) -> Fingerprint:
    return tuple((file.path, file.size, file.changed_ns) for file in recording.files)


def _snippet(text: str, words: str) -> tuple[str, str, str] | None:
    at = text.lower().find(words.lower())
    if at < 0:
        return None
    end = at + len(words)
    return text[max(at - SNIPPET_CHARS, 0) : at], text[at:end], text[end : end + SNIPPET_CHARS]


def _marked(snippet: str, words: Iterable[str]) -> tuple[str, str, str]:
    """Cut a passage in three around the first word that was looked for."""
    cuts = (_snippet(snippet, word) for word in words)
    return next((cut for cut in cuts if cut is not None), (snippet, "", ""))


def _no_time(said: str) -> int:
    raise Invalid(f"a time is not understood here: {said[:40]!r}", hint="flightlog session search")
