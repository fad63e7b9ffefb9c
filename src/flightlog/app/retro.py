"""Wiring of retro: where the runtime directory is, the person's redactor, key, clock and names."""

from pathlib import Path

from flightlog.app.privacy import key_path, make_redactor, personal_names
from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.privacy import key as keys
from flightlog.privacy.redact import Redactor
from flightlog.retro.issues.board import Board
from flightlog.retro.room import ANALYSIS, ROOT, RetroStore
from flightlog.retro.state import RetroAnalysis, decode_analysis
from flightlog.store.files import ensure_contained


def open_retro_store(runtime: Runtime, folder: Path | None = None) -> RetroStore:
    """Open the runtime directory of the project at or above `folder`, and make it where there is none."""
    room = find_retro_store(runtime, folder)
    room.prepare_directory()
    return room


def find_retro_store(runtime: Runtime, folder: Path | None = None) -> RetroStore:
    """Return the room of the project at or above `folder`, whether it is there or not; nothing is made."""
    project = project_of(folder or Path(runtime.cwd))
    own = ensure_contained(project, project / ROOT)
    return RetroStore(
        own,
        make_redactor(runtime, project, {str(project): "."}),
        runtime.clock.now_ms,
        runtime.new_id,
        personal_names(project, Path(runtime.home)),
    )


def read_analysis_and_board(runtime: Runtime, folder: Path | None = None) -> tuple[RetroAnalysis | None, Board]:
    """Return the last analysis and the issues without writing anything; an analysis that cannot be read is none."""
    project = project_of(folder or Path(runtime.cwd))
    room = RetroStore(project / ROOT, Redactor(b""), runtime.clock.now_ms, lambda: "")
    try:
        analysis = decode_analysis((room.root / ANALYSIS).read_bytes())
    except (OSError, *UNREADABLE, Misconfigured):
        analysis = None
    return analysis, room.load_board()


def project_of(folder: Path) -> Path:
    """Return the nearest directory upwards that has a runtime directory or a repository, else `folder`."""
    for each in (folder, *folder.parents):
        if (each / ROOT).is_dir() or (each / ".git").exists():
            return each
    return folder


def load_tag_key(runtime: Runtime) -> bytes:
    """Return the person's key, for pseudonyms."""
    return keys.load_key(key_path(runtime))
