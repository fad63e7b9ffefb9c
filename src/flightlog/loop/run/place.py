"""Where sessions are: `ralph-loop-sessions/session-NNN-slug/`, with what stands beside them.

A session's directory appears whole, under a number nobody else has.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

from flightlog.loop.layout.templates import readme, templates
from flightlog.loop.run.where import ARCHIVE, ROOT, number, sessions
from flightlog.model.errors import Conflict
from flightlog.model.pages import Page, Tier
from flightlog.privacy.tiers import gitignore, layout
from flightlog.store.directories import appear, aside, sweep
from flightlog.store.files import create, ensure_dir
from flightlog.store.files import sweep as sweep_files
from flightlog.store.locks import lock
from flightlog.store.pages import publish

SUMMARIES = "summaries"
_SLUG_CHARS = 60


def prepare(root: Path) -> None:
    """Make the place and what stands beside the sessions; what a person changed there stays."""
    for folder in (root, root / ARCHIVE, root / SUMMARIES):
        ensure_dir(folder)
    for name, body in {"README.md": readme().encode(), ".gitignore": _ignored()}.items():
        if not (root / name).exists():
            create(root / name, body)
    missing = {name: body for name, body in templates().items() if not (root / "templates" / name).exists()}
    publish(root, [Page(f"templates/{name}", Tier.PRIVATE, body) for name, body in missing.items()])
    sweep(root)
    for folder in (root, root / "templates"):
        tidy(folder)


def prepare_beside(directory: Path) -> None:
    """Make what belongs beside a session if it is among the project's; elsewhere all stays in its own directory."""
    if directory.parent.name == ROOT and not (directory.parent / ".git").exists():
        prepare(directory.parent)
    else:
        create(directory / ".gitignore", _ignored())


def _ignored() -> bytes:
    return gitignore(layout("loop"), root="").encode()


def tidy(folder: Path) -> None:
    """Remove half-written files of processes that were killed."""
    sweep_files(folder, 0.0, math.inf)


def make(root: Path, name: str, fill: Callable[[Path, str], None]) -> Path:
    """Make the next session: `fill` puts everything into it before anybody can see it."""
    prepare(root)
    with lock(root / ".numbering"):
        next_one = max((number(path) for path in sessions(root)), default=0) + 1
        own = f"session-{next_one:03}-{slug(name)}"
        with aside(root, own) as making:
            fill(making, f"session-{next_one:03}")
            if not appear(making, root / own):
                raise Conflict(f"somebody else made {own} just now", hint="run the command again")
    return root / own


def slug(name: str) -> str:
    """A name as part of a directory's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_CHARS].strip("-")
    return plain or "session"
