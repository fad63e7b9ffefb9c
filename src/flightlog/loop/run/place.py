"""Where sessions are: `ralph-loop-sessions/session-NNN-slug/`, with what stands beside them.

A session's directory appears whole, under a number nobody else has. `session-001` names the
one directory with that number, here or in the archive.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from flightlog.loop.layout.templates import readme, templates
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.pages import Page, Tier
from flightlog.privacy.tiers import gitignore, layout
from flightlog.store.directories import appear, aside, sweep
from flightlog.store.files import create, ensure_dir, lock
from flightlog.store.pages import publish

ROOT = "ralph-loop-sessions"
ARCHIVE = "archive"
SUMMARIES = "summaries"
_NAMED = re.compile(r"session-(\d{3,})(?:-[a-z0-9-]*)?")
_SLUG_CHARS = 60


def prepare(root: Path) -> None:
    """Make the place and what stands beside the sessions; what a person changed there stays."""
    for folder in (root, root / ARCHIVE, root / SUMMARIES):
        ensure_dir(folder)
    for name, body in {"README.md": readme(), ".gitignore": gitignore(layout("loop"), root="")}.items():
        if not (root / name).exists():
            create(root / name, body.encode())
    if not (root / "templates").is_dir():
        publish(root, [Page(f"templates/{name}", Tier.PRIVATE, body) for name, body in templates().items()])
    sweep(root)


def sessions(root: Path) -> Iterator[Path]:
    """Every session's directory by number, archived ones included."""
    found = [path for folder in (root, root / ARCHIVE) if folder.is_dir() for path in folder.iterdir()]
    named = [path for path in found if _NAMED.fullmatch(path.name) and path.is_dir()]
    yield from sorted(named, key=lambda path: (number(path), path.name))


def number(path: Path) -> int:
    """The number in a session's name; 0 when there is none."""
    found = _NAMED.fullmatch(path.name)
    return int(found[1]) if found else 0


def session_id(path: Path) -> str:
    """A session's id: its name without the slug, or its whole name where a person chose another."""
    return f"session-{number(path):03}" if number(path) else path.name


def find(root: Path, written: str) -> Path:
    """Find the session named by its number, its name, or the path of its directory."""
    if "/" in written:
        path = Path(written)
        if not path.is_dir():
            raise NotFound(f"no such directory: {written}", hint="flightlog loop status shows the sessions")
        return path
    known = list(sessions(root))
    exact = [path for path in known if path.name == written]
    if _NAMED.fullmatch(written):
        wanted = int(_NAMED.fullmatch(written)[1])  # type: ignore[index]
        exact = exact or [path for path in known if number(path) == wanted and _short(written)]
    if len(exact) == 1:
        return exact[0]
    if len(exact) > 1:
        names = ", ".join(path.name for path in exact)
        raise Invalid(f"two directories have the number of {written}", hint=f"name one of them: {names}")
    names = ", ".join(path.name for path in known[-5:]) or "there are none yet"
    raise NotFound(f"no session is called {written!r} below {root.name}", hint=f"there are: {names}")


def make(root: Path, name: str, fill: Callable[[Path, str], None]) -> Path:
    """Make the next session: `fill` puts everything into it before anybody can see it."""
    prepare(root)
    with lock(root / ".numbering"):
        next_one = max((number(path) for path in sessions(root)), default=0) + 1
        own = f"session-{next_one:03}-{slug(name)}"
        with aside(root, own) as making:
            fill(making, f"session-{next_one:03}")
            if not appear(making, root / own):
                raise Conflict(f"somebody else made {own} just now", hint="run it again")
    return root / own


def slug(name: str) -> str:
    """A name as part of a directory's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_CHARS].strip("-")
    return plain or "session"


def _short(written: str) -> bool:
    return re.fullmatch(r"session-\d+", written) is not None
