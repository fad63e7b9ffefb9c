"""Where sessions are: `ralph-loop-sessions/session-NNN-slug/`, with what stands beside them.

A session's directory appears whole, under a number nobody else has.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

from flightlog.loop.layout.templates import build_templates, readme_text
from flightlog.loop.run.where import ARCHIVE, ROOT, iter_session_dirs, session_number
from flightlog.model.errors import Conflict
from flightlog.model.pages import OutputFile, Tier
from flightlog.privacy.tiers import layout_of, render_gitignore
from flightlog.store.directories import publish_dir, remove_abandoned_dirs, staging_dir
from flightlog.store.files import create_file, ensure_dir
from flightlog.store.files import remove_stale_temps as sweep_files
from flightlog.store.locks import exclusive_lock
from flightlog.store.pages import write_output_files

SUMMARIES = "summaries"
_SLUG_CHARS = 60


def prepare_root(root: Path) -> None:
    """Make the place and what stands beside the sessions; what a person changed there stays."""
    for folder in (root, root / ARCHIVE, root / SUMMARIES):
        ensure_dir(folder)
    for name, body in {"README.md": readme_text().encode(), ".gitignore": _gitignore_bytes()}.items():
        if not (root / name).exists():
            create_file(root / name, body)
    missing = {name: body for name, body in build_templates().items() if not (root / "templates" / name).exists()}
    write_output_files(root, [OutputFile(f"templates/{name}", Tier.PRIVATE, body) for name, body in missing.items()])
    remove_abandoned_dirs(root)
    for folder in (root, root / "templates"):
        remove_partial_files(folder)


def prepare_surroundings(directory: Path) -> None:
    """Make what belongs beside a session if it is among the project's; elsewhere all stays in its own directory."""
    if directory.parent.name == ROOT and not (directory.parent / ".git").exists():
        prepare_root(directory.parent)
    else:
        create_file(directory / ".gitignore", _gitignore_bytes())


def _gitignore_bytes() -> bytes:
    return render_gitignore(layout_of("loop"), root="").encode()


def remove_partial_files(folder: Path) -> None:
    """Remove half-written files of processes that were killed."""
    sweep_files(folder, 0.0, math.inf)


def create_session_dir(root: Path, name: str, fill: Callable[[Path, str], None]) -> Path:
    """Make the next session: `fill` puts everything into it before anybody can see it."""
    prepare_root(root)
    with exclusive_lock(root / ".numbering"):
        next_one = max((session_number(path) for path in iter_session_dirs(root)), default=0) + 1
        own = f"session-{next_one:03}-{slugify_name(name)}"
        with staging_dir(root, own) as making:
            fill(making, f"session-{next_one:03}")
            if not publish_dir(making, root / own):
                raise Conflict(f"somebody else made {own} just now", hint="run the command again")
    return root / own


def slugify_name(name: str) -> str:
    """A name as part of a directory's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_CHARS].strip("-")
    return plain or "session"
