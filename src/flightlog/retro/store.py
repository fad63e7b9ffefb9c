"""RetroStore: runtime directory, journal and redactor.

The only part of retro with side effects besides the analyst. Clock, ids and redactor are passed in.
Output files come from `layout`; drafts, artifacts and logs are written where they are made.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path

import msgspec

from flightlog.agents.recordings import reads_samples
from flightlog.model.errors import UNREADABLE, Incident, Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.model.text import format_utc_ms, make_inert
from flightlog.privacy import redactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import key_path, make_redactor, personal_names
from flightlog.retro import events
from flightlog.retro.issues import board, triage
from flightlog.retro.issues.board import Board
from flightlog.retro.layout import guard_pages
from flightlog.retro.state import Preferences, RetroAnalysis, decode_analysis
from flightlog.store import files, output_files
from flightlog.store.journal import Journal, JournalRecord
from flightlog.store.locks import exclusive_lock

ROOT = ".chat-retro-runtime"
ANALYSIS = "state/analysis.json"
DIGESTS = "state/digests.jsonl"
# owners of home directories, which are names to remove
_OWNER = re.compile(rb'"project":"/(?:home|Users)/([^/"\\]+)')


class RetroStore:
    """An open runtime directory."""

    def __init__(
        self,
        root: Path,
        redactor: Redactor,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        own_names: Iterable[str] = (),
    ) -> None:
        """Open the runtime directory `root` without writing to it.

        `own_names` are the person's: git identity, user and host.
        """
        self._own_names = frozenset(own_names)
        self.root = root
        self.redactor = redactor
        self.now_ms = now_ms
        self.journal: Journal[events.Event] = Journal(
            root / "state" / "journal.jsonl",
            events.Event,
            now=lambda: format_utc_ms(now_ms()),
            new_id=new_id,
        )

    def prepare_directory(self) -> None:
        """Create the directories and git files of the source document."""
        output_files.write_output_files(self.root, guard_pages(self.redactor), durable=False)

    def lock(self) -> AbstractContextManager[None]:
        """Return the exclusive lock of the directory, for changes."""
        return exclusive_lock(self.root / "state" / ".lock", "another chat-retro")

    def iter_events(self) -> Iterator[events.Event]:
        """Yield every event, oldest first."""
        return (
            item.event for item in self.journal.read_records() if isinstance(item, JournalRecord)
        )

    def load_board(self) -> board.Board:
        """Fold the journal into the issue board."""
        return board.fold_board(self.iter_events())

    def collect_names(self) -> frozenset[str]:
        """Return known names: the person's, those in exports, owners of home directories."""
        reads = [event for event in self.iter_events() if isinstance(event, events.ExportRead)]
        names = {name for event in reads for name in event.conversation_names}
        with suppress(FileNotFoundError):
            owners = _OWNER.findall((self.root / DIGESTS).read_bytes())
            names |= {owner.decode("utf-8", "replace") for owner in owners}
        return self._own_names | names

    def clean_text(self, text: str) -> str:
        """Return `text`, whole, with nothing in it that is private or that a terminal acts on."""
        return self.redactor.redact_text(make_inert(text)).value.text

    def name_output(self, kind: str, form: str) -> str:
        """Return the path of a new file in `outputs/`, named by the time."""
        stem = f"outputs/{kind}_{re.sub('[-:]', '', format_utc_ms(self.now_ms())[:19])}"
        # Several runs within a second are several files.
        names = (f"{stem}{f'_{number}' if number > 1 else ''}.{form}" for number in count(1))
        return next(name for name in names if not (self.root / name).exists())

    def store_draft(self, draft: triage.DraftFile) -> Path:
        """Write a draft into `issue-drafts/`."""
        path = files.resolve_inside(self.root, f"issue-drafts/{triage.file_name(draft)}")
        files.create_file(path, msgspec.json.format(msgspec.json.encode(draft), indent=2) + b"\n")
        return path

    def load_analysis(self) -> RetroAnalysis | None:
        """Return the last analysis; quarantine and report one that cannot be read."""
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
        aside, number = path.with_name(f"{path.name}.corrupt"), 0
        while aside.exists():
            number += 1
            aside = path.with_name(f"{path.name}.corrupt-{number}")
        files.rename_file(path, aside.name)
        incident = Incident("corrupt state", self.now_ms(), "retro", (aside.name,), {"bytes": size})
        self.journal.append(events.IncidentNoticed(incident), durable=True)
        self.store_draft(triage.draft_from_incident(incident))


def read_preferences(history: Iterable[events.Event]) -> Preferences:
    """Return the preferences; the last event of each kind wins."""
    values: dict[str, tuple[str, ...]] = {}
    for event in history:
        if isinstance(event, events.PreferenceSet):
            values[event.name] = event.values
    charts = values.get("preferred_viz", ())
    focus_areas = values.get("focus_areas", ())
    excluded_topics = values.get("excluded_topics", ())
    return Preferences(focus_areas, excluded_topics, charts[0] if charts else None)


def open_retro_store(runtime: Runtime) -> RetroStore:
    """Return the store of the current project, and create its directory."""
    store = find_retro_store(runtime)
    store.prepare_directory()
    return store


def find_retro_store(runtime: Runtime, folder: Path | None = None) -> RetroStore:
    """Return the store of the project at or above `folder` without creating anything."""
    project = project_of(runtime, folder)
    root = files.ensure_contained(project, project / ROOT)
    redactor = make_redactor(runtime, project, {str(project): "."})
    names = personal_names(project, Path(runtime.home))
    return RetroStore(root, redactor, runtime.clock.now_ms, runtime.new_id, names)


def read_analysis_and_board(
    runtime: Runtime, folder: Path | None = None
) -> tuple[RetroAnalysis | None, Board]:
    """Return the last analysis, if readable, and the board, without writing."""
    project = project_of(runtime, folder)
    store = RetroStore(project / ROOT, Redactor(b""), runtime.clock.now_ms, lambda: "")
    try:
        analysis = decode_analysis((store.root / ANALYSIS).read_bytes())
    except (OSError, *UNREADABLE, Misconfigured):
        analysis = None
    return analysis, store.load_board()


def project_of(runtime: Runtime, folder: Path | None = None) -> Path:
    """Return the project whose store is used at `folder`, by default the current directory.

    It is the folder itself if it has a store, else its repository, else the folder: outside a
    repository a parent's store belongs to another project. Samples have a store of their own.
    """
    folder = folder or Path(runtime.data_dir if reads_samples(runtime) else runtime.cwd)
    if (folder / ROOT).is_dir():
        return folder
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), folder)


def load_tag_key(runtime: Runtime) -> bytes:
    """Return the person's key for pseudonyms."""
    return redactor.load_key(key_path(runtime))
