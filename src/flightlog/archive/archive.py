"""Archive: find, list, open sessions; copied responses.

A fork or a resumed copy repeats responses of another session of the same project. Which of
the sessions said them first is the ledger's rule, the same one that usage is counted by.

Reads the agents' own files in place; nothing is written on the way to a report. Which
directories to look in is told from outside.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import tzinfo
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.agents.claude_code.files import AGENT_NAME, find_config_dirs
from flightlog.agents.recordings import list_recorded_files
from flightlog.archive.search import SearchIndex, SearchQuery, SearchResult
from flightlog.archive.session_values import SessionValueCache
from flightlog.model.addresses import check_id
from flightlog.model.entries import Entry, SubagentInfo
from flightlog.model.errors import Damage, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session, SessionFile, ThreadContext
from flightlog.model.usage import Breakdown, row_to_response
from flightlog.sources.foreign_json import find_lines
from flightlog.sources.protocol import FileListing
from flightlog.store.jsonl import TORN_TAIL
from flightlog.store.recordings.adoption import list_damaged_sessions
from flightlog.store.recordings.reader import open_reader, raw_lines
from flightlog.usage.attribution import attribute_responses
from flightlog.usage.pipeline import UsagePipeline
from flightlog.usage.prices import price
from flightlog.usage.report import UsageFilter, UsageReport
from flightlog.views.session.edits import LineEdit, edits_of_session
from flightlog.views.session.fold import Retain, SessionFold, fold_session
from flightlog.views.session.outline import SessionOutline, SessionSummary
from flightlog.views.session.thread import OutOfOrder, shorten_texts
from flightlog.views.session.timeline import map_addresses

Progress = Callable[[int, int], None]
Place = tuple[str, int, int]  # path, offset, length
SPILLED_BYTES_MAX = 64 << 20
LONG_BYTES = 4 << 20  # what is longer is never held whole


def session_contexts(files: Sequence[SessionFile], others: Iterable[SessionFile]) -> dict[str, ThreadContext]:
    """Say what is known of each thread of the session in `files`; `others` are the files of other sessions."""
    told = source_of(AGENT_NAME).thread_contexts(files)
    main = next((file for file in files if not file.lane), None)
    if main is not None:
        main_thread = told.get("", ThreadContext())
        told[""] = replace(main_thread, copied=main_thread.copied | _copied_responses(main, others))
    return told


def _copied_responses(main: SessionFile, others: Iterable[SessionFile]) -> frozenset[str]:
    """Name the responses in `main` that an older session of the project holds; the first one tells where to look."""
    scan_usage = source_of(AGENT_NAME).scan_usage
    mine = scan_usage(main)
    first = min(mine.rows, key=lambda row: row.at_ms, default=None)
    if first is None:
        return frozenset()
    folder = os.path.dirname(main.path)  # noqa: PTH120 - as text, like everywhere here
    near = [file for file in others if not file.lane and os.path.dirname(file.path) == folder]  # noqa: PTH120
    assert all(file.session != main.session for file in near)
    holders = [file for file in near if any(True for _ in find_lines(file.path, first.message_id))]
    if not holders:
        return frozenset()
    scans = {main.session: mine, **{file.session: scan_usage(file) for file in holders}}
    rows = [row_to_response(row) for each in scans.values() for row in each.rows]
    attribution = attribute_responses(
        rows, {session: each.first_ms for session, each in scans.items() if each.first_ms}
    )
    return frozenset(copy.message_id for copy in attribution.copies.get(main.session, ()))


class SessionFiles(Struct, frozen=True):
    """The files of one session."""

    session: str
    agent: str
    files: tuple[SessionFile, ...]

    @property
    def changed_ms(self) -> int:
        """When the agent last wrote to any of them."""
        return max(file.changed_ns for file in self.files) // 1_000_000

    @property
    def size(self) -> int:
        """How many bytes they hold."""
        return sum(file.size for file in self.files)

    @property
    def main(self) -> SessionFile | None:
        """The main thread's file; a session of warm-ups has none."""
        return next((file for file in self.files if not file.lane), None)


def open_archive(runtime: Runtime) -> "Archive":
    """Open the recordings of this machine."""
    return Archive(find_config_dirs(runtime), runtime.data_dir)


class Archive:
    """Every recording that can be found from here."""

    def __init__(self, config_dirs: Sequence[str], home: str = "") -> None:
        """Look below `config_dirs`, the agents' own configuration directories, and in our copies below `home`."""
        self._config_dirs = tuple(config_dirs)
        self._home = home
        self._noted: dict[str, list[Entry]] = {}
        self._source = source_of(AGENT_NAME)

    @functools.cached_property
    def recordings(self) -> dict[str, SessionFiles]:
        """Every session's files, by session id."""
        files: dict[str, list[SessionFile]] = defaultdict(list)
        for transcript in self._list_files.files:
            files[transcript.session].append(transcript)
        return {session: SessionFiles(session, AGENT_NAME, tuple(files[session])) for session in sorted(files)}

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What could not be looked into."""
        return self._list_files.damage

    def find_recording(self, written: str) -> SessionFiles:
        """Return the session whose id begins with `written`."""
        if written in self.recordings:
            return self.recordings[written]
        begin = check_id(written)
        matches = [session for session in self.recordings if session.startswith(begin)]
        if not matches:
            raise NotFound(f"no session begins with {written!r}", hint="flightlog session list")
        if len(matches) > 1:
            some = ", ".join(matches[:5])
            raise Invalid(f"{len(matches)} sessions begin with {written!r}", hint=f"write more of it: {some}")
        return self.recordings[matches[0]]

    def latest_session(self) -> str:
        """Return the session that changed last."""
        if not self.recordings:
            raise NotFound("there are no sessions", hint="flightlog demo")
        return max(self.recordings.values(), key=lambda recording: (recording.changed_ms, recording.session)).session

    def read_session(self, written: str) -> Session:
        """Tell the session whose id begins with `written`."""
        return self._fold_session(self.find_recording(written))

    def iter_summaries(self, progress: Progress | None = None) -> Iterator[SessionSummary]:
        """Reduce every session to a line, newest first; only what changed is read again."""
        catalogue = SessionValueCache("summary", SessionSummary, self.index_path)
        files = {recording.session: recording.files for recording in self._recordings_newest_first()}
        own = self.usage_pipeline.session_rows()
        damaged = list_damaged_sessions(self._home, AGENT_NAME) if self._home else ()
        for done, summary in enumerate(catalogue.iter_values(files, self._summarize_session)):
            if progress is not None:
                progress(done, len(files))
            row = own.get(summary.session)
            if summary.session in damaged:
                summary = replace(summary, damaged=max(summary.damaged, 1))  # noqa: PLW2901 - as the archive knows it
            yield replace(summary, usage=row.usage, cost=row.cost) if row else summary
        catalogue.close()

    def search_records(self, query: SearchQuery, limit: int) -> list[tuple[SearchResult, str]]:
        """Find records by what they say, each with the address that opens it."""
        catalogue = SessionValueCache("addresses", dict[str, str], self.index_path)
        known: dict[str, dict[str, str]] = {}
        hits = []
        for found in self.search_index.search_records(query, limit):
            session = found.hit.session
            if session not in known:
                files = self.recordings[session].files
                known[session] = catalogue.get_or_compute(
                    session, files, lambda each: map_addresses(self.read_session(each))
                )
            hits.append((found, known[session].get(found.hit.uuid, session)))
        catalogue.close()
        return hits

    def iter_edits(
        self, sessions: Iterable[str] | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[str, tuple[LineEdit, ...]]]:
        """Yield what each session wrote into files, all of them or those named; only what changed is read again."""
        catalogue = SessionValueCache("edits", tuple[LineEdit, ...], self.index_path)
        wanted = self.recordings if sessions is None else [each for each in sessions if each in self.recordings]
        files = {session: self.recordings[session].files for session in wanted}
        found = catalogue.iter_values(files, lambda session: edits_of_session(self.read_session(session)))
        for done, pair in enumerate(zip(files, found, strict=True)):
            if progress is not None:
                progress(done, len(files))
            yield pair
        catalogue.close()

    def count_secrets(self, bytes_max: int | None = None) -> dict[str, dict[str, int]]:
        """Return how many secrets each session holds, by rule, newest first; only what changed is read again.

        With `bytes_max`, sessions that nobody counted yet are left out once so much was read.
        """
        catalogue = SessionValueCache("secrets", dict[str, int], self.index_path)
        counts: dict[str, dict[str, int]] = {}
        read = 0
        for recording in self._recordings_newest_first():
            count = catalogue.get_if_current(recording.session, recording.files)
            if count is None and (bytes_max is None or read < bytes_max):
                read += recording.size
                count = catalogue.get_or_compute(recording.session, recording.files, self._secret_counts)
            if count is not None:
                counts[recording.session] = count
        catalogue.close()
        return counts

    def iter_sessions(self, progress: Progress | None = None) -> Iterator[Session]:
        """Tell every session, newest first."""
        ordered = self._recordings_newest_first()
        for done, recording in enumerate(ordered):
            if progress is not None:
                progress(done, len(ordered))
            yield self._fold_session(recording)

    def iter_entries(self, written: str) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield what a session's own files say, for a fold of one's own; titles noted elsewhere are not looked for."""
        yield from self.iter_file_entries(self.find_recording(written).files)

    def iter_file_entries(
        self, files: Iterable[SessionFile], starts: Mapping[str, int] | None = None
    ) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield what some files of a session say, each from the byte named in `starts` on."""
        for file in files:
            yield from self._source.entries(file, (starts or {}).get(file.path, 0))

    def first_cwd(self, recording: SessionFiles) -> str:
        """Return the directory a session began in; no more is read than it takes."""
        said = (entry for entry in self.iter_file_entries(recording.files) if isinstance(entry, Entry))
        return next((entry.scene.cwd for entry in said if entry.scene.cwd), "")

    def thread_contexts(self, written: str) -> dict[str, ThreadContext]:
        """Say what the model was given in each thread of a session, and what of it is a copy."""
        recording = self.find_recording(written)
        others = (file for file in self._list_files.files if file.session != recording.session)
        return session_contexts(recording.files, others)

    def read_entries_at(self, places: Iterable[Place]) -> Iterator[Entry]:
        """Read single records again, from where they were found."""
        for path, group in groupby(places, key=lambda place: place[0]):
            yield from self._source.entries_at(path, [(offset, length) for _, offset, length in group])

    def find_entries(self, written: str, words: str) -> Iterator[Entry]:
        """Yield the records of a session that hold `words` somewhere, in no promised order of threads."""
        for file in self.find_recording(written).files:
            yield from self.read_entries_at(
                (file.path, offset, length) for offset, length in find_lines(file.path, words)
            )

    def follow_session(self, written: str, pause: Callable[[], bool]) -> Iterator[Entry | Damage]:
        """Yield what stands on record, then what is added; `pause` waits a little and says whether to go on.

        A look costs as much as there is new: files are read from where the last look ended.
        """
        session = self.find_recording(written).session
        read: dict[str, int] = {}
        told: set[Damage] = set()
        while True:
            for file in self.current_files(session):
                start = read.get(file.path, 0)
                if file.size < start:
                    start = 0
                if file.size > start:
                    for item in self._source.entries(file, start):
                        if isinstance(item, SubagentInfo) or (isinstance(item, Damage) and item.why == TORN_TAIL):
                            break
                        start = item.offset + item.length
                        if isinstance(item, Damage) and item in told:
                            continue
                        if isinstance(item, Damage):
                            told.add(item)
                        yield item
                    read[file.path] = start
            if not pause():
                return

    def read_spilled_output(self, session: str, said: str) -> str | None:
        """Read a tool result that was too large for the transcript, if it is still there."""
        for file in self.find_recording(session).files:
            try:
                return _read_text(self._source.tool_result_file(file, said))
            except (OSError, ValueError):
                continue
        return None

    def usage_report(self, by: Breakdown, zone: tzinfo, only: UsageFilter | None = None) -> UsageReport:
        """Report usage and cost."""
        return self.usage_pipeline.report(by, zone, only)

    @functools.cached_property
    def usage_pipeline(self) -> UsagePipeline:
        """Usage of everything recorded; its `save` stores what was read."""
        return UsagePipeline(self._list_files.files, self.index_path)

    @functools.cached_property
    def search_index(self) -> SearchIndex:
        """Search over everything recorded."""
        return SearchIndex(self._list_files.files, self.index_path)

    @property
    def index_path(self) -> Path | None:
        """Where the index is kept, if anywhere."""
        return Path(self._home) / "index.db" if self._home else None

    @functools.cached_property
    def _list_files(self) -> FileListing:
        return list_recorded_files(self._config_dirs, self._home)

    def _recordings_newest_first(self) -> list[SessionFiles]:
        return sorted(self.recordings.values(), key=lambda recording: (-recording.changed_ms, recording.session))

    def _summarize_session(self, session: str) -> SessionSummary:
        recording = self.recordings[session]
        if recording.size >= LONG_BYTES:
            from flightlog.archive.session_reader import read_outline  # noqa: PLC0415 - it knows the archive

            return replace(read_outline(self, session).summary, changed_ms=recording.changed_ms)
        return replace(self.read_outline(session).summary, changed_ms=recording.changed_ms)

    def read_outline(self, session: str) -> SessionOutline:
        """Return the outline of a session, read in bounded memory if the order of its records allows it."""
        recording = self.recordings[session]
        fold = SessionFold(session, recording.agent, price, Retain.TAIL)
        try:
            for item in self._iter_items(recording):
                fold.add(item)
            return fold.outline()
        except OutOfOrder:
            fold = SessionFold(session, recording.agent, price, Retain.ALL)
            for item in self._iter_items(recording):
                fold.add(shorten_texts(item))
            return fold.outline()

    def file_state(self, session: str) -> tuple[tuple[str, int, int], ...]:
        """Say how the files of a session stand now, by path, size and time; it changes when they do."""
        return tuple(
            (file.path, file.size, file.changed_ns) for file in self.current_files(self.find_recording(session).session)
        )

    def _secret_counts(self, session: str) -> dict[str, int]:
        from flightlog.privacy.scanner import secret_counts  # noqa: PLC0415 - its rules take a while to read

        files = self.recordings[session].files
        return secret_counts(line for file in files for line in raw_lines(file.path, 0))

    def current_files(self, session: str) -> tuple[SessionFile, ...]:
        """Look again at the files of one session; new subagents appear as it runs."""
        files = self.recordings[session].files
        found = [file for main in files if not main.lane for file in self._source.session_files(main)]
        return tuple({file.path: file for file in found}.values()) or files

    def _fold_session(self, recording: SessionFiles) -> Session:
        return fold_session(recording.session, recording.agent, price, self._iter_items(recording))

    def _iter_items(self, recording: SessionFiles) -> Iterator[Entry | Damage | SubagentInfo]:
        for file in recording.files:
            yield from self._source.entries(file)
            if not file.lane:
                yield from self.titles_in_folder(os.path.dirname(file.path))  # noqa: PTH120

    def titles_in_folder(self, folder: str) -> Iterable[Entry]:
        """Titles noted in a project's other files, read once."""
        if folder not in self._noted:
            files = (file for recording in self.recordings.values() for file in recording.files)
            beside = [file for file in files if os.path.dirname(file.path) == folder]  # noqa: PTH120
            self._noted[folder] = list(self._source.titles(beside))
        return self._noted[folder]


def _read_text(path: str) -> str:
    with closing(open_reader(path)) as reader:
        return reader.read(0, SPILLED_BYTES_MAX).decode("utf-8", "replace")
