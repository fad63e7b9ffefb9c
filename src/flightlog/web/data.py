"""Archive access and session cache.

A session that did not change is taken from here or from the index; one that grew is read on from
where the last look ended.

The one module that knows how the archive is asked; an index can take its place here without a
page noticing.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import SessionFollower, load_cached_outline, store_outline
from flightlog.model.runtime import Runtime
from flightlog.model.usage import Breakdown
from flightlog.usage.report import UsageReport
from flightlog.views.session.outline import SessionOutline
from flightlog.web.session_list import (
    Fingerprint,
    RowMatch,
    SearchWorker,
    SessionListWatcher,
    find_in_page,
    fingerprint_sessions,
)
from flightlog.web.session_page import SessionPage

HELD_BYTES_MAX = 32 << 20
GROWING_MAX = 4
FRESH_S = 3.0


class SessionCache:
    """What is held."""

    def __init__(self, archive: Callable[[str], Archive], title: Callable[[str], str]) -> None:
        """Hold nothing yet; `archive` opens the one that knows a session, `title` is what the list calls it."""
        self._archive, self._title = archive, title
        self._held: OrderedDict[str, SessionPage] = OrderedDict()
        self._growing: OrderedDict[str, SessionFollower] = OrderedDict()
        self._lock = threading.RLock()  # a read that is done at once reports while it is being started
        self._readers = ThreadPoolExecutor(2, "flightlog-read")
        self._reads: dict[str, Future[SessionPage]] = {}

    def start_reading(self, session: str) -> Future[SessionPage]:
        """Begin to read a session, once however many ask for it at a time."""
        with self._lock:
            running = self._reads.get(session)
            if running is None or running.done():
                running = self._reads[session] = self._readers.submit(self.get, session)
                running.add_done_callback(lambda _: self._reads.pop(session, None))
            return running

    def get(self, session: str) -> SessionPage:
        """One session as it stands now."""
        archive = self._archive(session)
        name = archive.find_recording(session).session
        version = session_stamp(archive, name)
        with self._lock:
            known = self._held.get(name)
            if known is not None and known.version == version:
                self._held.move_to_end(name)
                return known
        # What the archive saw may be a moment old: the index is asked only about files as they are now.
        seen = {(each.path, each.size, each.changed_ns) for each in archive.find_recording(name).files}
        current = set(archive.file_state(name)) == seen
        outline = load_cached_outline(archive, name) if current and name not in self._growing else None
        if outline is None:
            new = name not in self._growing
            outline = self.follower(name).refresh()
            if new and current:
                store_outline(archive, name, outline)
        held = self.make_page(archive, outline, version)
        with self._lock:
            self._held[name] = held
            self._held.move_to_end(name)
            self._evict_pages()
        return held

    def make_page(self, archive: Archive, outline: SessionOutline, version: str) -> SessionPage:
        """Hold an outline under the title that the list gives it."""
        return SessionPage(archive, outline, version, self._title(outline.session.id))

    def follower(self, session: str) -> SessionFollower:
        """A session that is read on as it grows; the one reader for all who watch it."""
        archive = self._archive(session)
        name = archive.find_recording(session).session
        with self._lock:
            growing = self._growing.get(name)
            if growing is None:
                growing = self._growing[name] = SessionFollower(archive, name)
            self._growing.move_to_end(name)
            while len(self._growing) > GROWING_MAX:
                self._growing.popitem(last=False)
            return growing

    def close(self) -> None:
        """Stop reading."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _evict_pages(self) -> None:
        """Keep what was looked at last, and always the very last one."""
        size = 0
        for name in reversed(list(self._held)):
            size += self._held[name].size
            if size > HELD_BYTES_MAX and name != next(reversed(self._held)):
                del self._held[name]


def session_stamp(archive: Archive, session: str) -> str:
    """A short print of how a session's files stand now."""
    return hashlib.blake2b(
        repr(archive.file_state(session)).encode("utf-8", "surrogateescape"), digest_size=8
    ).hexdigest()


class WebData:
    """What is on this machine, read when asked for and kept while it does not change."""

    def __init__(self, runtime: Runtime) -> None:
        """Read nothing yet."""
        self.runtime = runtime
        self._opened: tuple[Archive | None, float] = (None, 0.0)
        self._lock = threading.Lock()
        self._looking = SessionListWatcher(self._reopen_archive)
        self._searching = SearchWorker(self._listed_archive)
        self.shelf = SessionCache(self.current_archive, lambda name: self._looking.session_titles().get(name, ""))
        self.listing = self._looking.current_list
        self.titles = self._looking.session_titles
        self.search = self._searching.search_sessions
        self._used: tuple[dict[str, Fingerprint] | None, dict[Breakdown, UsageReport]] = (None, {})

    @property
    def is_behind(self) -> bool:
        """Whether the last search did without what is new."""
        return self._searching.is_behind

    def load_session_page(self, session: str) -> SessionPage:
        """One session as it stands now."""
        return self.shelf.get(session)

    def find_in_session(self, session: str, words: str, most: int) -> list[RowMatch]:
        """Where in a session the words stand."""
        return find_in_page(self.current_archive(session), self.load_session_page(session), words, most)

    def current_archive(self, session: str = "") -> Archive:
        """The archive as of a moment ago; a session it does not know is looked for again."""
        with self._lock:
            archive, opened = self._opened
        # A session that is known is looked at by itself: nobody waits for ten thousand others.
        known = archive is not None and session in archive.recordings
        if archive is None or (not known and (session or time.monotonic() - opened > FRESH_S)):
            archive = self._reopen_archive()
        if session:
            archive.find_recording(session)
        return archive

    def usage_reports(self, breakdowns: Iterable[Breakdown]) -> dict[Breakdown, UsageReport]:
        """Usage and cost of everything, broken down in several ways."""
        seen = fingerprint_sessions(self.current_archive())
        if self._used[0] != seen:
            pipeline = open_archive(self.runtime).usage_pipeline
            self._used = (seen, {by: pipeline.report(by, self.runtime.zone) for by in breakdowns})
            pipeline.save()
        return self._used[1]

    def close(self) -> None:
        """Stop reading."""
        self._looking.close()
        self._searching.close()
        self.shelf.close()

    def _listed_archive(self) -> Archive:
        """The archive as the list last saw it; being asked keeps the list looking."""
        self.listing()
        archive, _ = self._opened
        return archive or self._reopen_archive()

    def _reopen_archive(self) -> Archive:
        archive = open_archive(self.runtime)
        archive.recordings  # noqa: B018 - look now, while nobody waits for the lock
        with self._lock:
            self._opened = (archive, time.monotonic())
        return archive
