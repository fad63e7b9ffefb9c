"""Archive access and session cache of the web pages.

An unchanged session comes from memory or from the index; one that grew is read from where the last
read ended. Pages reach the archive only through this module.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from flightlog.analysis.service import (
    SessionAnalysis,
    analyze_archive,
    analyze_session,
)
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import (
    SessionFollower,
    load_cached_outline,
    read_own_usage,
    store_outline,
)
from flightlog.model.runtime import Runtime
from flightlog.model.usage import Breakdown
from flightlog.sources.hook_log import measure_hook_log
from flightlog.usage.report import UsageFilter, UsageReport
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

CACHE_BYTES_MAX = 32 << 20  # memory for cached pages
FOLLOWERS_MAX = 4  # sessions that are followed at once
FRESH_S = 3.0  # age at which the list of files is read again
SELECTIONS_MAX = 3  # parts of the usage that stay in memory while a person looks at them
UsageSelection = tuple[UsageFilter | None, str]  # and the agent


class SessionCache:
    """Cached session pages and the readers of growing sessions."""

    def __init__(self, archive: Callable[[str], Archive], title: Callable[[str], str]) -> None:
        """Take functions that return the archive and the title of a session."""
        self._archive, self._title = archive, title
        self._pages: OrderedDict[str, SessionPage] = OrderedDict()
        self._followers: OrderedDict[str, SessionFollower] = OrderedDict()
        self._lock = (
            threading.RLock()
        )  # reentrant: a read that ends at once calls back while it is being started
        self._readers = ThreadPoolExecutor(2, "flightlog-read")
        self._reads: dict[str, Future[SessionPage]] = {}

    def start_reading(self, session: str) -> Future[SessionPage]:
        """Start reading a session; concurrent callers share one read."""
        with self._lock:
            running = self._reads.get(session)
            if running is None or running.done():
                running = self._reads[session] = self._readers.submit(self.get, session)
                running.add_done_callback(lambda _: self._reads.pop(session, None))
            return running

    def get(self, session: str) -> SessionPage:
        """Return the current state of a session."""
        archive = self._archive(session)
        name = archive.find_recording(session).session
        version = session_stamp(archive, name)
        with self._lock:
            cached = self._pages.get(name)
            if cached is not None and cached.version == version:
                self._pages.move_to_end(name)
                return cached
        # The archive's file list may be seconds old; the index is used only if it is current.
        listed = {
            (file.path, file.size, file.changed_ns) for file in archive.find_recording(name).files
        }
        current = set(archive.file_state(name)) == listed
        outline = (
            load_cached_outline(archive, name) if current and name not in self._followers else None
        )
        if outline is None:
            is_new = name not in self._followers
            outline = self.follower(name).refresh()
            if is_new and current:
                store_outline(archive, name, outline)
        page = self.make_page(archive, outline, version)
        with self._lock:
            self._pages[name] = page
            self._pages.move_to_end(name)
            self._evict_pages()
        return page

    def make_page(self, archive: Archive, outline: SessionOutline, version: str) -> SessionPage:
        """Return a page for an outline, with the title and the usage of the list."""
        name = outline.session.id
        usage = read_own_usage(archive, name)
        return SessionPage(archive, outline, version, self._title(name), usage)

    def follower(self, session: str) -> SessionFollower:
        """Return the incremental reader of a session, shared by all its watchers."""
        archive = self._archive(session)
        name = archive.find_recording(session).session
        with self._lock:
            follower = self._followers.get(name)
            if follower is None:
                follower = self._followers[name] = SessionFollower(archive, name)
            self._followers.move_to_end(name)
            while len(self._followers) > FOLLOWERS_MAX:
                self._followers.popitem(last=False)
            return follower

    def close(self) -> None:
        """Stop reading."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _evict_pages(self) -> None:
        """Drop the least recently used pages over the limit, but never the last one."""
        size = 0
        for name in reversed(list(self._pages)):
            size += self._pages[name].size
            if size > CACHE_BYTES_MAX and name != next(reversed(self._pages)):
                del self._pages[name]


def session_stamp(archive: Archive, session: str) -> str:
    """Return a short digest of the current state of a session's files."""
    folder = archive.hook_folder(session)
    state = (archive.file_state(session), measure_hook_log(folder) if folder else 0)
    return hashlib.blake2b(
        repr(state).encode("utf-8", "surrogateescape"), digest_size=8
    ).hexdigest()


class WebData:
    """The sessions and usage of this machine, cached while the files do not change."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare the caches; nothing is read yet."""
        self.runtime = runtime
        self._opened: tuple[Archive | None, float] = (None, 0.0)
        self._lock = threading.Lock()
        self._analysis_lock = threading.Lock()
        self._detail_lock = threading.Lock()
        self._watcher = SessionListWatcher(self._reopen_archive)
        self._searcher = SearchWorker(self._listed_archive, self._watcher.current_list, runtime)
        self.cache = SessionCache(
            self.current_archive, lambda name: self._watcher.session_titles().get(name, "")
        )
        self.load_session_page = self.cache.get
        self.listing = self._watcher.current_list
        self.titles = self._watcher.session_titles
        self.search = self._searcher.search_sessions
        self._usage_lock = threading.Lock()
        self._usage_state: dict[str, Fingerprint] | None = None
        self._usage: dict[UsageSelection, dict[Breakdown, UsageReport]] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether the last search missed new records."""
        return self._searcher.is_behind

    def find_in_session(self, session: str, words: str, limit: int) -> list[RowMatch]:
        """Return the rows of a session that contain the words."""
        return find_in_page(
            self.current_archive(session), self.load_session_page(session), words, limit
        )

    def current_archive(self, session: str = "") -> Archive:
        """Return the archive, at most a few seconds old; an unknown session is looked up again."""
        with self._lock:
            archive, opened = self._opened
        # A known session is checked alone, without listing ten thousand others.
        is_known = archive is not None and session in archive.recordings
        if archive is None or (not is_known and (session or time.monotonic() - opened > FRESH_S)):
            archive = self._reopen_archive()
        if session:
            archive.find_recording(session)
        return archive

    def usage_reports(
        self,
        breakdowns: Iterable[Breakdown],
        only: UsageFilter | None = None,
        agent: str = "",
    ) -> dict[Breakdown, UsageReport]:
        """Return usage reports of all sessions or of a part; new ones only if files changed."""
        with self._usage_lock:
            fingerprints = fingerprint_sessions(self.current_archive())
            if self._usage_state != fingerprints:
                self._usage_state = fingerprints
                self._usage.clear()
            reports = self._usage.pop((only, agent), {})
            missing = [by for by in breakdowns if by not in reports]
            if missing:
                pipeline = open_archive(self.runtime).usage_pipeline
                zone = self.runtime.zone
                reports |= {by: pipeline.report(by, zone, only, agent=agent) for by in missing}
                pipeline.save()
            self._usage[only, agent] = reports
            while len(self._usage) > SELECTIONS_MAX:
                del self._usage[next(iter(self._usage))]
            return reports

    def analyses(self, since_ms: int) -> list[SessionAnalysis]:
        """Return the analysis of the sessions with records since a time; only new ones are read."""
        # The time of a file says nothing: a backup or a copy changes it.
        names = [one.session for one in self.listing().sessions if (one.ended_ms or 0) >= since_ms]
        with self._analysis_lock:  # two pages at once would read the same sessions twice
            return list(analyze_archive(self.current_archive(), sessions=names))

    def analyze_session(self, session: str) -> SessionAnalysis:
        """Return the whole analysis of a session; the panels of its page ask for it at once."""
        with self._detail_lock:
            return analyze_session(self.current_archive(session), session)

    def close(self) -> None:
        """Stop reading."""
        self._watcher.close()
        self._searcher.close()
        self.cache.close()

    def _listed_archive(self) -> Archive:
        """Return the archive of the last listing; calling it also keeps the list refreshing."""
        self.listing()
        archive, _ = self._opened
        return archive or self._reopen_archive()

    def _reopen_archive(self) -> Archive:
        archive = open_archive(self.runtime)
        archive.recordings  # noqa: B018 - list the files now, before the lock is taken
        with self._lock:
            self._opened = (archive, time.monotonic())
        return archive
