"""RetroStore: runtime directory, journal, redactor.

The only impure part of retro besides the analyst. Time, ids and the redactor are given. Everything
that lies here for others to read is a page of `layout`; drafts, artifacts and logs are files of their own.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flightlog.model.errors import UNREADABLE, Incident, Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.privacy import redactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import key_path, make_redactor, personal_names
from flightlog.retro import events
from flightlog.retro.issues import board, triage
from flightlog.retro.issues.board import Board
from flightlog.retro.layout import guard_pages
from flightlog.retro.state import Preferences, RetroAnalysis, decode_analysis
from flightlog.store import files, output_files
from flightlog.store.files import ensure_contained
from flightlog.store.journal import Journal, JournalRecord
from flightlog.store.locks import exclusive_lock

ROOT = ".chat-retro-runtime"
ANALYSIS = "state/analysis.json"
DIGESTS = "state/digests.jsonl"
_OWNER = re.compile(rb'"project":"/(?:home|Users)/([^/"\\]+)')


class RetroStore:
    """A runtime directory that is open."""

    def __init__(
        self,
        root: Path,
        redactor: Redactor,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        own_names: Iterable[str] = (),
    ) -> None:
        """Open the runtime directory `root`; nothing is written before something is to be kept.

        `own_names` are the person's: git identity, user and host.
        """
        self._own_names = frozenset(own_names)
        self.root = root
        self.redactor = redactor
        self.now_ms = now_ms
        self.journal: Journal[events.Event] = Journal(
            root / "state" / "journal.jsonl", events.Event, now=lambda: format_utc_timestamp(now_ms()), new_id=new_id
        )

    def prepare_directory(self) -> None:
        """Make the directory as the source document draws it, with its ignore file."""
        output_files.write_output_files(self.root, guard_pages(self.redactor), durable=False)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the directory alone while something is changed."""
        return exclusive_lock(self.root / "state" / ".lock", "another chat-retro")

    def iter_events(self) -> Iterator[events.Event]:
        """Yield every event, oldest first."""
        return (item.event for item in self.journal.read_records() if isinstance(item, JournalRecord))

    def load_board(self) -> board.Board:
        """Tell the issues."""
        return board.fold_board(self.iter_events())

    def collect_names(self) -> frozenset[str]:
        """Return known names: the person's own, those in exports, and owners of home directories."""
        said = {name for event in self.iter_events() if isinstance(event, events.ExportRead) for name in event.names}
        with suppress(FileNotFoundError):
            owners = _OWNER.findall((self.root / DIGESTS).read_bytes())
            said |= {owner.decode("utf-8", "replace") for owner in owners}
        return self._own_names | said

    def store_draft(self, one: triage.DraftFile) -> Path:
        """Put a draft where the workflow finds it."""
        path = files.resolve_inside(self.root, f"issue-drafts/{triage.file_name(one)}")
        body = msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n"
        files.create_file(path, body)
        return path

    def load_analysis(self) -> RetroAnalysis | None:
        """Read the last analysis; one that cannot be read is kept under a numbered name and reported."""
        path = self.root / ANALYSIS
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode_analysis(data)
        except UNREADABLE:
            self._quarantine_file(path, len(data))
            return None

    def _quarantine_file(self, path: Path, size: int) -> None:
        number = 1
        while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
            number += 1
        files.rename_file(path, aside.name)
        incident = Incident("corrupt state", self.now_ms(), "retro", (aside.name,), {"bytes": size})
        self.journal.append(events.IncidentNoticed(incident), durable=True)
        self.store_draft(triage.draft_from_incident(incident))


def read_preferences(happened: Iterator[events.Event]) -> Preferences:
    """Tell what a person asked for; the last word on each counts."""
    said: dict[str, tuple[str, ...]] = {}
    for event in happened:
        if isinstance(event, events.PreferenceSet):
            said[event.name] = event.values
    drawn = said.get("preferred_viz", ())
    return Preferences(said.get("focus_areas", ()), said.get("excluded_topics", ()), drawn[0] if drawn else None)


def format_utc_timestamp(at_ms: int) -> str:
    """Write a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    return redactor.load_key(key_path(runtime))
