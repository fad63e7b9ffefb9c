"""The sessions somebody looked at lately, within bounds: so many bytes, so many that are being read on.

A session that did not change is taken from here or from the index; one that grew is read on from
where the last look ended.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from flightlog.archive import Archive
from flightlog.archive.growing import Growing, keep_outline, kept_outline
from flightlog.views.session.outline import SessionOutline
from flightlog.web.held import Held

HELD_BYTES_MAX = 32 << 20
GROWING_MAX = 4


class Shelf:
    """What is held."""

    def __init__(self, archive: Callable[[str], Archive], title: Callable[[str], str]) -> None:
        """Hold nothing yet; `archive` opens the one that knows a session, `title` is what the list calls it."""
        self._archive, self._title = archive, title
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._growing: OrderedDict[str, Growing] = OrderedDict()
        self._lock = threading.RLock()  # a read that is done at once reports while it is being started
        self._readers = ThreadPoolExecutor(2, "flightlog-read")
        self._reads: dict[str, Future[Held]] = {}

    def reading(self, session: str) -> Future[Held]:
        """Begin to read a session, once however many ask for it at a time."""
        with self._lock:
            running = self._reads.get(session)
            if running is None or running.done():
                running = self._reads[session] = self._readers.submit(self.held, session)
                running.add_done_callback(lambda _: self._reads.pop(session, None))
            return running

    def held(self, session: str) -> Held:
        """One session as it stands now."""
        archive = self._archive(session)
        name = archive.find(session).session
        version = stamp(archive, name)
        with self._lock:
            known = self._held.get(name)
            if known is not None and known.version == version:
                self._held.move_to_end(name)
                return known
        # What the archive saw may be a moment old: the index is asked only about files as they are now.
        seen = {(each.path, each.size, each.changed_ns) for each in archive.find(name).files}
        current = set(archive.state(name)) == seen
        outline = kept_outline(archive, name) if current and name not in self._growing else None
        if outline is None:
            new = name not in self._growing
            outline = self.growing(name).look()
            if new and current:
                keep_outline(archive, name, outline)
        held = self.hold(archive, outline, version)
        with self._lock:
            self._held[name] = held
            self._held.move_to_end(name)
            self._forget()
        return held

    def hold(self, archive: Archive, outline: SessionOutline, version: str) -> Held:
        """Hold an outline under the title that the list gives it."""
        return Held(archive, outline, version, self._title(outline.session.id))

    def growing(self, session: str) -> Growing:
        """A session that is read on as it grows; the one reader for all who watch it."""
        archive = self._archive(session)
        name = archive.find(session).session
        with self._lock:
            growing = self._growing.get(name)
            if growing is None:
                growing = self._growing[name] = Growing(archive, name)
            self._growing.move_to_end(name)
            while len(self._growing) > GROWING_MAX:
                self._growing.popitem(last=False)
            return growing

    def close(self) -> None:
        """Stop reading."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> None:
        """Keep what was looked at last, and always the very last one."""
        size = 0
        for name in reversed(list(self._held)):
            size += self._held[name].size
            if size > HELD_BYTES_MAX and name != next(reversed(self._held)):
                del self._held[name]


def stamp(archive: Archive, session: str) -> str:
    """A short print of how a session's files stand now."""
    return hashlib.blake2b(repr(archive.state(session)).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
