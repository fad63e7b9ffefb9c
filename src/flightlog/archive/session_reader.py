"""Follow the outline of one session while its files grow; read sessions in their own directory.

Only appended records are read, in bounded memory. If the records are out of order, the session is
read again and kept whole, without its long texts. If a file was rewritten, all are read again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.agents.claude_code.files import JOURNAL
from flightlog.agents.claude_code.hooks import HookReader
from flightlog.archive.archive import LONG_BYTES, Archive, SessionFiles
from flightlog.model.entries import Entry, SubagentInfo, ToolHook
from flightlog.model.errors import Damage
from flightlog.model.session import Session, SessionFile
from flightlog.model.usage import UsageRow
from flightlog.sources.hook_log import follow_hook_records, read_new_hook_records
from flightlog.store.jsonl import TORN_TAIL
from flightlog.store.recordings.adoption import TRANSCRIPT
from flightlog.store.recordings.reader import is_virtual, open_reader
from flightlog.usage.pipeline import UsagePipeline
from flightlog.usage.prices import price
from flightlog.views.session.fold import Retain, SessionFold, fold_session
from flightlog.views.session.outline import SessionOutline
from flightlog.views.session.thread import OutOfOrder, shorten_texts


def list_session_folder(folder: Path, session: str) -> list[SessionFile]:
    """Return the transcripts in a session's directory: the main thread's, then its subagents'."""
    paths = [folder / TRANSCRIPT, *sorted(folder.glob("subagents/**/*.jsonl"))]
    transcripts = (path for path in paths if path.is_file() and path.name != JOURNAL)
    return [_describe_file(path, session) for path in transcripts]


def read_session_folder(folder: Path, session: str, agent: str) -> Session | None:
    """Return the session in a directory of its own; None if there is no transcript."""
    files = list_session_folder(folder, session)
    items = (item for file in files for item in source_of(file.agent).entries(file))
    return fold_session(session, agent, price, items) if files else None


def read_own_usage(archive: Archive, session: str) -> UsageRow | None:
    """Return a session's usage as it is now, without responses copied from another session.

    The pipeline is its own: pages call this in several threads, and the archive's may be older.
    """
    files = [
        file
        for name, recording in archive.recordings.items()
        for file in (archive.current_files(name) if name == session else recording.files)
    ]
    pipeline = UsagePipeline(files, archive.index_path)
    row = pipeline.session_rows({session}).get(session)
    pipeline.save()
    return row


def iter_last_entries(recording: SessionFiles, bytes_max: int) -> Iterator[Entry]:
    """Yield the entries in the last bytes of a session's main thread, oldest first."""
    file = recording.main
    if file is None:
        return
    start = 0
    if file.size > bytes_max and not is_virtual(file.path):
        with closing(open_reader(file.path)) as reader:
            tail = reader.read(file.size - bytes_max, bytes_max)
        start = file.size - bytes_max + tail.find(b"\n") + 1
    for item in source_of(file.agent).entries(file, start):
        if isinstance(item, Entry):
            yield item


def follow_entries(
    archive: Archive, prefix: str, pause: Callable[[], bool]
) -> Iterator[Entry | Damage]:
    """Yield the entries of a session, then those that are added while it runs.

    After each pass over the files `pause` waits and returns whether to continue. A pass
    reads only what was appended since the last one.
    """
    session = archive.find_recording(prefix).session
    offsets: dict[str, int] = {}
    seen: set[str | Damage | SessionFile] = set()
    while True:
        for file in archive.current_files(session):
            yield from _iter_added(file, offsets, seen)
        if not pause():
            return


def _iter_added(
    file: SessionFile, offsets: dict[str, int], seen: set[str | Damage | SessionFile]
) -> Iterator[Entry | Damage]:
    """Yield what was added after the offset of `file`, and damage that is not in `seen`."""
    has_rows = is_virtual(file.path)  # they change in place, so all are read and compared
    start = 0 if has_rows else offsets.get(file.path, 0)
    start = start if start <= file.size else 0  # a rewritten file
    if start == file.size or (has_rows and file in seen):
        return
    seen.add(file)
    for item in source_of(file.agent).entries(file, start):
        is_torn = isinstance(item, Damage) and item.reason == TORN_TAIL
        if is_torn or isinstance(item, SubagentInfo):
            break
        offsets[file.path] = item.offset + item.length
        mark = item if isinstance(item, Damage) else item.key if has_rows else ""
        if not mark or mark not in seen:
            seen.add(mark)
            yield item


def _describe_file(path: Path, session: str) -> SessionFile:
    stat = path.stat()
    subagent = "" if path.name == TRANSCRIPT else path.stem.removeprefix("agent-")
    state = (stat.st_size, stat.st_mtime_ns, subagent, stat.st_dev, stat.st_ino)
    return SessionFile(str(path), session, *state)


class SessionFollower:
    """The outline of one session and the offsets up to which its files were read."""

    def __init__(self, archive: Archive, session: str) -> None:
        """Start without reading."""
        recording = archive.find_recording(session)
        self.session = recording.session
        self.bytes_read = 0
        self._archive, self._agent = archive, recording.agent
        self._lock = threading.Lock()
        self._outline: SessionOutline | None = None
        self._states: dict[str, SessionFile] = {}
        self._reset_fold(Retain.TAIL)

    def refresh(self) -> SessionOutline:
        """Read what is new and return the outline; the same object when nothing is new."""
        with self._lock:
            try:
                if self._read_new() or self._outline is None:
                    self._outline = self._build_outline()
            except OutOfOrder:
                self._reset_fold(Retain.ALL)
                self._read_new()
                self._outline = self._build_outline()
            return self._outline

    def _reset_fold(self, retain: Retain) -> None:
        self._retain = retain
        self._fold = SessionFold(self.session, self._agent, price, retain)
        self._hooks = HookReader()
        self._hook_ends: dict[Path, int] = {}
        self._offsets: dict[str, int] = {}
        self._torn: dict[str, Damage] = {}

    def _build_outline(self) -> SessionOutline:
        outline = self._fold.outline()
        if not self._torn:
            return outline
        damage = tuple(sorted({*outline.session.damage, *self._torn.values()}))
        summary = replace(outline.summary, damage_count=len(damage))
        return replace(outline, session=replace(outline.session, damage=damage), summary=summary)

    def _read_new(self) -> bool:
        """Add what was appended to the fold; return whether there was anything."""
        is_changed = False
        files = self._archive.current_files(self.session)
        # Rows of a database change in place.
        states = {file.path: file for file in files if is_virtual(file.path)}
        is_rewritten = any(file.size < self._offsets.get(file.path, 0) for file in files)
        if is_rewritten or states != self._states:
            self._reset_fold(self._retain)
            self._states = states
        for file in files:
            start = self._offsets.get(file.path, 0)
            if file.size <= start:
                continue
            self._torn.pop(file.path, None)
            for item in source_of(file.agent).entries(file, start):
                if isinstance(item, SubagentInfo):
                    self._fold.add(item)
                    continue
                if isinstance(item, Damage) and item.reason == TORN_TAIL:
                    self._torn[file.path] = item
                    continue
                self._fold.add(item if self._retain is Retain.TAIL else shorten_texts(item))
                end = item.offset + item.length + isinstance(item, Entry)  # with the newline
                self._offsets[file.path] = min(end, file.size)
            if file.path in states:  # its size is a guess
                self._offsets[file.path] = file.size
            self.bytes_read += self._offsets.get(file.path, 0) - start
            is_changed = True
        return self._read_new_hooks() or is_changed

    def _read_new_hooks(self) -> bool:
        folder = self._archive.hook_folder(self.session)
        if folder is None:
            return False
        records = follow_hook_records(folder, self._hook_ends)
        for reported in self._hooks.read(records):
            self._fold.add(reported)
        return bool(records)


def load_cached_outline(archive: Archive, session: str) -> SessionOutline | None:
    """Return a long session's outline if the index has it for the files as they are."""
    recording = archive.find_recording(session)
    if recording.size < LONG_BYTES:
        return None
    with closing(archive.outline_cache()) as cache:
        outline = cache.get_if_current(recording.session, recording.files)
    folder = archive.hook_folder(recording.session)
    if outline is None or folder is None:
        return outline
    # Only the end of the log, so that a long session still opens at once.
    reported = HookReader().read(read_new_hook_records(str(folder), 0)[0])
    hooks = {hook.tool_call_id: hook for hook in reported if isinstance(hook, ToolHook)}
    return replace(outline, tool_hooks=outline.tool_hooks | hooks)
