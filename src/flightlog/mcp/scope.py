"""The sessions that a tool may answer from, as the index knows them, and their redaction.

By default these are the sessions of the current project: of its repository and all its work trees.
Outside a repository only those that began in the same directory count, because below a home
directory there are other projects. No session file is listed here: an answer over 10,000 sessions
reads the index and the few sessions that it shows.
"""

import functools
import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code import PLUGIN_ROOT, PROJECT_DIR, SESSION_ID
from flightlog.agents.recordings import find_agent_dirs, index_path
from flightlog.archive.archive import Archive
from flightlog.archive.session_values import SessionValueCache
from flightlog.model.addresses import check_id
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.output_files import Clean, Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.model.usage import Cost, CostSource
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import make_redactor
from flightlog.sources.protocol import FileListing
from flightlog.store.files import find_project
from flightlog.store.git.repository import list_worktrees
from flightlog.store.index import fulltext
from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.fulltext import SCHEMA as FULLTEXT
from flightlog.store.index.records import SCHEMA as RECORDS
from flightlog.store.recordings.reader import raw_lines
from flightlog.usage.digest import UsageDigest
from flightlog.usage.pipeline import load_digests
from flightlog.usage.report import total_row
from flightlog.views.session.outline import SessionSummary

ACTIVE_MS = 600_000  # the running session was written to when its prompt came; tools may run long
# Which agent a client is, by a part of the name that it gives.
_AGENTS = {"claude": DEFAULT_AGENT, "codex": "codex", "copilot": "copilot"}

T = TypeVar("T")
# Where a client names the session that started the server; Codex names it in each call.
_SESSION_VARIABLES = {DEFAULT_AGENT: SESSION_ID, "copilot": "COPILOT_AGENT_SESSION_ID"}


class ScopedSession(Struct, frozen=True, array_like=True):
    """A session in the scope; `numbers` are those of its files in the index."""

    session: str
    agent: str
    project: str
    last_ms: int
    files: tuple[SessionFile, ...]
    numbers: tuple[int, ...]


class ToolCaller(Struct, frozen=True):
    """Who asks: what the client calls itself, and the session if the call names it."""

    client: str = ""
    session: str = ""
    all_projects: bool = False


class RunningSession(Struct, frozen=True):
    """The session that asks; `is_certain` if the client named it."""

    session: str = ""
    is_certain: bool = False


_decode_sessions = msgspec.msgpack.Decoder(tuple[int, list[ScopedSession]]).decode


class SessionScope:
    """The sessions of the project, or of all, for one answer."""

    def __init__(self, runtime: Runtime, caller: ToolCaller, packed: bytes = b"") -> None:
        """Answer `caller`; `packed` are the sessions if they are known."""
        self.runtime, self._caller, self._packed = runtime, caller, packed
        self.folder = _find_folder(runtime)
        self.roots = None if caller.all_projects else _find_roots(self.folder)
        self._dirs = find_agent_dirs(runtime)
        self.index_path = index_path(runtime, self._dirs)
        client = caller.client.lower()
        self._agent = next((_AGENTS[part] for part in _AGENTS if part in client), "")
        self._redactors: dict[str, Redactor] = {}
        self._read: set[str] = set()

    @functools.cached_property
    def sessions(self) -> dict[str, ScopedSession]:
        """The sessions in the scope by id, the newest first."""
        if self._packed:
            return {one.session: one for one in self._index_state[1]}
        found = self._query_index(lambda database: list(self._iter_sessions(database)))
        own = {project for project in {one.project for one in found} if self._is_inside(project)}
        newest = sorted(found, key=lambda one: (-one.last_ms, one.session))
        return {one.session: one for one in newest if one.project in own}

    def pack_sessions(self) -> bytes:
        """Return the sessions as bytes, which the server keeps between two updates of the index."""
        packed = (self._read_inode(), list(self.sessions.values()))
        return zlib.compress(msgspec.msgpack.encode(packed), 1)

    @property
    def is_index_replaced(self) -> bool:
        """Whether the index was deleted or built again since the sessions were packed."""
        return bool(self._packed) and self._index_state[0] != self._read_inode()

    @functools.cached_property
    def _index_state(self) -> tuple[int, list[ScopedSession]]:
        return _decode_sessions(zlib.decompress(self._packed))

    def _read_inode(self) -> int:
        with suppress(OSError):
            return os.stat(self.index_path).st_ino  # noqa: PTH116 - a text
        return 0

    @functools.cached_property
    def running(self) -> RunningSession:
        """The session that asks: the one the client names, else the last one written here."""
        variable = _SESSION_VARIABLES.get(self._agent, "")
        named = self._caller.session or self.runtime.environ.get(variable, "")
        if named:
            return RunningSession(named, is_certain=True)
        since_ns = (self.runtime.clock.now_ms() - ACTIVE_MS) * 1_000_000
        own = [one for one in self.sessions.values() if self._agent in {"", one.agent}]
        written = [(max(file.changed_ns for file in one.files), one.session) for one in own]
        changed_ns, session = max(written, default=(0, ""))
        return RunningSession(session if changed_ns > since_ns else "")

    @property
    def is_unwritten(self) -> bool:
        """Whether the client names a running session of which there is no record."""
        return self.running.is_certain and self.running.session not in self.sessions

    @functools.cached_property
    def archive(self) -> Archive:
        """The sessions of the scope, for the readers of whole sessions."""
        files = tuple(file for one in self.sessions.values() for file in one.files)
        return Archive(self._dirs, self.runtime.data_dir, self.index_path, FileListing(files))

    def find_session(self, prefix: str) -> ScopedSession:
        """Return the session in the scope whose id begins with `prefix`."""
        begin = check_id(prefix)
        found = [name for name in self.sessions if name.startswith(begin)]
        if begin in found or len(found) == 1:
            return self.sessions[begin if begin in found else found[0]]
        if found:
            some = ", ".join(found[:5])
            raise Invalid(f"{len(found)} sessions begin with {begin}", hint=f"one of: {some}")
        raise NotFound(f"no session here begins with {begin}", hint="call search or sessions first")

    def search_records(
        self, match: str, sessions: Iterable[ScopedSession], limits: fulltext.MatchLimits
    ) -> tuple[list[fulltext.RecordMatch], int, bool]:
        """Return the newest matches, how many files match, and whether that is all."""
        numbers = [number for one in sessions for number in one.numbers]
        return self._query_index(
            lambda database: fulltext.search_files(database, match, numbers, limits)
        )

    def find_naming(self, file: str, sessions: Collection[ScopedSession]) -> set[str]:
        """Return those of `sessions` that name a file in a tool call."""
        quoted = file.replace('"', " ").strip("/ ")
        if not any(letter.isalnum() for letter in quoted):
            raise Invalid("not the name of a file", hint="give a path such as src/shop.py")
        limits = fulltext.MatchLimits(len(sessions), 1, examined=200_000)
        matches, _, _ = self.search_records(f'(file : "{quoted}")', sessions, limits)
        return {match.session for match in matches}

    def read_digests(self, sessions: Iterable[str]) -> list[UsageDigest]:
        """Return the usage of `sessions` as the last update of the index found it."""
        return load_digests(self.index_path, sessions)

    def read_costs(self, sessions: Iterable[str]) -> dict[str, Cost]:
        """Return the cost of each session, the same as `flightlog session usage` reports."""
        unknown = dict.fromkeys(sessions, Cost(None, CostSource.UNKNOWN))
        return unknown | {one.session: total_row([one]).cost for one in self.read_digests(unknown)}

    def read_summaries(self, sessions: Sequence[ScopedSession]) -> list[SessionSummary]:
        """Return the summaries of `sessions`; unchanged ones come from the index."""
        with closing(SessionValueCache("summary", SessionSummary, Path(self.index_path))) as cache:
            make = self.archive.summarize_session
            return [cache.get_or_compute(one.session, one.files, make) for one in sessions]

    @property
    def redactor(self) -> Redactor:
        """The redactor of the current project."""
        return self._find_redactor(str(self.folder))

    def redact_texts(self, texts: Sequence[tuple[ScopedSession, str]]) -> list[Redacted[str]]:
        """Return texts of sessions redacted; those of one project are searched together."""
        done: dict[int, Redacted[str]] = {}
        for project in {found.project for found, _ in texts}:
            own = [number for number, (found, _) in enumerate(texts) if found.project == project]
            redactors = [self.redactor_of(texts[number][0]) for number in own]  # one and the same
            joined = redactors[0].redact_text("\0".join(texts[number][1] for number in own))
            parts = joined.value.text.split("\0")
            # A text that does not become stable is replaced by one tag.
            parts = parts if len(parts) == len(own) else parts[:1] * len(own)
            for number, part in zip(own, parts, strict=True):
                done[number] = joined.map(partial(_take_part, part))
        return [done[number] for number in range(len(texts))]

    def redactor_of(self, found: ScopedSession) -> Redactor:
        """Return a redactor that knows the secrets of the session's project and of all its text."""
        redactor = self._find_redactor(found.project)
        if found.session not in self._read:
            self._read.add(found.session)
            count = self.archive.count_session_secrets
            if self._secret_counts.get_or_compute(found.session, found.files, count):
                lines = (line for file in found.files for line in raw_lines(file.path, 0))
                JsonRedactor(redactor).collect_values(lines)
        return redactor

    @functools.cached_property
    def _secret_counts(self) -> SessionValueCache[dict[str, int]]:
        return SessionValueCache("secrets", dict[str, int], Path(self.index_path))

    def _find_redactor(self, project: str) -> Redactor:
        if project not in self._redactors:
            self._redactors[project] = make_redactor(self.runtime, Path(project))
        return self._redactors[project]

    def _query_index(self, run: Callable[[sqlite3.Connection], T]) -> T:
        with closing(Index(self.index_path, FILES, RECORDS, FULLTEXT)) as index:
            rows = index.query(run)
            if index.database.execute("PRAGMA database_list").fetchone()[2]:
                return rows
        # It is in memory, and empty: "nothing matches" would be wrong.
        raise Unavailable(f"cannot open the index: {self.index_path}", hint="flightlog doctor")

    def _iter_sessions(self, database: sqlite3.Connection) -> Iterator[ScopedSession]:
        rows = fulltext.iter_scoped_files(database, self.roots)
        for name, files in groupby(rows, key=lambda row: row.session):
            yield self._make_session(name, list(files))

    def _make_session(self, name: str, rows: Sequence[fulltext.ScopedFile]) -> ScopedSession:
        agent = self._agent_of(rows[0].path)
        files = [
            SessionFile(
                row.path, name, row.size, row.changed_ns, row.subagent, row.device, row.inode, agent
            )
            for row in rows
        ]
        last_ms = max(row.last_ms or row.changed_ns // 1_000_000 for row in rows)
        numbers = tuple(row.number for row in rows)
        return ScopedSession(name, agent, rows[0].project, last_ms, tuple(files), numbers)

    def _agent_of(self, path: str) -> str:
        """Return the agent that wrote a file, which the index does not store."""
        copies = f"{self.runtime.data_dir}/sessions/"
        if path.startswith(copies):
            return path[len(copies) :].partition("/")[0]
        dirs = ((name, root) for name, roots in self._dirs.items() for root in roots)
        return next((name for name, root in dirs if path.startswith(f"{root}/")), DEFAULT_AGENT)

    def _is_inside(self, project: str) -> bool:
        """Return whether a directory is in the project itself, not in a project below it."""
        if self.roots is None:
            return True
        top = find_project(Path(project))
        return str(top) in self.roots or str(top.resolve()) in self.roots


def _take_part(part: str, _whole: Clean) -> str:
    return part


def _find_folder(runtime: Runtime) -> Path:
    """Return the directory of the session that started the server.

    Copilot CLI starts a plugin's server in the plugin's directory; PWD is then still its own.
    """
    folder = Path(runtime.environ.get(PROJECT_DIR) or runtime.cwd)
    plugin = runtime.environ.get(PLUGIN_ROOT)
    if plugin and folder.resolve().is_relative_to(Path(plugin).resolve()):
        folder = Path(runtime.environ.get("PWD", "/"))
    return folder


def _find_roots(folder: Path) -> list[str]:
    top = find_project(folder)
    trees = list_worktrees(top) if (top / ".git").exists() else [top.resolve()]
    return list(dict.fromkeys([str(top), *map(str, trees)]))
