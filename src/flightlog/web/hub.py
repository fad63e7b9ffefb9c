"""Following running sessions for any number of open pages: one reader per session, whoever watches.

A reader is a thread that waits for new lines, adds them and hands the new state to the event
loop; each page gets what changed, made once. The reader ends when the last page is closed.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from flightlog.archive import Archive
from flightlog.web.held import SessionPage
from flightlog.web.shelf import SessionCache, session_stamp

LOOK_EVERY_S = 0.2
LOOK_SHARE = 4  # rest four times as long as a look took: a huge session costs a fifth of a core
QUEUE_MAX = 64


Told = asyncio.Queue[bytes | None]
Make = Callable[[SessionPage | None, SessionPage], bytes]


class UpdateHub:
    """Every session somebody watches."""

    def __init__(self, make: Make, shelf: SessionCache) -> None:
        """`make` turns the old (or no) state and the new one into what pages are sent; it runs in a thread."""
        self._make, self._shelf = make, shelf
        self._readers: dict[str, _SessionReaderThread] = {}

    async def subscribe(self, archive: Archive, session: str, have: str = "") -> Told:
        """Begin to watch; the queue gets messages, and None when the page is too slow to keep up.

        A page that has the state of print `have` costs nothing until the files change.
        """
        queue: Told = asyncio.Queue(QUEUE_MAX)
        reader = self._readers.get(session)
        if reader is None:
            reader = self._readers[session] = _SessionReaderThread(archive, session, self._make, self._shelf)
            reader.pages.add(queue)
            reader.start(have)
            return queue
        reader.pages.add(queue)
        if have != reader.waits_for:
            reader.wake()
        welcome = await asyncio.to_thread(reader.welcome_message)
        if welcome:
            _queue_message(queue, welcome)
        return queue

    def current_page(self, session: str) -> SessionPage | None:
        """The state of a session somebody watches, if there is one yet."""
        reader = self._readers.get(session)
        return reader.last if reader else None

    def unsubscribe(self, session: str, queue: Told) -> None:
        """Stop watching."""
        reader = self._readers.get(session)
        if reader is not None:
            reader.pages.discard(queue)
            if not reader.pages:
                reader.stop()
                del self._readers[session]

    def close(self) -> None:
        """Stop every reader."""
        for reader in self._readers.values():
            reader.stop()
            for queue in reader.pages:
                _queue_message(queue, None)
        self._readers.clear()

    @property
    def reader_count(self) -> int:
        """How many sessions are being read."""
        return len(self._readers)


class _SessionReaderThread:
    """One thread that reads one session."""

    def __init__(self, archive: Archive, session: str, make: Make, shelf: SessionCache) -> None:
        self.pages: set[Told] = set()
        self._archive, self._shelf = archive, shelf
        self._growing = shelf.follower(session)
        self._session = self._growing.session
        self._make = make
        self._loop = asyncio.get_running_loop()
        self.waits_for = ""
        self._stopped = threading.Event()
        self._hurried = threading.Event()
        self.last: SessionPage | None = None
        self._welcome: tuple[SessionPage | None, bytes] = (None, b"")
        self._lock = threading.Lock()
        self._rest_until = 0.0

    def start(self, have: str) -> None:
        self.waits_for = have
        threading.Thread(target=self._run_reader, name=f"flightlog-follow-{self._session[:8]}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def welcome_message(self) -> bytes:
        """What a page that comes later needs; made once for each state."""
        with self._lock:
            held = self.last
            if held is not None and self._welcome[0] is not held:
                self._welcome = (held, self._make(None, held))
            return self._welcome[1]

    def wake(self) -> None:
        """Somebody has an older state: read at once."""
        self._hurried.set()

    def _run_reader(self) -> None:
        while self.waits_for == session_stamp(self._archive, self._session) and not self._hurried.is_set():
            if self._stopped.wait(LOOK_EVERY_S):
                return
        while True:
            if time.monotonic() >= self._rest_until:
                self._read_new()
            if self._stopped.wait(LOOK_EVERY_S):
                return

    def _read_new(self) -> None:
        """Read what is new; tell the pages if there is something."""
        began = time.monotonic()
        version = session_stamp(self._archive, self._session)
        if self.last is not None and self.last.version == version:
            return
        outline = self._growing.refresh()
        if self.last is not None and self.last.outline is outline:
            self.last.version = version
            return
        held = self._shelf.make_page(self._archive, outline, version)
        message = self._make(self.last, held)
        if self.last is not None:  # the first look reads all there is, once: it says nothing of what the next will cost
            self._rest_until = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)
        self.last = held
        if message and not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._send_to_pages, message)

    def _send_to_pages(self, message: bytes) -> None:
        for queue in self.pages:
            _queue_message(queue, message)


def _queue_message(queue: Told, message: bytes | None) -> None:
    """Hand a message over; a page that does not read is told to load itself again."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = None
    queue.put_nowait(message)
