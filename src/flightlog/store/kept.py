"""Which sessions we have copies of, by their names alone.

Every report asks this, so nothing here loads what adopts or unpacks.
"""

import os
import re
from typing import TYPE_CHECKING

from flightlog.model.ids import check_id, is_safe

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

REWRITTEN = ".rewritten"
DAMAGED = ".damaged"
ADOPTED = ".adopted"
TRANSCRIPT = "transcript.jsonl"  # the main thread, in our copies of sessions and in runs
_THREAD = r"(transcript|agent-[A-Za-z0-9._-]+?)(?:\.g\d+)?\.jsonl(?:\.from-\d+(?:\.zst)?)?"


def session_dir(home: "PathLike[str] | str", agent: str, session: str) -> "Path":
    """Name the directory of a session; the ids come from outside and are checked."""
    from pathlib import Path  # noqa: PLC0415 - only where there is one

    return Path(home) / "sessions" / check_id(agent) / check_id(session)


def list_recorded_sessions(home: "PathLike[str] | str", agent: str) -> tuple[set[str], set[str]]:
    """Name the sessions we have copies of, readable or not, and those of them whose sources were rewritten."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(root), _list_safe_names(f"{root}/{REWRITTEN}")


def list_damaged_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Name the sessions whose copies were found damaged and are still there."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{DAMAGED}") & _list_safe_names(root)


def lost_sessions(home: "PathLike[str] | str", agent: str) -> set[str]:
    """Name the sessions that were copied once and have no directory any more."""
    root = f"{os.fspath(home)}/sessions/{check_id(agent)}"
    return _list_safe_names(f"{root}/{ADOPTED}") - _list_safe_names(root)


def list_recorded_transcripts(home: "PathLike[str] | str", agent: str, session: str) -> dict[str, list[int]]:
    """Name the transcripts kept for a session, with their generations; raise `OSError` where it cannot be read."""
    from flightlog.store.recordings import list_generations  # noqa: PLC0415 - as above

    root = session_dir(home, agent, session)
    found: dict[str, list[int]] = {}
    for folder in (root, root / "subagents"):
        for name in {match[1] for each in _list_dir_names(folder) if (match := re.fullmatch(_THREAD, each))}:
            path = folder / f"{name}.jsonl"
            found[str(path.relative_to(root))] = list_generations(path)
    return found


def _list_safe_names(root: str) -> set[str]:
    try:
        return set(filter(is_safe, os.listdir(root)))  # noqa: PTH208 - no report waits for pathlib
    except OSError:
        return set()


def _list_dir_names(folder: "Path") -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except FileNotFoundError:
        return []
