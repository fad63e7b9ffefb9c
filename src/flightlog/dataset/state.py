"""State of a clone: extraction progress, and whether the clone collects rows.

Stored below `.git/flightlog/dataset/`. All of it may be lost: then sessions are read whole again,
and existing rows are not written twice.
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from flightlog.dataset.extract.turns import EarlierTurns
from flightlog.dataset.rows import SubagentUsage
from flightlog.model.addresses import check_id
from flightlog.model.errors import UNREADABLE
from flightlog.model.runtime import Runtime
from flightlog.privacy.trust import GRANTS, environment_grants, open_trust
from flightlog.store import files
from flightlog.store.git.repository import find_common_dir

MARK = "flightlog/dataset/collecting"  # this clone collects, even on branches without rows
SWITCH = "ML_COLLECTION_ENABLED"
VERSION = 1  # of `SessionProgress`; another version is read as no progress
T = TypeVar("T")


def is_off(runtime: Runtime) -> bool:
    """Return whether the environment disables writing rows. Forgetting rows still works."""
    return runtime.environ.get(SWITCH, "").strip().lower() in {"0", "false", "no", "off"}


def report_if_off(runtime: Runtime) -> bool:
    """Return whether collection is off, and notify the person if it is."""
    if is_off(runtime):
        text = f"collection is off ({SWITCH}={runtime.environ[SWITCH]}): no row was written"
        runtime.notify(text)
    return is_off(runtime)


def find_collecting_root(folder: Path) -> Path | None:
    """Return the top of the work tree around `folder` if it collects rows."""
    for directory in (folder, *folder.parents):
        if (directory / ".git").exists():
            mark = find_common_dir(directory) / MARK
            # Not pathlib: a mark that this user may not read is none, and no error.
            collects = (directory / ".git-ml" / "tracked").is_dir() or os.path.exists(mark)  # noqa: PTH110
            return directory if collects else None
    return None


def row_sources(
    runtime: Runtime, top: Path, *, own_hook: bool = False
) -> dict[str, frozenset[str]]:
    """Return what each source of consent allows to write without a person's command.

    `trust` on this machine, `environment` (FLIGHTLOG_TRUST), and `hook`: the repository's own,
    which an agent runs only after its own trust dialog.
    """
    sources = {
        "trust": frozenset(GRANTS)
        if open_trust(runtime).consent_for(top).allows_rows
        else frozenset(),
        "environment": environment_grants(runtime.environ),
        "hook": frozenset({"rows"}) if own_hook else frozenset(),
    }
    return {name: allowed for name, allowed in sources.items() if allowed}


class SubagentProgress(Struct, frozen=True):
    """A subagent as last extracted."""

    size: int
    started_ms: int
    agent: SubagentUsage
    tools: list[str] = []


class SearchProgress(Struct, frozen=True):
    """How far a file was searched for private values, and offsets of lines that hold some.

    Offsets instead of values: nothing private is stored a second time.
    """

    end: int = 0
    offsets: list[int] = []


class SessionProgress(Struct, frozen=True):
    """What was extracted of a session: start of its last turns, earlier totals, row hashes."""

    path: str = ""
    start: int = 0
    uuid: str = ""
    file_stamp: str = ""
    has_words: bool = False
    before: EarlierTurns = EarlierTurns()
    row_digests: dict[str, str] = {}
    subagents: dict[str, SubagentProgress] = {}
    shards: int = 0
    rev: int = 0
    searches: dict[str, SearchProgress] = {}
    orchestration_bytes: int = 0  # of the last row of subagents that was written
    version: int = VERSION


class CloneState(Struct, frozen=True):
    """What was extracted of the repository itself, and what was pushed."""

    head: str = ""
    shards: int = 0
    pushed_ms: int = 0
    pushed_rev: int = 0
    pushed_commit: str = ""


def recall_session(folder: Path, session: str) -> SessionProgress:
    """Return the progress of a session; empty if damaged or of another version."""
    progress = _read_file(folder / "sessions" / f"{check_id(session)}.json", SessionProgress)
    return progress if progress is not None and progress.version == VERSION else SessionProgress()


def remember_session(folder: Path, session: str, progress: SessionProgress) -> None:
    """Save the progress of a session; a power cut may lose it."""
    path = folder / "sessions" / f"{check_id(session)}.json"
    files.replace_file(path, msgspec.json.encode(progress), durable=False)


def writer_name(folder: Path, new: str = "") -> str:
    """Return this clone's name; if it has none yet, set it to `new`. Concurrent callers agree."""
    path = folder / "writer"
    if new and not path.exists():
        files.create_file(path, check_id(new).encode() + b"\n")
    try:
        return check_id(path.read_text().strip())
    except OSError:
        return "unknown"


def recall_clone(folder: Path) -> CloneState:
    """Return the state of the clone."""
    return _read_file(folder / "clone.json", CloneState) or CloneState()


def remember_clone(folder: Path, clone: CloneState) -> None:
    """Save the state of the clone."""
    files.replace_file(folder / "clone.json", msgspec.json.encode(clone), durable=False)


def _read_file(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNREADABLE):
        return None
