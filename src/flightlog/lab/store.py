"""RunStore: directory, journal, planned sessions.

isolated   a new conversation each time, in the work tree the one before left
    chained    each goes on with the conversation and the tree of the one before
    forked     each goes on from session 1, conversation and tree, whatever its siblings did
    fork_from  the same from any earlier session, in every mode

Replicates (`count`) start from the same place; where something follows, it follows the first. More
may be added when the run is over: nothing follows those, and they leave the work directory alone.
Pure: it knows no run, only what one is to be.

runs/<run>/
      config.yaml run_meta.json full_diff.patch state_changelog.jsonl analysis.md .shadow_git/
      session_01/ session_02_r01/ …          what each session left
      .journal.jsonl .lock .attempts/         our own: what happened, who holds it, attempts run again
      .source/                                in a replay: what it took from the run it goes back to

Everything is found from the run's own directory, which can be moved.
"""

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.lab import config
from flightlog.lab.config import RunConfig, SessionConfig, dump_run_config
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
    """One session to run: its directory's name, and the sessions it continues in words and in files."""

    name: str
    index: int
    replicate: int
    count: int
    parent: str = ""
    tree_of: str = ""
    added: bool = False

    @property
    def required_sessions(self) -> frozenset[str]:
        """The sessions that must be finished first."""
        return frozenset({self.parent, self.tree_of} - {""})


def plan_sessions(config: RunConfig, added: Mapping[int, int] | None = None) -> tuple[PlannedSession, ...]:
    """List every session of a run, in order; `added` are more replicates, by the session's index."""
    more = added or {}
    return tuple(
        replicate
        for session in config.sessions
        for replicate in _plan_replicates(config, session, more.get(session.session_index, 0))
    )


def ready_sessions(
    planned: Collection[PlannedSession], done: Collection[str], left: Collection[str]
) -> list[PlannedSession]:
    """The sessions among `left` that wait for nothing any more."""
    return [session for session in planned if session.name in left and session.required_sessions <= set(done)]


def session_dir_name(index: int, replicate: int = 0) -> str:
    """Name a session's directory; replicate 0 is a session that has none."""
    return f"session_{index:02d}" + (f"_r{replicate:02d}" if replicate else "")


def final_session(planned: Collection[PlannedSession]) -> PlannedSession:
    """The session whose tree is the run's: the last one, its first replicate."""
    last = max(session.index for session in planned)
    return next(session for session in planned if session.index == last)


def _plan_replicates(config: RunConfig, session: SessionConfig, added: int) -> Iterator[PlannedSession]:
    before = session.session_index - 1
    forked = session.fork_from or (1 if config.session_mode == "forked" and before else None)
    chained = before if config.session_mode == "chained" else 0
    parent = _first_dir_name(config, forked or chained)
    tree_of = _first_dir_name(config, forked or before)
    for number in range(1, session.count + 1):
        replicate = number if session.count > 1 else 0
        name = session_dir_name(session.session_index, replicate)
        yield PlannedSession(name, session.session_index, replicate, session.count + added, parent, tree_of)
    last = session.count if session.count > 1 else 0
    for number in range(last + 1, last + added + 1):
        name = session_dir_name(session.session_index, number)
        yield PlannedSession(name, session.session_index, number, session.count + added, parent, tree_of, added=True)


def _first_dir_name(config: RunConfig, index: int) -> str:
    """The directory of a session that others follow; nothing for session 0."""
    return session_dir_name(index, 1 if config.sessions[index - 1].count > 1 else 0) if index else ""


class RunStore:
    """A run's directory, its journal and its state, kept together."""

    def __init__(self, path: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        """Open the run at `path`; `now` and `new_id` are for what is written from here on."""
        self.path = path
        self.config, self.config_digest = read_config(path)
        self._journal: Journal[RunEvent] = Journal(path / JOURNAL, RunEvent, now=now, new_id=new_id)
        self._lock = threading.Lock()
        self.state: RunState = fold_run(self._journal.read_records()) if (path / JOURNAL).exists() else RunState()

    @property
    def name(self) -> str:
        """The run's name: that of its directory, also after it was renamed."""
        return self.path.name

    @property
    def shadow_dir(self) -> Path:
        """The shadow repository of the work tree."""
        return self.path / SHADOW

    @property
    def scratch_dir(self) -> Path:
        """What belongs to a running process and not to the run: private trees, the agent's own files."""
        return self.path.with_name(f".work-{self.path.name}")

    def planned_sessions(self) -> tuple[PlannedSession, ...]:
        """Every session the run is to have."""
        return plan_sessions(self.config, self.state.added)

    def ended_sessions(self) -> list[PlannedSession]:
        """Return the sessions whose last attempt ended."""
        attempts = ((planned, self.state.last_attempt(planned.name)) for planned in self.planned_sessions())
        return [planned for planned, last in attempts if last is not None and last.ended is not None]

    @property
    def final_tree(self) -> str:
        """The snapshot that the last session left, else the baseline; "" without either."""
        ended = self.ended_sessions()
        last = self.state.last_attempt(final_session(ended).name) if ended else None
        if last is not None and last.ended is not None:
            return last.ended.tree
        return self.state.baseline.tree if self.state.baseline else ""

    def reload(self) -> None:
        """Know also what other processes wrote down meanwhile."""
        with self._lock:
            self.state = fold_run(self._journal.read_records())

    def append(self, event: RunEvent, *, durable: bool = False) -> None:
        """Write down what happened, and know it from now on."""
        with self._lock:
            add_event(self.state, self._journal.append(event, durable=durable))


def create_run(
    path: Path,
    config: RunConfig,
    *,
    now: Callable[[], str],
    new_id: Callable[[], str],
    remember: Callable[[str], None],
) -> RunStore:
    """Make a run's directory with its frozen configuration; one that is there is an error.

    `remember` gets the digest of the configuration, by which the run is later known to be the person's own.
    """
    if not create_dir(path) and any(each.name[:1] != "." or each.suffix != ".tmp" for each in path.iterdir()):
        # One that died before its configuration was there left an empty directory, or half a file of ours.
        hint = f"choose another --run-name, or take it up again: flightlog lab run --resume {path.name}"
        raise Conflict(f"there is a run of this name: {path}", hint=hint)
    # Runs hold what was said and done: git sees none of it, unless somebody decides otherwise.
    files.create_file(path.parent / ".gitignore", render_gitignore(layout_of("lab"), root="").encode())
    # With an id of the run's own in it, the digest names this run and no other of the same configuration.
    text = f"# run {new_id()}\n{dump_run_config(config)}".encode()
    remember(_hash_config(text))
    replace_file(path / CONFIG, text)
    return RunStore(path, now=now, new_id=new_id)


def read_config(path: Path) -> tuple[RunConfig, str]:
    """Read a run's frozen configuration, and the digest of the bytes it was read from."""
    try:
        data = (path / CONFIG).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no such run: {path}", hint="flightlog lab list") from None
    return config.parse_run_config(data.decode("utf-8")), _hash_config(data)


def _hash_config(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def find_run(runs_dir: Path, written: str) -> Path:
    """Find a run by its path, its name, or the beginning of its name."""
    given = Path(written)
    if (given / CONFIG).is_file():
        return given.resolve()
    if (runs_dir / written / CONFIG).is_file() and "/" not in written:
        return files.ensure_contained(runs_dir, runs_dir / written).resolve()
    matches = [path for path in list_run_paths(runs_dir) if path.name.startswith(written)]
    if len(matches) > 1:
        raise Invalid(
            f"several runs begin with {written[:60]!r}",
            hint=f"write more of it: {', '.join(path.name for path in matches[:5])}",
        )
    if not matches or not written:
        raise NotFound(f"no such run: {written[:60]!r} in {runs_dir}", hint="flightlog lab list")
    return files.ensure_contained(runs_dir, matches[0])


def list_run_paths(runs_dir: Path) -> list[Path]:
    """List the runs of a directory, by name."""
    if not runs_dir.is_dir():
        return []
    top = runs_dir.resolve()
    found = [path.resolve() for path in top.iterdir() if path.name[:1] != "." and (path / CONFIG).is_file()]
    return sorted(path for path in found if path.is_relative_to(top))  # a link out of here is no run of this project
