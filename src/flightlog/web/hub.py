"""Following running sessions for any number of open pages: one reader per session, whoever watches.

A reader is a thread that waits for new lines, folds them and hands the new state to the event
loop; each page gets what changed, made once. The reader ends when the last page is closed.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from flightlog.archive import Archive
from flightlog.web.data import stamp
from flightlog.web.held import Held, Holding

LOOK_EVERY_S = 0.2
FOLD_SHARE = 4  # rest four times as long as a fold took: a huge session costs a fifth of a core
QUEUE_MAX = 64


Told = asyncio.Queue[bytes | None]
Make = Callable[[Held | None, Held], bytes]


class Hub:
    """Every session somebody watches."""

    def __init__(self, make: Make) -> None:
        """`make` turns the old (or no) state and the new one into what pages are sent; it runs in a thread."""
        self._make = make
        self._readers: dict[str, _Reader] = {}

    async def join(self, archive: Archive, session: str, have: str = "") -> Told:
        """Begin to watch; the queue gets messages, and None when the page is too slow to keep up.

        A page that has the state of print `have` costs nothing until the files change.
        """
        queue: Told = asyncio.Queue(QUEUE_MAX)
        reader = self._readers.get(session)
        if reader is None:
            reader = self._readers[session] = _Reader(archive, session, self._make, asyncio.get_running_loop())
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

    def __init__(self, archive: Archive, session: str, make: Make, loop: asyncio.AbstractEventLoop) -> None:
        recording = archive.find(session)
        self.pages: set[Told] = set()
        self._archive = archive
        self._session = recording.session
        self._holding = Holding(archive, recording.session, recording.agent)
        self._make = make
        self._loop = loop
        self.waits_for = ""
        self._stopped = threading.Event()
        self._hurried = threading.Event()
        self.last: Held | None = None
        self._welcome: tuple[Held | None, bytes] = (None, b"")
        self._lock = threading.Lock()
        self._fresh = False
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
        for item in self._archive.follow(self._session, self._pause):
            if self._stopped.is_set():
                return
            self._holding.add(item)
            self._fresh = True

    def _pause(self) -> bool:
        if self._fresh and time.monotonic() >= self._rest_until:
            self._tell()
        return not self._stopped.wait(LOOK_EVERY_S)

    def _tell(self) -> None:
        began = time.monotonic()
        self._fresh = False
        held = self._holding.value()
        message = self._make(self.last, held)
        self.last = held
        self._rest_until = time.monotonic() + FOLD_SHARE * (time.monotonic() - began)
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
