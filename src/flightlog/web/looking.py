"""The list of sessions, kept up to date by a thread of its own while somebody looks.

Newest sessions first, published as they are read, so that a page is never behind a large archive.
"""

import threading
import time
from collections.abc import Callable

from msgspec import Struct

from flightlog.archive import Archive, SessionFiles
from flightlog.views.session.outline import SessionSummary

LOOK_EVERY_S = 1.0
REST = 3  # a look that takes long is followed by a longer rest
FIRST_WAIT_S = 1.5
PUBLISH_EVERY_S = 0.4
Fingerprint = tuple[tuple[str, int, int], ...]


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
