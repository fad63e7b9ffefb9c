"""One session's outline, kept up while its files grow: a look costs what is new.

Reads record by record in bounded memory. Records in an order that does not allow for that are
read again and held; a file that was rewritten is read from its beginning.
"""

import os
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from flightlog.archive.catalogue import Catalogue
from flightlog.archive.door import LONG_BYTES, Archive
from flightlog.model.damage import Damage
from flightlog.model.events import Entry
from flightlog.model.session import Session
from flightlog.sources.claude_code.discover import Transcript
from flightlog.sources.claude_code.transcript import entries, lane_facts
from flightlog.store.lines import TORN_TAIL
from flightlog.views.outline.fold import Disorder, Outlining, Whole
from flightlog.views.outline.shape import Outline
from flightlog.views.prices import price
from flightlog.views.session import fold

TRANSCRIPT = "transcript.jsonl"


def list_session_folder(folder: Path, session: str) -> list[Transcript]:
    """Return the transcripts in a directory of one session: the main thread's, then its subagents'."""
    paths = [folder / TRANSCRIPT, *sorted(folder.glob("subagents/*.jsonl"))]
    return [_transcript(path, session) for path in paths if path.is_file()]


def read_session_folder(folder: Path, session: str, agent: str) -> Session | None:
    """Return the session in a directory of its own; None if there is no transcript."""
    files = list_session_folder(folder, session)
    items = (item for file in files for item in (*entries(file), *((lane_facts(file),) if file.lane else ())))
    return fold(session, agent, price, items) if files else None


def _transcript(path: Path, session: str) -> Transcript:
    stat = path.stat()
    subagent = "" if path.name == TRANSCRIPT else path.stem.removeprefix("agent-")
    return Transcript(str(path), session, stat.st_size, stat.st_mtime_ns, subagent, stat.st_dev, stat.st_ino)


class Growing:
    """What is known of one session; `look` brings it up to date."""

    def __init__(self, archive: Archive, session: str, noted: Iterable[Entry] = ()) -> None:
        """Know nothing yet; `noted` are titles that other files give to sessions."""
        recording = archive.find(session)
        self.session = recording.session
        self.bytes_read = 0
        self._archive, self._agent, self._noted = archive, recording.agent, tuple(noted)
        self._lock = threading.Lock()
        self._value: Outline | None = None
        self._making: Outlining | Whole
        self._begin(in_order=True)

    def look(self) -> Outline:
        """Read what is new and tell the outline; the same object when there is nothing new."""
        with self._lock:
            if self._read() or self._value is None:
                self._value = self._told()
            return self._value

    def _begin(self, *, in_order: bool) -> None:
        self._making = (Outlining if in_order else Whole)(self.session, self._agent, price)
        self._offsets: dict[str, int] = {}
        self._torn: dict[str, Damage] = {}
        for entry in self._noted:
            self._making.add(entry)

    def _read(self) -> bool:
        try:
            return self._read_on()
        except Disorder:
            self._begin(in_order=False)
            return self._read_on()

    def _told(self) -> Outline:
        try:
            told = self._making.value()
        except Disorder:
            self._begin(in_order=False)
            self._read_on()
            told = self._making.value()
        if not self._torn:
            return told
        damage = tuple(sorted({*told.session.damage, *self._torn.values()}))
        summary = replace(told.told, damaged=len(damage))
        return replace(told, session=replace(told.session, damage=damage), told=summary)

    def _read_on(self) -> bool:
        fresh = False
        files = self._archive.fresh(self.session)
        if any(file.size < self._offsets.get(file.path, 0) for file in files):
            self._begin(in_order=isinstance(self._making, Outlining))
        for file in files:
            start = self._offsets.get(file.path, 0)
            if file.size <= start:
                continue
            if start == 0 and file.lane:
                self._making.add(lane_facts(file))
            self._torn.pop(file.path, None)
            for item in entries(file, start):
                if isinstance(item, Damage) and item.why == TORN_TAIL:
                    self._torn[file.path] = item
                    break
                self._making.add(item)
                ended = item.offset + item.length + isinstance(item, Entry)  # the line's end as well
                self._offsets[file.path] = min(ended, file.size)
            self.bytes_read += self._offsets.get(file.path, 0) - start
            fresh = True
        return fresh


def outline(archive: Archive, written: str) -> Outline:
    """Tell which rows a session has and where their records lie; a long one is kept in the index."""
    recording = archive.find(written)
    if recording.size < LONG_BYTES:
        return _outlined(archive, recording.session)
    with closing(Catalogue("outline", Outline, archive.index)) as catalogue:
        return catalogue.one(recording.session, recording.files, lambda session: _outlined(archive, session))


def kept_outline(archive: Archive, session: str) -> Outline | None:
    """Return a long session's outline if the index has it as its files stand."""
    recording = archive.find(session)
    if recording.size < LONG_BYTES:
        return None
    with closing(Catalogue("outline", Outline, archive.index)) as catalogue:
        return catalogue.known(recording.session, recording.files)


def keep_outline(archive: Archive, session: str, told: Outline) -> None:
    """Keep a long session's outline in the index."""
    recording = archive.find(session)
    if recording.size >= LONG_BYTES:
        with closing(Catalogue("outline", Outline, archive.index)) as catalogue:
            catalogue.one(recording.session, recording.files, lambda _: told)


def _outlined(archive: Archive, session: str) -> Outline:
    main = archive.recordings[session].main
    return Growing(archive, session, archive.summaries(os.path.dirname(main.path)) if main else ()).look()  # noqa: PTH120
