"""One reader per followed session; changed rows to open pages.

A reader is a thread that waits for new lines, adds them and hands the new state to the event
loop; each page gets what changed, made once. The reader ends when the last page is closed.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from itertools import zip_longest

from jinja2 import Environment

from flightlog.archive.archive import Archive
from flightlog.views.session.outline import CHUNK_ROWS, unpack_records
from flightlog.web.data import SessionCache, session_stamp
from flightlog.web.session_page import PageRow, SessionPage
from flightlog.web.templates import row_fingerprint

LOOK_EVERY_S = 0.2
LOOK_SHARE = 4  # rest four times as long as a look took: a huge session costs a fifth of a core
QUEUE_MAX = 64
Told = asyncio.Queue[bytes | None]
Make = Callable[[SessionPage | None, SessionPage], bytes]
CHUNKS_MAX = 20
WELCOME_CHUNKS = 2


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


def render_changes(templates: Environment) -> Callable[[SessionPage | None, SessionPage], bytes]:
    """Make the function that says what changed between two states."""

    def make(old: SessionPage | None, new: SessionPage) -> bytes:
        rows = _changed_rows(old, new) if old else _welcome_rows(new)
        touched = sorted({row // CHUNK_ROWS for row in rows})
        told = {
            "total": new.thread_of().total,
            "size": CHUNK_ROWS,
            "chunks": [_chunk_row_ids(number, new) for number in touched],
            "rows": {row.id: _render_row(templates, new, row) for row in new.load_rows(rows)},
            "facts": _render_facts(templates, new),
            "strip": _render_strip(templates, new),
        }
        return b"event: news\ndata: " + json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"

    return make


def _welcome_rows(new: SessionPage) -> list[int]:
    """The rows that a page gets when it joins."""
    total = new.thread_of().total
    first = max((max(total - 1, 0) // CHUNK_ROWS - WELCOME_CHUNKS + 1) * CHUNK_ROWS, 0)
    return list(range(first, total))


def _changed_rows(old: SessionPage, new: SessionPage) -> list[int]:
    """The rows that differ; chunks that were not touched are not opened."""
    pairs = list(zip_longest(old.thread_of().chunks, new.thread_of().chunks, fillvalue=b"\x90"))
    touched = [number for number, (before, after) in enumerate(pairs) if before is not after and before != after]
    changed = []
    for number in touched[-CHUNKS_MAX:]:
        before, after = (unpack_records(chunk) for chunk in pairs[number])
        changed += [
            number * CHUNK_ROWS + place
            for place, line in enumerate(after)
            if place >= len(before) or before[place] != line
        ]
    if old.outline.subagents != new.outline.subagents:
        changed += _rows_with_subagents(new)
    return sorted(set(changed))


def _rows_with_subagents(new: SessionPage) -> list[int]:
    """Rows near the end that show a subagent, which may have moved on."""
    rows = _welcome_rows(new)
    return [row for row, shown in zip(rows, new.load_rows(rows), strict=True) if shown.lanes]


def _chunk_row_ids(number: int, new: SessionPage) -> dict[str, object]:
    thread = new.thread_of()
    rows = range(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, thread.total))
    return {"number": number, "ids": [thread.id_at(row) for row in rows]}


def _render_row(templates: Environment, held: SessionPage, row: PageRow) -> dict[str, str]:
    values = {"session": held.session, "lane": None, "whole": False, "spilled": "", "offline": False, "prefix": ""}
    return {"print": row_fingerprint(row), "html": templates.get_template("row.html").render(row=row, **values)}


def _render_facts(templates: Environment, held: SessionPage) -> str:
    values = {"session": held.session, "told": held.outline.summary, "files": held.changed_files()}
    return templates.get_template("facts.html").render(**values)


def _render_strip(templates: Environment, held: SessionPage) -> str:
    total = held.thread_of().total
    return templates.get_template("strip.html").render(
        bars=held.timeline_bars(), total=total, position=max(total - 1, 0)
    )
