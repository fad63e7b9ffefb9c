"""Wiring of live: which agents' directories there are here, the clock, and what a person set."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from flightlog.app import home, local_zone, now_ms, open_archive
from flightlog.app.config import in_force
from flightlog.app.paths import claude_config_dirs
from flightlog.archive import Archive
from flightlog.live.gather import Effort, Live, Where, gather
from flightlog.model.errors import FlightlogError


def places() -> list[Where]:
    """Every configuration directory here, as live sees it."""
    return [_where(path) for path in claude_config_dirs(os.environ)]


def gather_here(*, secrets: bool = True) -> list[Live]:
    """Look at all running sessions of this machine."""
    archive = open_archive()
    try:
        return [gather(place, archive, Effort(secrets=secrets, durable=False)) for place in places() if _is_used(place)]
    finally:
        archive.books.close()


def gather_after(archive: Archive, only: str) -> tuple[str, ...]:
    """Look after a settle of `only` one session, or of all; what goes wrong is told, and stops nothing."""
    wanted = [Path(file.path) for file in archive.recordings[only].files] if only in archive.recordings else []
    notes = []
    for place in places():
        if _is_used(place) and (not only or any(path.is_relative_to(place.config_dir) for path in wanted)):
            try:
                gather(place, archive, Effort(only=only, durable=False))
            except FlightlogError as error:
                notes.append(error.message)
    return tuple(notes)


def folders() -> Sequence[Path]:
    """Where the pages are."""
    return [place.folder for place in places()]


def _is_used(place: Where) -> bool:
    """A directory no agent ever wrote to gets no pages of ours."""
    return (place.config_dir / "projects").is_dir() and os.access(place.config_dir, os.W_OK)


def _where(config_dir: Path) -> Where:
    template = str(in_force()["statusline.template"].value)
    return Where(config_dir, Path(home()), now_ms(), local_zone(), lambda: str(uuid.uuid4()), template)
