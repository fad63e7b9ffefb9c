"""Which sessions we have copies of, by their names alone.

Every report asks this, so nothing here loads what adopts or unpacks.
"""

import os
import re
from pathlib import Path

from flightlog.model.ids import checked, is_safe
from flightlog.store.recordings import generations

REWRITTEN = ".rewritten"
_TRANSCRIPT = re.compile(r"(transcript|agent-[A-Za-z0-9._-]+?)(?:\.g\d+)?\.jsonl(?:\.from-\d+(?:\.zst)?)?")


def session_dir(home: Path, agent: str, session: str) -> Path:
    """Name the directory of a session; the ids come from outside and are checked."""
    return home / "sessions" / checked(agent) / checked(session)


def kept_sessions(home: Path, agent: str) -> tuple[set[str], set[str]]:
    """Name the sessions we have copies of, and those of them whose sources were rewritten."""
    root = home / "sessions" / checked(agent)
    return _folders(root), _folders(root / REWRITTEN)


def kept_files(home: Path, agent: str, session: str) -> dict[str, list[int]]:
    """Name the transcripts kept for a session, with their generations."""
    root = session_dir(home, agent, session)
    found: dict[str, list[int]] = {}
    for folder in (root, root / "subagents"):
        for name in {match[1] for match in map(_TRANSCRIPT.fullmatch, _names(folder)) if match}:
            path = folder / f"{name}.jsonl"
            found[str(path.relative_to(root))] = generations(path)
    return found


def _folders(root: Path) -> set[str]:
    try:
        with os.scandir(root) as entries:
            return {entry.name for entry in entries if is_safe(entry.name) and entry.is_dir()}
    except OSError:
        return set()


def _names(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []
