"""Snapshots of the work trees of ordinary sessions, for directories that a person chose to track.

    <home>/tracked                                       tracked directories, one per line
    <home>/sessions/<agent>/<session>/.shadow_git        the trees
    <home>/sessions/<agent>/<session>/snapshots.jsonl    each tree with its time and tool call

The hook starts `python -m flightlog.app.snapshot` after each tool call in a tracked directory.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.agents import agent_names
from flightlog.model.addresses import check_id
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.store.directories import ensure_writable
from flightlog.store.files import replace_file
from flightlog.store.git.repository import find_outer_git_dir
from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SnapshotDirs
from flightlog.store.jsonl import append_line, read_together
from flightlog.store.recordings.adoption import session_dir

LIST = "tracked"
SHADOW = ".shadow_git"
SNAPSHOTS = "snapshots.jsonl"


class TrackedSnapshot(Struct, frozen=True):
    """A saved tree, its root directory, and the tool call after which it was saved, if any."""

    tree: str
    at_ms: int
    root: str
    tool_call_id: str = ""
    subagent: str = ""


def list_tracked(runtime: Runtime) -> list[str]:
    """Return the tracked directories."""
    try:
        text = _list_path(runtime).read_text("utf-8", "surrogateescape")
        return [line for line in text.split("\n") if line]
    except FileNotFoundError:
        return []


def track_directory(runtime: Runtime, folder: Path, *, off: bool = False) -> list[str]:
    """Add a directory to the tracked ones, or remove it with `off`; return all of them."""
    root = folder.resolve()
    ensure_writable(Path(runtime.data_dir))
    if not off:
        if not root.is_dir():
            hint = "name the directory the agent works in"
            raise NotFound(f"no such directory: {folder}", hint=hint)
        if Path(runtime.home).resolve().is_relative_to(root):
            hint = "name a directory below it"
            raise Invalid(f"cannot track a home directory: {root}", hint=hint)
        if "\n" in str(root):
            raise Invalid("cannot track a directory with a newline in its name", hint="rename it")
    tracked = [path for path in list_tracked(runtime) if path != str(root)]
    tracked += [] if off else [str(root)]
    lines = "".join(f"{path}\n" for path in tracked)
    replace_file(_list_path(runtime), lines.encode("utf-8", "surrogateescape"))
    return tracked


def save_tree(
    runtime: Runtime, root: Path, session: str, call_id: str, subagent: str
) -> TrackedSnapshot:
    """Save the tree below `root` as a snapshot of a session."""
    ensure_writable(Path(runtime.data_dir))
    folder = _session_folder(runtime, check_id(session))
    outer = find_outer_git_dir(root)
    dirs = SnapshotDirs(folder / SHADOW, root, Path(runtime.home), runtime.program_path, outer)
    trees = open_trees(dirs, now=runtime.clock.now_s)
    tree = trees.save_snapshot(f"_hook_{time.time_ns()}")
    trees.keep_tables()
    snapshot = TrackedSnapshot(tree.name, runtime.clock.now_ms(), str(root), call_id, subagent)
    append_line(folder / SNAPSHOTS, msgspec.json.encode(snapshot))
    return snapshot


def iter_snapshots(runtime: Runtime, session: str) -> Iterator[TrackedSnapshot]:
    """Yield the snapshots of a session, in order."""
    for line in read_together(_session_folder(runtime, session) / SNAPSHOTS):
        if hasattr(line, "data"):
            yield msgspec.json.decode(line.data, type=TrackedSnapshot)


def shadow_git_dir(runtime: Runtime, session: str) -> Path:
    """Return the directory that has the trees of a session."""
    return _session_folder(runtime, session) / SHADOW


def _session_folder(runtime: Runtime, session: str) -> Path:
    """Return our directory of a session: its agent's, whose hook made it before the first snapshot."""
    folders = [session_dir(runtime.data_dir, agent, session) for agent in agent_names()]
    present = (folder for folder in folders if folder.is_dir())
    return next(present, session_dir(runtime.data_dir, DEFAULT_AGENT, session))


def _list_path(runtime: Runtime) -> Path:
    return Path(runtime.data_dir) / LIST
