"""A run's directory: its configuration, journal, state and planned sessions.

Which tree and conversation a session starts with depends on the session mode:

    isolated   a new conversation, in the work tree that the previous session left
    chained    the conversation and the tree of the previous session
    forked     the conversation and the tree of session 1
    fork_from  the conversation and the tree of any earlier session, in every mode

Replicates (`count`) start from the same point; later sessions follow the first replicate.
Replicates can be added when the run is over: no session follows them, and they leave the work
directory alone.

Its files: `docs/reference/run-directory.md`; in a replay, `.source/` has data copied from its source.
All paths are relative to the run's directory, so a run can be moved.
"""

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from flightlog.lab import config
from flightlog.lab.config import RunConfig, SessionConfig
from flightlog.lab.events import RunEvent
from flightlog.lab.state import RunState, add_event, fold_run
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.privacy.tiers import layout_of, render_gitignore
from flightlog.store import files
from flightlog.store.directories import create_dir
from flightlog.store.files import replace_file
from flightlog.store.journal import Journal

JOURNAL = ".journal.jsonl"
CONFIG = "config.yaml"
SHADOW = ".shadow_git"
ATTEMPTS = ".attempts"
LOCK = ".lock"
SOURCE = ".source"


class PlannedSession(Struct, frozen=True):
    """One session to run; `parent_session` has the conversation, `tree_session` the files."""

    session_dir: str
    session_index: int
    replicate: int
    replicate_count: int
    parent_session: str = ""
    tree_session: str = ""
    is_added: bool = False

    @property
    def required_sessions(self) -> frozenset[str]:
        return frozenset({self.parent_session, self.tree_session} - {""})


def plan_sessions(
    config: RunConfig, added: Mapping[int, int] | None = None
) -> tuple[PlannedSession, ...]:
    """Return every session of a run in order; `added` counts more replicates by session index."""
    counts = added or {}
    return tuple(
        replicate
        for session in config.sessions
        for replicate in _plan_replicates(config, session, counts.get(session.session_index, 0))
    )


def ready_sessions(
    planned: Collection[PlannedSession], done: Collection[str], left: Collection[str]
) -> list[PlannedSession]:
    """Return the sessions among `left` whose required sessions are all done."""
    waiting = [session for session in planned if session.session_dir in left]
    return [session for session in waiting if session.required_sessions <= set(done)]


def session_dir_name(index: int, replicate: int = 0) -> str:
    """Return the name of a session's directory; replicate 0 means it has no replicates."""
    return f"session_{index:02d}" + (f"_r{replicate:02d}" if replicate else "")


def final_session(planned: Collection[PlannedSession]) -> PlannedSession:
    """Return the session whose tree is the result: the first replicate of the last session."""
    last = max(session.session_index for session in planned)
    return next(session for session in planned if session.session_index == last)


def _plan_replicates(
    config: RunConfig, session: SessionConfig, added: int
) -> Iterator[PlannedSession]:
    previous = session.session_index - 1
    fork_from = session.fork_from or (1 if config.session_mode == "forked" and previous else None)
    chained_to = previous if config.session_mode == "chained" else 0
    parent = _first_dir_name(config, fork_from or chained_to)
    tree_of = _first_dir_name(config, fork_from or previous)
    count, index = session.count + added, session.session_index
    for number in range(1, count + 1):
        # A session that was run once keeps its name when replicates are added: it is the first.
        replicate = number if session.count > 1 or number > 1 else 0
        place = (session_dir_name(index, replicate), index, replicate, count, parent, tree_of)
        yield PlannedSession(*place, is_added=number > session.count)


def _first_dir_name(config: RunConfig, index: int) -> str:
    """Return the directory of the session that others follow; "" for session 0."""
    if not index:
        return ""
    return session_dir_name(index, int(config.sessions[index - 1].count > 1))


class RunStore:
    """A run's directory with its journal and the state folded from it."""

    def __init__(self, path: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        """Open the run at `path`; `now` and `new_id` stamp the events appended later."""
        self.path = path
        self.config, self.config_digest = read_config(path)
        self._journal: Journal[RunEvent] = Journal(path / JOURNAL, RunEvent, now=now, new_id=new_id)
        self._lock = threading.Lock()
        self.state: RunState = (
            fold_run(self._journal.read_records()) if (path / JOURNAL).exists() else RunState()
        )
        process = self.state.process
        # A run whose journal lost its beginning names no process.
        is_lost = self.state.start is None
        self.state.is_abandoned = not files.is_running(process) if process else is_lost

    @property
    def name(self) -> str:
        """The run's name: the name of its directory, also after a rename."""
        return self.path.name

    @property
    def shadow_dir(self) -> Path:
        return self.path / SHADOW

    @property
    def scratch_dir(self) -> Path:
        """Files of a running process that are not part of the run: copies, agent configuration."""
        return self.path.with_name(f".work-{self.path.name}")

    def planned_sessions(self) -> tuple[PlannedSession, ...]:
        return plan_sessions(self.config, self.state.added_replicates)

    def ended_sessions(self) -> list[PlannedSession]:
        attempts = (
            (planned, self.state.last_attempt(planned.session_dir))
            for planned in self.planned_sessions()
        )
        return [planned for planned, last in attempts if last is not None and last.end is not None]

    @property
    def final_tree(self) -> str:
        """The snapshot that the last session left, else the baseline; "" without either."""
        ended = self.ended_sessions()
        last = self.state.last_attempt(final_session(ended).session_dir) if ended else None
        if last is not None and last.end is not None:
            return last.end.tree
        return self.state.baseline.tree if self.state.baseline else ""

    def reload(self) -> None:
        """Fold the journal again, with what other processes appended."""
        with self._lock:
            self.state = fold_run(self._journal.read_records())

    def append(self, event: RunEvent, *, durable: bool = False) -> None:
        """Append an event to the journal and apply it to the state."""
        with self._lock:
            add_event(self.state, self._journal.append(event, durable=durable))


def create_run(
    path: Path,
    text: str,
    *,
    now: Callable[[], str],
    new_id: Callable[[], str],
    remember: Callable[[str], None],
) -> RunStore:
    """Create a run's directory with its configuration `text`; raise Conflict if the run exists.

    `remember` gets the digest of the configuration, which identifies the run as the person's own.
    """
    # A process that died before it wrote the configuration leaves nothing, or a temporary file.
    if not create_dir(path) and not all(fnmatch(file.name, ".*.tmp") for file in path.iterdir()):
        hint = f"choose another --run-name, or continue it: flightlog lab run --resume {path.name}"
        raise Conflict(f"a run of this name exists: {path}", hint=hint)
    # Runs hold private text, so git ignores them unless a person decides otherwise.
    data = render_gitignore(layout_of("lab"), root="").encode()
    files.create_file(path.parent / ".gitignore", data)
    # The id makes the digest unique to this run: consent for one must not cover a copy.
    frozen = f"# run {new_id()}\n{text}".encode()
    remember(_hash_config(frozen))
    replace_file(path / CONFIG, frozen)
    return RunStore(path, now=now, new_id=new_id)


def read_config(path: Path) -> tuple[RunConfig, str]:
    """Return a run's configuration and the digest of its bytes."""
    try:
        data = (path / CONFIG).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no such run: {path}", hint="flightlog lab list") from None
    return config.parse_run_config(data.decode("utf-8")), _hash_config(data)


def _hash_config(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def find_run(runs_dir: Path, name: str) -> Path:
    """Find a run by its path, its name, or a unique prefix of its name."""
    path = Path(name)
    if (path / CONFIG).is_file():
        return path.resolve()
    if (runs_dir / name / CONFIG).is_file() and "/" not in name:
        return files.ensure_contained(runs_dir, runs_dir / name).resolve()
    matches = [path for path in list_run_paths(runs_dir) if path.name.startswith(name)]
    if len(matches) > 1:
        hint = f"use a longer prefix: {', '.join(path.name for path in matches[:5])}"
        raise Invalid(f"several runs start with {name[:60]!r}", hint=hint)
    if not matches or not name:
        raise NotFound(f"no such run: {name[:60]!r} in {runs_dir}", hint="flightlog lab list")
    return files.ensure_contained(runs_dir, matches[0])


def find_planned_session(run: RunStore, session: int, replicate: int) -> PlannedSession:
    replicates = [planned for planned in run.planned_sessions() if planned.session_index == session]
    if not replicates:
        hint = f"it has sessions 1 to {len(run.config.sessions)}"
        raise NotFound(f"{run.name} has no session {session}", hint=hint)
    if not replicate or (replicate == 1 and len(replicates) > 1):
        return replicates[0]
    match = next((planned for planned in replicates if planned.replicate == replicate), None)
    if match is None:
        hint = f"it has {len(replicates)}" if len(replicates) > 1 else "it has no replicates"
        raise NotFound(f"session {session} of {run.name} has no replicate {replicate}", hint=hint)
    return match


def list_run_paths(runs_dir: Path) -> list[Path]:
    if not runs_dir.is_dir():
        return []
    top = runs_dir.resolve()
    visible = [path for path in top.iterdir() if path.name[:1] != "."]
    paths = [path.resolve() for path in visible if (path / CONFIG).is_file()]
    return sorted(path for path in paths if path.is_relative_to(top))  # no symlinks out
