"""Where the pages get what they show: the list, a session, usage, search.

The one module that knows how the archive is asked; an index can take its place here without a
page noticing.
"""

import threading
import time
from collections.abc import Iterable

from flightlog.archive.door import Archive, open_archive
from flightlog.model.runtime import Runtime
from flightlog.model.usage import Breakdown
from flightlog.usage.report import UsageReport
from flightlog.web.held import SessionPage
from flightlog.web.looking import Fingerprint, SessionListWatcher, fingerprint_sessions
from flightlog.web.searching import RowMatch, SearchWorker, find_in_page
from flightlog.web.shelf import SessionCache

FRESH_S = 3.0


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
