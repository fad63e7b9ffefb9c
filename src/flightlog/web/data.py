"""Archive access and session cache of the web pages.

An unchanged session comes from memory or from the index; one that grew is read from where the last
read ended. Pages reach the archive only through this module.
"""

import hashlib
import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from flightlog.analysis.service import SessionAnalysis, analyze_archive, analyze_session
from flightlog.archive.archive import LONG_BYTES, Archive, open_archive
from flightlog.archive.session_reader import SessionFollower, load_cached_outline, read_own_usage
from flightlog.model.runtime import Runtime
from flightlog.model.usage import Breakdown, UsageRow
from flightlog.sources.hook_log import measure_hook_log
from flightlog.sources.workers import run_in_child
from flightlog.usage.pipeline import UsagePipeline
from flightlog.usage.report import UsageFilter, UsageReport
from flightlog.views.session.outline import SessionOutline, SessionSummary
from flightlog.web.session_list import RowMatch, SearchWorker, SessionListWatcher, find_in_page
from flightlog.web.session_page import SessionPage

CACHE_BYTES_MAX = 32 << 20  # memory for cached pages
FOLLOWERS_MAX = 4  # sessions that are followed at once
FRESH_S = 3.0  # age at which the list of files is read again
SELECTIONS_MAX = 3  # parts of the usage that stay in memory while a person looks at them
SESSIONS_SHOWN = 50  # of a report by session
ANALYSES_MAX = 12  # values for the panels of the last sessions
T = TypeVar("T")
SelectValues = Callable[[Archive, SessionAnalysis], T]
_pack = msgspec.msgpack.Encoder().encode
_unpack_report = msgspec.msgpack.Decoder(UsageReport).decode
UsageSelection = tuple[UsageFilter | None, str]  # and the agent


class SessionCache:
    """Cached session pages and the readers of growing sessions."""

    def __init__(
        self,
        archive: Callable[[str], Archive],
        find_summary: Callable[[str], SessionSummary | None],
    ) -> None:
        """Take functions that return the archive, and the line of a session in the list."""
        self._archive, self._find_summary = archive, find_summary
        self._pages: OrderedDict[str, SessionPage] = OrderedDict()
        self._followers: OrderedDict[str, SessionFollower] = OrderedDict()
        # Reentrant: a read that ends at once calls back while it is being started.
        self._lock = threading.RLock()
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
        files = archive.find_recording(name).files
        listed = {(file.path, file.size, file.changed_ns) for file in files}
        current = set(archive.file_state(name)) == listed
        outline = None
        if current and name not in self._followers:
            outline = load_cached_outline(archive, name)
            if outline is None and archive.find_recording(name).size >= LONG_BYTES:
                run_in_child(_cache_outline, archive, name)  # 50,000 steps take 150 MB
                outline = load_cached_outline(archive, name)
        if outline is None:
            outline = self.follower(name).refresh()
        page = self.make_page(archive, outline, version)
        with self._lock:
            self._pages[name] = page
            self._pages.move_to_end(name)
            self._evict_pages()
        return page

    def make_page(self, archive: Archive, outline: SessionOutline, version: str) -> SessionPage:
        """Return a page for an outline, with the title and the usage of the list."""
        name = outline.session.id
        listed = self._find_summary(name)
        changed_ns = max(state[2] for state in archive.file_state(name))
        # The usage of another state is computed, which reads the index of every session.
        is_same = listed is not None and listed.modified_ms == changed_ns // 1_000_000
        usage = listed if is_same else read_own_usage(archive, name)
        return SessionPage(archive, outline, version, listed.title if listed else "", usage)

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


def _cache_outline(archive: Archive, session: str) -> None:
    archive.read_outline(session)


def session_stamp(archive: Archive, session: str) -> str:
    """Return a short digest of the current state of a session's files."""
    folder = archive.hook_folder(session)
    state = (archive.file_state(session), measure_hook_log(folder) if folder else 0)
    text = repr(state).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _select_from_analysis(archive: Archive, session: str, select: SelectValues[T]) -> T:
    return select(archive, analyze_session(archive, session))


def _keep_most_expensive(report: UsageReport) -> UsageReport:
    """Return a report by session with the rows that pages show, first the most expensive one.

    The others of ten thousand sessions take 9 MB for each selection.
    """
    if report.by is not Breakdown.SESSION:
        return report
    rows = heapq.nsmallest(SESSIONS_SHOWN, report.rows, key=cost_order)
    return replace(report, rows=tuple(row for row in rows if row.responses))


def cost_order(row: UsageRow) -> tuple[float, str]:
    """Return the key by which rows are sorted, the most expensive first."""
    return (-(row.cost.usd or 0.0), row.key)


class WebData:
    """The sessions and usage of this machine, cached while the files do not change."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare the caches; nothing is read yet."""
        self.runtime = runtime
        self._opened: tuple[Archive | None, float] = (None, 0.0)
        self._lock = threading.Lock()
        self._analysis_lock = threading.Lock()
        self._analyst = ThreadPoolExecutor(1, "flightlog-analyze")
        self._analyses: dict[tuple[object, ...], Future[Any]] = {}
        self._watcher = SessionListWatcher(self._reopen_archive)
        self._searcher = SearchWorker(self._listed_archive, self._watcher.current_list, runtime)
        self.cache = SessionCache(self.current_archive, self._watcher.find_summary)
        self.load_session_page = self.cache.get
        self.listing = self._watcher.current_list
        self.titles = self._watcher.session_titles
        self.search = self._searcher.search_sessions
        self._usage_lock = threading.Lock()
        self._usage_state: int | None = None
        self._usage: dict[UsageSelection, dict[Breakdown, bytes]] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether the last search missed new records."""
        return self._searcher.is_behind

    def find_in_session(self, session: str, words: str, limit: int) -> list[RowMatch]:
        """Return the rows of a session that contain the words."""
        page = self.load_session_page(session)
        return find_in_page(self.current_archive(session), page, words, limit)

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
        self, breakdowns: Iterable[Breakdown], only: UsageFilter | None = None, agent: str = ""
    ) -> dict[Breakdown, UsageReport]:
        """Return usage reports of all sessions or of a part; new ones only if files changed."""
        with self._usage_lock:
            state = self.current_archive().fingerprint
            if self._usage_state != state:
                self._usage_state = state
                self._usage.clear()
            packed = self._usage.pop((only, agent), {})
            missing = [by for by in breakdowns if by not in packed]
            packed |= self._pack_reports(missing, only, agent) if missing else {}
            self._usage[only, agent] = packed
            while len(self._usage) > SELECTIONS_MAX:
                del self._usage[next(iter(self._usage))]
        return {by: _unpack_report(report) for by, report in packed.items()}

    def _pack_reports(
        self, breakdowns: Iterable[Breakdown], only: UsageFilter | None, agent: str
    ) -> dict[Breakdown, bytes]:
        """Return new reports, packed: their rows would keep 25 MB of digests from being freed."""
        archive = self.current_archive()
        files = [file for recording in archive.recordings.values() for file in recording.files]
        pipeline = UsagePipeline(files, archive.index_path, len(archive.damage))
        reports = pipeline.build_reports(breakdowns, self.runtime.zone, only, agent=agent)
        pipeline.save()
        return {by: _pack(_keep_most_expensive(report)) for by, report in reports.items()}

    def analyses(self, since_ms: int) -> list[SessionAnalysis]:
        """Return the analysis of the sessions with records since a time; only new ones are read."""
        # The time of a file says nothing: a backup or a copy changes it.
        names = [one.session for one in self.listing().sessions if (one.ended_ms or 0) >= since_ms]
        with self._analysis_lock:  # two pages at once would read the same sessions twice
            return list(analyze_archive(self.current_archive(), sessions=names))

    def start_analysis(self, session: str, select: SelectValues[T]) -> Future[T]:
        """Start to analyze a session; requests for the same values of one state share them.

        One at a time in a thread of its own: they must not occupy all threads of the server.
        """
        archive = self.current_archive(session)
        name = archive.find_recording(session).session
        key = (name, session_stamp(archive, name), select)
        with self._lock:
            future = self._analyses.pop(key, None)
            if future is None or (future.done() and future.exception()):
                future = self._analyst.submit(self.read_analysis, name, select)
            self._analyses[key] = future
            while len(self._analyses) > ANALYSES_MAX:
                del self._analyses[next(iter(self._analyses))]
            return future

    def read_analysis(self, session: str, select: SelectValues[T]) -> T:
        """Return what `select` takes from the analysis of a session."""
        archive = self.current_archive(session)
        if archive.find_recording(session).size < LONG_BYTES:
            return _select_from_analysis(archive, session, select)
        # 50,000 steps take 400 MB.
        selected: T = run_in_child(_select_from_analysis, archive, session, select)
        return selected

    def close(self) -> None:
        """Stop reading."""
        self._watcher.close()
        self._searcher.close()
        self._analyst.shutdown(wait=False, cancel_futures=True)
        self.cache.close()

    def _listed_archive(self) -> Archive:
        """Return the archive of the last listing; calling it also keeps the list refreshing."""
        self.listing()
        archive, _ = self._opened
        return archive or self._reopen_archive()

    def _reopen_archive(self) -> Archive:
        archive = open_archive(self.runtime)
        archive.fingerprint  # noqa: B018 - list the files now, before the lock is taken
        with self._lock:
            last, _ = self._opened
            # The list of ten thousand files takes 5 MB; an equal one replaces nothing.
            if last is not None and last.fingerprint == archive.fingerprint:
                archive = last
            self._opened = (archive, time.monotonic())
        return archive
