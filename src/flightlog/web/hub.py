"""Following running sessions for any number of open pages: one reader per session, whoever watches.

A reader is a thread that waits for new lines, adds them and hands the new state to the event
loop; each page gets what changed, made once. The reader ends when the last page is closed.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from flightlog.archive import Archive
from flightlog.web.held import Held
from flightlog.web.shelf import Shelf, stamp

LOOK_EVERY_S = 0.2
LOOK_SHARE = 4  # rest four times as long as a look took: a huge session costs a fifth of a core
QUEUE_MAX = 64


Told = asyncio.Queue[bytes | None]
Make = Callable[[Held | None, Held], bytes]


class Hub:
    """Every session somebody watches."""

    def __init__(self, make: Make, shelf: Shelf) -> None:
        """`make` turns the old (or no) state and the new one into what pages are sent; it runs in a thread."""
        self._make, self._shelf = make, shelf
        self._readers: dict[str, _Reader] = {}

    async def join(self, archive: Archive, session: str, have: str = "") -> Told:
        """Begin to watch; the queue gets messages, and None when the page is too slow to keep up.

        A page that has the state of print `have` costs nothing until the files change.
        """
        queue: Told = asyncio.Queue(QUEUE_MAX)
        reader = self._readers.get(session)
        if reader is None:
            reader = self._readers[session] = _Reader(archive, session, self._make, self._shelf)
            reader.pages.add(queue)
            reader.start(have)
            return queue
        reader.pages.add(queue)
        if have != reader.waits_for:
            reader.hurry()
        welcome = await asyncio.to_thread(reader.welcome)
        if welcome:
            _offer(queue, welcome)
        return queue

    def current(self, session: str) -> Held | None:
        """The state of a session somebody watches, if there is one yet."""
        reader = self._readers.get(session)
        return reader.last if reader else None

    def leave(self, session: str, queue: Told) -> None:
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
                _offer(queue, None)
        self._readers.clear()

    @property
    def readers(self) -> int:
        """How many sessions are being read."""
        return len(self._readers)


class _Reader:
    """One thread that reads one session."""

    def __init__(self, archive: Archive, session: str, make: Make, shelf: Shelf) -> None:
        self.pages: set[Told] = set()
        self._archive, self._shelf = archive, shelf
        self._growing = shelf.growing(session)
        self._session = self._growing.session
        self._make = make
        self._loop = asyncio.get_running_loop()
        self.waits_for = ""
        self._stopped = threading.Event()
        self._hurried = threading.Event()
        self.last: Held | None = None
        self._welcome: tuple[Held | None, bytes] = (None, b"")
        self._lock = threading.Lock()
        self._rest_until = 0.0

    def start(self, have: str) -> None:
        self.waits_for = have
        threading.Thread(target=self._read, name=f"flightlog-follow-{self._session[:8]}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def welcome(self) -> bytes:
        """What a page that comes later needs; made once for each state."""
        with self._lock:
            held = self.last
            if held is not None and self._welcome[0] is not held:
                self._welcome = (held, self._make(None, held))
            return self._welcome[1]

    def hurry(self) -> None:
        """Somebody has an older state: read at once."""
        self._hurried.set()

    def _read(self) -> None:
        while self.waits_for == stamp(self._archive, self._session) and not self._hurried.is_set():
            if self._stopped.wait(LOOK_EVERY_S):
                return
        while True:
            if time.monotonic() >= self._rest_until:
                self._look()
            if self._stopped.wait(LOOK_EVERY_S):
                return

    def _look(self) -> None:
        """Read what is new; tell the pages if there is something."""
        began = time.monotonic()
        version = stamp(self._archive, self._session)
        if self.last is not None and self.last.version == version:
            return
        outline = self._growing.look()
        if self.last is not None and self.last.outline is outline:
            self.last.version = version
            return
        held = self._shelf.hold(self._archive, outline, version)
        message = self._make(self.last, held)
        if self.last is not None:  # the first look reads all there is, once: it says nothing of what the next will cost
            self._rest_until = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)
        self.last = held
        if message and not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._send, message)

    def _send(self, message: bytes) -> None:
        for queue in self.pages:
            _offer(queue, message)


def _offer(queue: Told, message: bytes | None) -> None:
    """Hand a message over; a page that does not read is told to load itself again."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = None
    queue.put_nowait(message)
