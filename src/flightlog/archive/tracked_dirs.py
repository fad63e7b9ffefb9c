"""Files of sessions that nobody runs for an experiment: which directories are tracked, and what was saved of them.

    <home>/tracked                                            directories, one on a line
    <home>/sessions/<agent>/<session>/.shadow_git             the trees
    <home>/sessions/<agent>/<session>/snapshots.jsonl         which tree was saved when, after which tool call

The hook starts `python -m flightlog.app.snapshot` after each tool call in a tracked directory.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.model.addresses import check_id
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.store.directories import ensure_writable
from flightlog.store.files import replace_file
from flightlog.store.git.snapshots import SnapshotDirs, open_trees
from flightlog.store.jsonl import append_line, read_together
from flightlog.store.recordings.adoption import session_dir

LIST = "tracked"
SHADOW = ".shadow_git"
SNAPSHOTS = "snapshots.jsonl"


class TrackedSnapshot(Struct, frozen=True):
    """One tree that was saved: the root it is of, and the tool call it was saved after, if any."""

    tree: str
    at_ms: int
    root: str
    call_id: str = ""
    lane: str = ""


def list_tracked(runtime: Runtime) -> list[str]:
    """List the directories whose sessions have their files saved."""
    try:
        return [line for line in _list_path(runtime).read_text("utf-8", "surrogateescape").split("\n") if line]
    except FileNotFoundError:
        return []


def track_directory(runtime: Runtime, folder: Path, *, off: bool = False) -> list[str]:
    """Put a directory on the list, or take it off; return the list."""
    root = folder.resolve()
    ensure_writable(Path(runtime.data_dir))
    if not off:
        if not root.is_dir():
            raise NotFound(f"no such directory: {folder}", hint="name the directory the agent works in")
        if Path(runtime.home).resolve().is_relative_to(root):
            raise Invalid(f"a home directory is not snapshotted: {root}", hint="name a directory below it")
        if "\n" in str(root):
            raise Invalid("a directory whose name holds a line end cannot be tracked", hint="rename it")
    kept = [each for each in list_tracked(runtime) if each != str(root)]
    listed = kept if off else [*kept, str(root)]
    replace_file(_list_path(runtime), "".join(f"{each}\n" for each in listed).encode("utf-8", "surrogateescape"))
    return listed


def save_tree(runtime: Runtime, root: Path, session: str, call_id: str, lane: str) -> TrackedSnapshot:
    """Save the tree below `root` for a session."""
    ensure_writable(Path(runtime.data_dir))
    folder = session_dir(Path(runtime.data_dir), AGENT_NAME, check_id(session))
    trees = open_trees(
        SnapshotDirs(folder / SHADOW, root, Path(runtime.home), runtime.program_path), now=runtime.clock.now_s
    )
    made = trees.save_snapshot(f"_hook_{time.time_ns()}")
    saved = TrackedSnapshot(made.name, runtime.clock.now_ms(), str(root), call_id, lane)
    append_line(folder / SNAPSHOTS, msgspec.json.encode(saved))
    return saved


def iter_snapshots(runtime: Runtime, session: str) -> Iterator[TrackedSnapshot]:
    """Yield what was saved of a session, in order."""
    path = session_dir(Path(runtime.data_dir), AGENT_NAME, session) / SNAPSHOTS
    for line in read_together(path):
        if hasattr(line, "data"):
            yield msgspec.json.decode(line.data, type=TrackedSnapshot)


def shadow_git_dir(runtime: Runtime, session: str) -> Path:
    """Where the trees of a session are."""
    return session_dir(Path(runtime.data_dir), AGENT_NAME, session) / SHADOW


def _list_path(runtime: Runtime) -> Path:
    return Path(runtime.data_dir) / LIST
