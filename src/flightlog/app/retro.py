"""Wiring of retro: where the runtime directory is, the person's redactor, key, clock and names."""

from pathlib import Path

from flightlog.app.privacy import key_path, own_names, redactor
from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.privacy import key as keys
from flightlog.privacy.redact import Redactor
from flightlog.retro.issues.board import Board
from flightlog.retro.room import ANALYSIS, ROOT, Room
from flightlog.retro.state import Analysis, decoded
from flightlog.store.files import contained


def open_room(runtime: Runtime, folder: Path | None = None) -> Room:
    """Open the runtime directory of the project at or above `folder`, and make it where there is none."""
    room = find_room(runtime, folder)
    room.prepare()
    return room


def find_room(runtime: Runtime, folder: Path | None = None) -> Room:
    """Return the room of the project at or above `folder`, whether it is there or not; nothing is made."""
    project = project_of(folder or Path(runtime.cwd))
    own = contained(project, project / ROOT)
    return Room(
        own,
        redactor(runtime, project, {str(project): "."}),
        runtime.clock.now_ms,
        runtime.new_id,
        own_names(project, Path(runtime.home)),
    )


def look(runtime: Runtime, folder: Path | None = None) -> tuple[Analysis | None, Board]:
    """Return the last analysis and the issues without writing anything; an analysis that cannot be read is none."""
    project = project_of(folder or Path(runtime.cwd))
    room = Room(project / ROOT, Redactor(b""), runtime.clock.now_ms, lambda: "")
    try:
        analysis = decoded((room.root / ANALYSIS).read_bytes())
    except (OSError, *UNREADABLE, Misconfigured):
        analysis = None
    return analysis, room.board()


def project_of(folder: Path) -> Path:
    """Return the nearest directory upwards that has a runtime directory or a repository, else `folder`."""
    for each in (folder, *folder.parents):
        if (each / ROOT).is_dir() or (each / ".git").exists():
            return each
    return folder


def key(runtime: Runtime) -> bytes:
    """Return the person's key, for pseudonyms."""
    return keys.load(key_path(runtime))
