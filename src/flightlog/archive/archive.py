"""All recordings of this machine: find, list, read and follow sessions.

The agents' own files are read in place. Only caches are written, to `index.db`.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import tzinfo
from itertools import chain, groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.agents.claude_code.hooks import read_session_hooks
from flightlog.agents.recordings import AgentDirs, find_agent_dirs, index_path, list_recorded_files
from flightlog.archive.search import SearchIndex
from flightlog.archive.session_values import ReadBudget, SessionValueCache, report_progress
from flightlog.model.addresses import check_id, is_safe
from flightlog.model.entries import Entry, SubagentInfo
from flightlog.model.errors import Damage, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, Session, SessionFile, ThreadContext
from flightlog.model.usage import Breakdown, row_fields
from flightlog.sources.foreign_json import find_lines
from flightlog.sources.protocol import FileListing, Source
from flightlog.store.recordings.adoption import list_damaged_sessions, session_dir
from flightlog.store.recordings.reader import is_virtual, open_reader, raw_lines
from flightlog.usage.pipeline import UsagePipeline
from flightlog.usage.prices import price
from flightlog.usage.report import UsageReport
from flightlog.views.session.edits import LineEdit, edits_of_session
from flightlog.views.session.fold import fold_outline, fold_session
from flightlog.views.session.outline import SessionOutline, SessionSummary, TurnCost
from flightlog.views.session.summary import find_own_prompt

Progress = Callable[[int, int], None]
RecordLocation = tuple[str, int, int]  # path, offset, length
SPILLED_BYTES_MAX = 64 << 20  # of one tool output that is read into memory
LONG_BYTES = 4 << 20  # outlines of longer sessions are cached: folding them takes noticeable time


class SessionFiles(Struct, frozen=True):
    """The files of one session."""

    session: str
    agent: str
    files: tuple[SessionFile, ...]

    @property
    def changed_ms(self) -> int:
        """The last modification time of the files."""
        return max(file.changed_ns for file in self.files) // 1_000_000

    @property
    def size(self) -> int:
        """The total size in bytes."""
        return sum(file.size for file in self.files)

    @property
    def source(self) -> Source:
        """The reader of the files."""
        return source_of(self.agent)

    @property
    def main(self) -> SessionFile | None:
        """The main thread's file; a session of warm-ups has none."""
        return next((file for file in self.files if not file.subagent), None)


def open_archive(runtime: Runtime) -> "Archive":
    """Open the recordings of this machine."""
    dirs = find_agent_dirs(runtime)
    return Archive(dirs, runtime.data_dir, index_path(runtime, dirs))


class Archive:
    """The sessions in the agents' directories and in our own copies."""

    def __init__(
        self, dirs: AgentDirs, home: str = "", index: str = "", files: FileListing | None = None
    ) -> None:
        """Use the agents' own directories, the copies below `home` and its index; or only `files`."""
        self._dirs, self._files = dirs, files
        self._home = home
        self.index_path = Path(index or f"{home}/index.db") if home else None
        self._titles: dict[str, list[Entry]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Open the same archive in another process, where it lists its files again."""
        return Archive, (self._dirs, self._home, str(self.index_path or ""), self._files)

    @functools.cached_property
    def recordings(self) -> dict[str, SessionFiles]:
        """Every session's files, by session id."""
        files: dict[str, list[SessionFile]] = defaultdict(list)
        for file in self._listing.files:
            files[file.session].append(file)
        return {
            session: SessionFiles(session, files[session][0].agent, tuple(files[session]))
            for session in sorted(files)
        }

    @functools.cached_property
    def fingerprint(self) -> int:
        """A number that changes with the path, size and time of every file."""
        return hash(frozenset(self._listing.files))

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The directories and files that could not be listed."""
        return self._listing.damage

    def find_recording(self, prefix: str) -> SessionFiles:
        """Return the session whose id begins with `prefix`."""
        if prefix in self.recordings:
            return self.recordings[prefix]
        begin = check_id(prefix)
        matches = [session for session in self.recordings if session.startswith(begin)]
        if not matches:
            raise NotFound(f"no session begins with {prefix!r}", hint="flightlog session list")
        if len(matches) > 1:
            hint = f"write more of it: {', '.join(matches[:5])}"
            raise Invalid(f"{len(matches)} sessions begin with {prefix!r}", hint=hint)
        return self.recordings[matches[0]]

    def latest_session(self) -> str:
        """Return the session with the newest record; if none has a time, the one written last."""
        if not self.recordings:
            raise NotFound("there are no sessions", hint="flightlog demo")
        return max(
            self.recordings.values(),
            key=lambda found: (self.last_record_ms(found), found.changed_ms, found.session),
        ).session

    def last_record_ms(self, recording: SessionFiles) -> int:
        """Return the time of a session's last record, read from the ends of its files."""
        return max(map(recording.source.last_record_ms, recording.files), default=0)

    def read_session(self, prefix: str) -> Session:
        """Return the whole session whose id begins with `prefix`."""
        return self._fold_session(self.find_recording(prefix))

    def iter_sessions(self, progress: Progress | None = None) -> Iterator[Session]:
        """Yield every session, the one written last first."""
        sessions = map(self._fold_session, self._last_written_first)
        yield from report_progress(sessions, progress, len(self.recordings))

    def read_outline(self, session: str) -> SessionOutline:
        """Return the outline of a session; that of a long one is cached in the index."""
        recording = self.recordings[session]
        if recording.size < LONG_BYTES:
            return self._fold_outline(session)
        with closing(self.outline_cache()) as cache:
            return cache.get_or_compute(session, recording.files, self._fold_outline)

    def outline_cache(self) -> SessionValueCache[SessionOutline]:
        """Open the cache of outlines; the caller closes it."""
        return SessionValueCache("outline", SessionOutline, self.index_path)

    def iter_summaries(self, progress: Progress | None = None) -> Iterator[SessionSummary]:
        """Yield a summary of every session, the one written last first.

        Unchanged ones come from the index. `sort_newest_first` sorts them by their records.
        """
        files = {recording.session: recording.files for recording in self._last_written_first}
        agents = {recording.agent for recording in self.recordings.values() if self._home}
        damaged = set().union(*(list_damaged_sessions(self._home, agent) for agent in agents))
        with (
            closing(SessionValueCache("summary", SessionSummary, self.index_path)) as cache,
            closing(SessionValueCache("own prompt", tuple[TurnCost, ...], self.index_path)) as own,
        ):
            summaries = cache.iter_values(files, self.summarize_session)
            for summary in report_progress(summaries, progress, len(files)):
                name = summary.session
                row = self.usage_pipeline.session_rows((name,)).get(name)
                if row is not None and row.responses < summary.steps:  # the others may be copies
                    prompts = own.get_or_compute(name, files[name], self._find_own_prompts)
                    summary = replace(summary, most_expensive_prompt=next(iter(prompts), None))  # noqa: PLW2901
                if summary.session in damaged:
                    summary = replace(summary, damage_count=max(summary.damage_count, 1))  # noqa: PLW2901
                yield replace(summary, **row_fields(row)) if row else summary

    def iter_edits(
        self, sessions: Iterable[str] | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[str, tuple[LineEdit, ...]]]:
        """Yield the file edits of `sessions`, or of all; unchanged ones come from the index."""
        names = self.recordings if sessions is None else sessions
        files = {name: self.recordings[name].files for name in names if name in self.recordings}
        with closing(SessionValueCache("edits", tuple[LineEdit, ...], self.index_path)) as cache:
            edits = cache.iter_values(files, lambda name: edits_of_session(self.read_session(name)))
            yield from report_progress(zip(files, edits, strict=True), progress, len(files))

    def count_secrets(
        self, bytes_max: int | None = None, limit_s: float | None = None
    ) -> dict[str, dict[str, int]]:
        """Return the number of secrets in each session, by rule, the session written last first.

        Unchanged sessions come from the index. Others are scanned as far as `bytes_max` and
        `limit_s` allow: those that fit, or the shortest if none fits into `bytes_max`. 0 scans none.
        """
        files = {one.session: one.files for one in self._last_written_first}
        budget = ReadBudget(bytes_max, limit_s)
        with closing(SessionValueCache("secrets", dict[str, int], self.index_path)) as cache:
            return dict(cache.iter_items(files, lambda names: self._scan_some(names, budget)))

    def _scan_some(
        self, sessions: list[str], budget: ReadBudget
    ) -> Iterator[tuple[str, dict[str, int]]]:
        sizes = {name: self.recordings[name].size for name in sessions}
        for name, size in sizes.items():
            if budget.take(size):
                yield name, self.count_session_secrets(name)
        if budget.bytes_max and not budget.read_bytes:
            shortest = min(sessions, key=sizes.__getitem__)
            yield shortest, self.count_session_secrets(shortest)

    def iter_file_entries(
        self, files: Iterable[SessionFile], starts: Mapping[str, int] | None = None
    ) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield the entries of some files of a session, each from its offset in `starts`."""
        for file in files:
            yield from source_of(file.agent).entries(file, (starts or {}).get(file.path, 0))

    def first_cwd(self, recording: SessionFiles) -> str:
        """Return the directory a session began in; reads up to the first record that has it."""
        items = self.iter_file_entries(recording.files)
        cwds = (item.context.cwd for item in items if isinstance(item, Entry))
        return next(filter(None, cwds), "")

    def thread_contexts(self, prefix: str) -> dict[str, ThreadContext]:
        """Return what the model was given in each thread, and which responses are copies."""
        recording = self.find_recording(prefix)
        contexts = recording.source.thread_contexts(recording.files)
        # The source of a database knows its forks; here, all of its sessions would be read.
        if recording.main is not None and not is_virtual(recording.main.path):
            main = contexts.get("", ThreadContext())
            copied = self.usage_pipeline.copied_message_ids(recording.main)
            contexts[""] = replace(main, copied_message_ids=main.copied_message_ids | copied)
        return contexts

    def read_entries_at(self, locations: Iterable[RecordLocation]) -> Iterator[Entry]:
        """Yield the records at the locations."""
        for path, group in groupby(locations, key=lambda location: location[0]):
            source = source_of(self._agents_by_path.get(path, DEFAULT_AGENT))
            yield from source.entries_at(path, [(offset, length) for _, offset, length in group])

    def find_entries(self, prefix: str, words: str) -> Iterator[Entry]:
        """Yield the records of a session that contain `words`, file by file."""
        for file in self.find_recording(prefix).files:
            yield from source_of(file.agent).entries_at(file.path, find_lines(file.path, words))

    def read_spilled_output(self, session: str, name: str) -> str | None:
        """Return a tool output stored beside the transcript, or None if its file is gone."""
        recording = self.find_recording(session)
        for file in recording.files:
            try:
                with closing(open_reader(recording.source.tool_result_file(file, name))) as reader:
                    return reader.read(0, SPILLED_BYTES_MAX).decode("utf-8", "replace")
            except (OSError, ValueError):
                continue
        return None

    def usage_report(self, by: Breakdown, zone: tzinfo) -> UsageReport:
        """Return usage and cost of all sessions."""
        return self.usage_pipeline.report(by, zone)

    @functools.cached_property
    def usage_pipeline(self) -> UsagePipeline:
        """The usage of all sessions; its `save` stores what was read."""
        listing = self._listing
        return UsagePipeline(listing.files, self.index_path, len(listing.damage))

    @functools.cached_property
    def search_index(self) -> SearchIndex:
        """The full-text search over all sessions."""
        return SearchIndex(self._listing.files, self.index_path)

    def file_state(self, session: str) -> tuple[tuple[str, int, int], ...]:
        """Return path, size and modification time of a session's files as they are now."""
        name = self.find_recording(session).session
        return tuple((file.path, file.size, file.changed_ns) for file in self.current_files(name))

    def current_files(self, session: str) -> tuple[SessionFile, ...]:
        """Return a session's files as they are now; subagents that started since are included."""
        recording = self.recordings[session]
        current: dict[str, SessionFile] = {}
        for file in sorted(recording.files, key=lambda file: bool(file.subagent)):
            if file.path not in current:  # some subagents are in the directory of another project
                current |= {one.path: one for one in recording.source.session_files(file)}
        return tuple(current.values()) or recording.files

    def hook_folder(self, session: str) -> Path | None:
        """Return the directory of a session's hook log, if it can have one."""
        if not (self._home and is_safe(session)):
            return None
        agent = getattr(self.recordings.get(session), "agent", DEFAULT_AGENT)
        return session_dir(self._home, agent, session)

    @functools.cached_property
    def _agents_by_path(self) -> dict[str, str]:
        return {file.path: file.agent for file in self._listing.files}

    @functools.cached_property
    def _listing(self) -> FileListing:
        return self._files or list_recorded_files(self._dirs, self._home)

    @property
    def _last_written_first(self) -> list[SessionFiles]:
        return sorted(self.recordings.values(), key=lambda one: (-one.changed_ms, one.session))

    def summarize_session(self, session: str) -> SessionSummary:
        """Return the summary of a session, computed from its files."""
        summary = self.read_outline(session).summary
        return replace(summary, modified_ms=self.recordings[session].changed_ms)

    def _find_own_prompts(self, session: str) -> tuple[TurnCost, ...]:
        main = self.recordings[session].main
        copied = self.usage_pipeline.copied_message_ids(main) if main else frozenset()
        return tuple(filter(None, [find_own_prompt(self.read_session(session), copied)]))

    def _fold_session(self, recording: SessionFiles) -> Session:
        hooks = read_session_hooks(self.hook_folder(recording.session))
        items = chain(self._iter_items(recording), hooks)
        return fold_session(recording.session, recording.agent, price, items)

    def _fold_outline(self, session: str) -> SessionOutline:
        recording = self.recordings[session]
        return fold_outline(session, recording.agent, price, lambda: self._iter_items(recording))

    def _iter_items(self, recording: SessionFiles) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield the entries of a session, and the titles in other files of the project."""
        for file in recording.files:
            yield from recording.source.entries(file)
            if not file.subagent:
                yield from self._titles_in_folder(_folder(file), recording.source)

    def _titles_in_folder(self, folder: str, source: Source) -> list[Entry]:
        if folder not in self._titles:
            files = [file for file in self._listing.files if _folder(file) == folder]
            self._titles[folder] = list(source.titles(files))
        return self._titles[folder]

    def count_session_secrets(self, session: str) -> dict[str, int]:
        """Return the number of secrets in a session, by rule."""
        from flightlog.privacy.scanner import secret_counts  # noqa: PLC0415 - compiling its rules is slow

        paths = (file.path for file in self.recordings[session].files)
        return secret_counts(line for path in paths for line in raw_lines(path, 0))


def _folder(file: SessionFile) -> str:
    return os.path.dirname(file.path)  # noqa: PTH120 - pathlib is slow for thousands of files
