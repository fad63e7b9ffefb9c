"""Send changed rows of followed sessions to open pages.

Each followed session has one reader thread. It reads new lines and renders the changes once for
all pages. The thread ends when the last page is closed.
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

LOOK_EVERY_S = 0.2  # a page shows a new line within about 0.2 s
LOOK_SHARE = 4  # pause four times as long as a read took: at most a fifth of a core
QUEUE_MAX = 64  # messages a slow page may be behind before it must reload
MessageQueue = asyncio.Queue[bytes | None]
RenderMessage = Callable[[SessionPage | None, SessionPage], bytes]
CHUNKS_MAX = 20  # changed chunks sent at once; more happen only after a rewind
WELCOME_CHUNKS = 2  # chunks at the end that a new page gets


class UpdateHub:
    """The reader threads of all followed sessions."""

    def __init__(self, make: RenderMessage, cache: SessionCache) -> None:
        """Take `make`, which renders a message from the old state (or None) and the new one."""
        self._make, self._cache = make, cache
        self._readers: dict[str, _SessionReaderThread] = {}

    async def subscribe(self, archive: Archive, session: str, have: str = "") -> MessageQueue:
        """Return a queue of messages; None in it means that the page must reload.

        A page that already has the state `have` costs nothing until the files change.
        """
        queue: MessageQueue = asyncio.Queue(QUEUE_MAX)
        reader = self._readers.get(session)
        if reader is None:
            reader = _SessionReaderThread(archive, session, self._make, self._cache)
            self._readers[session] = reader
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
        """Return the current state of a followed session, or None."""
        reader = self._readers.get(session)
        return reader.last if reader else None

    def unsubscribe(self, session: str, queue: MessageQueue) -> None:
        """Remove a page; the reader stops with its last page."""
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
        """Return the number of followed sessions."""
        return len(self._readers)


class _SessionReaderThread:
    """A thread that reads one session."""

    def __init__(
        self, archive: Archive, session: str, make: RenderMessage, cache: SessionCache
    ) -> None:
        self.pages: set[MessageQueue] = set()
        self._archive, self._cache = archive, cache
        self._follower = cache.follower(session)
        self._session = self._follower.session
        self._make = make
        self._loop = asyncio.get_running_loop()
        self.waits_for = ""
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self.last: SessionPage | None = None
        self._welcome: tuple[SessionPage | None, bytes] = (None, b"")
        self._lock = threading.Lock()
        self._rest_until = 0.0

    def start(self, have: str) -> None:
        self.waits_for = have
        name = f"flightlog-follow-{self._session[:8]}"
        threading.Thread(target=self._run_reader, name=name, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def welcome_message(self) -> bytes:
        """Return the message for a page that joins later, rendered once for each state."""
        with self._lock:
            page = self.last
            if page is not None and self._welcome[0] is not page:
                self._welcome = (page, self._make(None, page))
            return self._welcome[1]

    def wake(self) -> None:
        """Read at once, because a page has an older state."""
        self._woken.set()

    def _run_reader(self) -> None:
        archive, woken = self._archive, self._woken
        while self.waits_for == session_stamp(archive, self._session) and not woken.is_set():
            if self._stopped.wait(LOOK_EVERY_S):
                return
        while True:
            if time.monotonic() >= self._rest_until:
                self._read_new()
            if self._stopped.wait(LOOK_EVERY_S):
                return

    def _read_new(self) -> None:
        """Read new lines and send the changes to the pages."""
        began = time.monotonic()
        version = session_stamp(self._archive, self._session)
        if self.last is not None and self.last.version == version:
            return
        outline = self._follower.refresh()
        if self.last is not None and self.last.outline is outline:
            self.last.version = version
            return
        page = self._cache.make_page(self._archive, outline, version)
        message = self._make(self.last, page)
        if self.last is not None:  # the first read covers the whole file, so its time says nothing
            self._rest_until = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)
        self.last = page
        if message and not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._send_to_pages, message)

    def _send_to_pages(self, message: bytes) -> None:
        for queue in self.pages:
            _queue_message(queue, message)


def _queue_message(queue: MessageQueue, message: bytes | None) -> None:
    """Queue a message; a page that does not keep up gets None instead and reloads."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = None
    queue.put_nowait(message)


def render_changes(templates: Environment) -> Callable[[SessionPage | None, SessionPage], bytes]:
    """Return the function that renders the changes between two states."""

    def make(old: SessionPage | None, new: SessionPage) -> bytes:
        rows = _changed_rows(old, new) if old else _welcome_rows(new)
        touched = sorted({row // CHUNK_ROWS for row in rows})
        message = {
            "total": new.thread_of().total,
            "size": CHUNK_ROWS,
            "chunks": [_chunk_row_ids(number, new) for number in touched],
            "rows": {row.id: _render_row(templates, new, row) for row in new.load_rows(rows)},
            "facts": _render_facts(templates, new),
            "strip": _render_strip(templates, new),
        }
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        return b"event: news\ndata: " + data + b"\n\n"

    return make


def _welcome_rows(new: SessionPage) -> list[int]:
    """Return the rows that a page gets when it joins."""
    total = new.thread_of().total
    first = max((max(total - 1, 0) // CHUNK_ROWS - WELCOME_CHUNKS + 1) * CHUNK_ROWS, 0)
    return list(range(first, total))


def _changed_rows(old: SessionPage, new: SessionPage) -> list[int]:
    """Return the rows that differ; unchanged chunks are not decoded."""
    pairs = list(zip_longest(old.thread_of().chunks, new.thread_of().chunks, fillvalue=b"\x90"))
    touched = [at for at, (before, after) in enumerate(pairs) if before != after]
    changed = []
    for number in touched[-CHUNKS_MAX:]:
        before, after = (unpack_records(chunk) for chunk in pairs[number])
        changed += [
            number * CHUNK_ROWS + index
            for index, record in enumerate(after)
            if index >= len(before) or before[index] != record
        ]
    if old.outline.subagents != new.outline.subagents:
        changed += _rows_with_subagents(new)
    return sorted(set(changed))


def _rows_with_subagents(new: SessionPage) -> list[int]:
    """Return the rows near the end with subagents, which may have new steps."""
    rows = _welcome_rows(new)
    return [row for row, shown in zip(rows, new.load_rows(rows), strict=True) if shown.subagents]


def _chunk_row_ids(number: int, new: SessionPage) -> dict[str, object]:
    thread = new.thread_of()
    rows = range(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, thread.total))
    return {"number": number, "ids": [thread.id_at(row) for row in rows]}


def _render_row(templates: Environment, page: SessionPage, row: PageRow) -> dict[str, str]:
    plain = {"subagent": None, "whole": False, "spilled": "", "offline": False, "prefix": ""}
    html = templates.get_template("row.html").render(row=row, session=page.session, **plain)
    return {"fingerprint": row_fingerprint(row), "html": html}


def _render_facts(templates: Environment, page: SessionPage) -> str:
    files = page.changed_files()
    values = {"session": page.session, "summary": page.summary, "files": files, "offline": False}
    values["with_copies"] = page.outline.summary.usage
    return templates.get_template("facts.html").render(**values)


def _render_strip(templates: Environment, page: SessionPage) -> str:
    total = page.thread_of().total
    values = {"bars": page.timeline_bars(), "total": total, "position": max(total - 1, 0)}
    return templates.get_template("strip.html").render(values)
