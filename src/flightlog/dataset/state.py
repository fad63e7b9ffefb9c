"""What a clone has extracted; is it collecting.

Kept below `.git/flightlog/dataset/`. All of it can be lost: then a session is told whole again, and rows that
are there already are not written twice.
"""

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from flightlog.dataset.extract.turns import EarlierTurns
from flightlog.dataset.rows import SubagentUsage
from flightlog.model.addresses import check_id
from flightlog.model.errors import UNREADABLE
from flightlog.model.runtime import Runtime
from flightlog.store import files
from flightlog.store.git.repository import find_common_dir

MARK = "flightlog/dataset/collecting"  # this clone collects, also on branches that have no rows yet
SWITCH = "ML_COLLECTION_ENABLED"
VERSION = 1
T = TypeVar("T")


def is_off(runtime: Runtime) -> bool:
    """Return whether the environment stops everything that writes rows. Forgetting rows still works."""
    return runtime.environ.get(SWITCH, "").strip().lower() in {"0", "false", "no", "off"}


def report_if_off(runtime: Runtime) -> bool:
    """Return whether collection is off, and say so on stderr if it is."""
    if is_off(runtime):
        runtime.notify(f"collection is off ({SWITCH}={runtime.environ[SWITCH]}): no row was written")
    return is_off(runtime)


def find_collecting_root(folder: Path) -> Path | None:
    """Return the top of the work tree that holds `folder` if it collects rows."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            on = (each / ".git-ml" / "tracked").is_dir() or (find_common_dir(each) / MARK).exists()
            return each if on else None
    return None


def row_sources(runtime: Runtime, top: Path, *, own_hook: bool = False) -> dict[str, frozenset[str]]:
    """Return each consent that holds for a repository's training rows, and what it allows of rows, words and push.

    `trust` on this machine, `environment` (FLIGHTLOG_TRUST), `hook`: the repository's own, which an agent
    runs only after its own trust dialog. Without any, nothing is written but at a person's own command.
    """
    from flightlog.privacy.trust import GRANTS, environment_grants, open_trust  # noqa: PLC0415

    held = {
        "trust": frozenset(GRANTS) if open_trust(runtime).consent_for(top).rows else frozenset(),
        "environment": environment_grants(runtime.environ),
        "hook": frozenset({"rows"}) if own_hook else frozenset(),
    }
    return {name: allowed for name, allowed in held.items() if allowed}


class SubagentProgress(Struct, frozen=True):
    """A subagent as it was last told."""

    size: int
    began_ms: int
    agent: SubagentUsage
    tools: list[str] = []


class SearchProgress(Struct, frozen=True):
    """How far a file was searched for private values, and where the lines begin that hold some.

    Places instead of values: nothing private is stored a second time.
    """

    end: int = 0
    places: list[int] = []


class SessionProgress(Struct, frozen=True):
    """What was captured of a session: where its last turns begin, what came before, what was written."""

    path: str = ""
    start: int = 0
    uuid: str = ""
    stamp: str = ""
    words: bool = False
    before: EarlierTurns = EarlierTurns()
    written: dict[str, str] = {}
    lanes: dict[str, SubagentProgress] = {}
    shards: int = 0
    rev: int = 0
    searched: dict[str, SearchProgress] = {}
    v: int = VERSION


class CloneState(Struct, frozen=True):
    """What was captured of the repository itself, and what is safe elsewhere."""

    head: str = ""
    shards: int = 0
    pushed_ms: int = 0
    pushed_rev: int = 0
    pushed: str = ""


def recall_session(folder: Path, session: str) -> SessionProgress:
    """Return what is remembered of a session; nothing when that is damaged or of another version."""
    found = _read_file(folder / "sessions" / f"{check_id(session)}.json", SessionProgress)
    return found if found is not None and found.v == VERSION else SessionProgress()


def remember_session(folder: Path, session: str, memory: SessionProgress) -> None:
    """Keep what was captured of a session; a power cut may lose it."""
    path = folder / "sessions" / f"{check_id(session)}.json"
    files.replace_file(path, msgspec.json.encode(memory), durable=False)


def writer_name(folder: Path, new: str = "") -> str:
    """Return this clone's own name, `new` if it has none yet; two who ask at once get the same."""
    path = folder / "writer"
    if new and not path.exists():
        files.create_file(path, check_id(new).encode() + b"\n")
    try:
        return check_id(path.read_text().strip())
    except OSError:
        return "somebody"


def recall_clone(folder: Path) -> CloneState:
    """Return what is remembered of the repository."""
    return _read_file(folder / "clone.json", CloneState) or CloneState()


def remember_clone(folder: Path, clone: CloneState) -> None:
    """Keep what is known of the repository."""
    files.replace_file(folder / "clone.json", msgspec.json.encode(clone), durable=False)


def _read_file(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNREADABLE):
        return None
