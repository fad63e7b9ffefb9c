"""Finding sessions: `session-001` names the one directory with that number, here or in the archive.

Imports little: `status` waits for it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from flightlog.model.errors import Invalid, NotFound

ROOT = "ralph-loop-sessions"
ARCHIVE = "archive"
JOURNAL = "journal.jsonl"
_NAMED = re.compile(r"session-(\d{3,})(?:-[a-z0-9-]*)?")


def iter_session_dirs(root: Path) -> Iterator[Path]:
    """Every session's directory by number, archived ones included."""
    found = [path for folder in (root, root / ARCHIVE) if folder.is_dir() for path in folder.iterdir()]
    named = [path for path in found if _NAMED.fullmatch(path.name) and path.is_dir()]
    yield from sorted(named, key=lambda path: (session_number(path), path.name))


def session_number(path: Path) -> int:
    """The number in a session's name; 0 when there is none."""
    found = _NAMED.fullmatch(path.name)
    return int(found[1]) if found else 0


def session_id(path: Path) -> str:
    """A session's id: its name without the slug, or its whole name where a person chose another."""
    return f"session-{session_number(path):03}" if session_number(path) else path.name


def find_session_dir(root: Path, written: str) -> Path:
    """Find the session named by its number, its name, or the path of its directory."""
    if "/" in written:
        path = Path(written)
        if not path.is_dir():
            raise NotFound(f"no such directory: {written}", hint="flightlog loop status")
        return path
    known = list(iter_session_dirs(root))
    exact = [path for path in known if path.name == written]
    if _NAMED.fullmatch(written):
        wanted = int(_NAMED.fullmatch(written)[1])  # type: ignore[index]
        exact = exact or [path for path in known if session_number(path) == wanted and _is_short_name(written)]
    if len(exact) == 1:
        return exact[0]
    if len(exact) > 1:
        names = ", ".join(path.name for path in exact)
        raise Invalid(f"two directories have the number of {written}", hint=f"name one of them: {names}")
    names = ", ".join(path.name for path in known[-5:]) or "there are none yet"
    raise NotFound(f"no session is called {written!r} below {root.name}", hint=f"one of: {names}")


def _is_short_name(written: str) -> bool:
    return re.fullmatch(r"session-\d+", written) is not None
