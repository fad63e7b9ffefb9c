"""Find, create and open session directories.

Imports little, because `loop status` must be fast. The checkpoint is a cache: it is used only if
the journal has the event it names at the offset it names. A new directory is published complete,
under a unique number.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import json

from flightlog.loop import events, layout
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.layout import build_templates, readme_text
from flightlog.loop.plan.schema import Plan, select_phase
from flightlog.loop.state import LoopState
from flightlog.model.errors import UNREADABLE, Conflict, Damage, Invalid, NotFound
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import parse_utc_time
from flightlog.privacy.tiers import layout_of, render_gitignore
from flightlog.store.directories import publish_dir, remove_abandoned_dirs, staging_dir
from flightlog.store.files import create_file, ensure_dir, remove_stale_temps
from flightlog.store.jsonl import TORN_TAIL, JsonlLine, append_line, read_lines, read_together
from flightlog.store.locks import exclusive_lock, holder_note
from flightlog.store.output_files import write_output_files

if TYPE_CHECKING:
    from flightlog.privacy.redactor import Redactor

ROOT = "ralph-loop-sessions"
ARCHIVE = "archive"
JOURNAL = "journal.jsonl"
_NAME = re.compile(r"session-(\d{3,})(-[a-z0-9-]*)?")
CHECKPOINT, PLAN, LEASE = "checkpoint.json", "plan.yaml", "runner.lock"
ACTIVITY = "activity.json"
STATE_VERSION = 2  # raised when the fold changes, so that an older checkpoint is not believed
ELSEWHERE = "loop-sessions.jsonl"  # in the data directory
SUMMARIES = "summaries"
_SLUG_CHARS = 60  # leaves room for the number and temporary suffixes in a file name


def iter_session_dirs(root: Path) -> Iterator[Path]:
    """Yield every session directory by number, archived ones included."""
    folders = [folder for folder in (root, root / ARCHIVE) if folder.is_dir()]
    paths = [path for folder in folders for path in folder.iterdir()]
    sessions = [path for path in paths if _NAME.fullmatch(path.name) and path.is_dir()]
    yield from sorted(sessions, key=lambda path: (session_number(path), path.name))


def session_number(path: Path) -> int:
    """Return the number in a session's name; 0 if there is none."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def session_id(path: Path) -> str:
    """Return a session's id: its name without the slug, or a name that a person chose."""
    return f"session-{session_number(path):03}" if session_number(path) else path.name


def session_slug(path: Path) -> str:
    """Return a session's name without its number, as in `run --session NAME`."""
    match = _NAME.fullmatch(path.name)
    return (match[2] or "")[1:] if match else ""


def find_session_dir(root: Path, name: str) -> Path:
    """Find a session by its number (`session-001`), its name, or the path of its directory."""
    if "/" in name:
        if not Path(name).is_dir():
            raise NotFound(f"no such directory: {name}", hint="flightlog loop status")
        return Path(name)
    sessions = list(iter_session_dirs(root))
    matches = [path for path in sessions if path.name == name]
    short = _NAME.fullmatch(re.sub("[{}]", "", name))  # the document writes session-{001}
    if short and not short[2]:
        matches = matches or [path for path in sessions if session_number(path) == int(short[1])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(path.name for path in matches)
        hint = f"name one of them: {names}"
        raise Invalid(f"two directories have the number of {name}", hint=hint)
    names = ", ".join(path.name for path in sessions[-5:])
    hint = f"one of: {names}" if names else "flightlog loop run --plan plan.yaml"
    raise NotFound(f"no session is called {name!r} below {root.name}", hint=hint)


def sessions_elsewhere(data_dir: str, project: Path) -> list[Path]:
    """Return the sessions of a project in directories that a person named."""
    found: dict[Path, None] = {}
    path = Path(data_dir) / ELSEWHERE
    for line in read_lines(path) if path.is_file() else ():
        with suppress(*UNREADABLE):
            entry = json.decode(getattr(line, "data", b""), type=_SessionElsewhere)
            directory = Path(entry.directory)
            if entry.project == str(project.resolve()) and (directory / JOURNAL).is_file():
                found[directory] = None
    return list(found)


def record_elsewhere(data_dir: str, project: Path, directory: Path) -> None:
    """Remember a session outside the project's directory, so that commands find it by its name."""
    if directory.resolve() not in sessions_elsewhere(data_dir, project):
        entry = _SessionElsewhere(str(project.resolve()), str(directory.resolve()))
        append_line(Path(data_dir) / ELSEWHERE, json.encode(entry))


class _SessionElsewhere(msgspec.Struct):
    project: str
    directory: str


class LoopEvent(NamedTuple):
    """One event, with its number and time."""

    seq: int
    timestamp: float
    event: events.Event


class LoopSession(NamedTuple):
    """A session's directory, current state and runner ("" if none is running).

    `damaged_lines` of the journal cannot be read; what they recorded is missing in the state.
    """

    directory: Path
    state: LoopState
    runner: str
    damaged_lines: int = 0

    def read_plan(self, redactor: "Redactor") -> Plan:
        """Return the session's plan, redacted."""
        # The YAML parser is slow to load, and `loop status` does not need it.
        from flightlog.loop.plan.load import parse_plan, redact_plan  # noqa: PLC0415

        plan = parse_plan((self.directory / PLAN).read_bytes(), PLAN)
        return redact_plan(select_phase(plan, self.state.phase), redactor)

    def build_metadata(self, redactor: "Redactor") -> dict[str, Any]:
        """Return the content of `session-metadata.yaml`."""
        return layout.build_metadata(self.state, self.read_plan(redactor), self.state.last_at)


class Checkpoint(msgspec.Struct):
    """A cache of the state up to the event `last` at `offset`, and the damaged lines before it."""

    offset: int
    last: str
    state: LoopState
    damaged_lines: int = 0
    version: int = 0


class LoopActivity(msgspec.Struct):
    """What the runner of an epoch does now, written again and again while it does it."""

    epoch: int
    task: str = ""
    attempt: int = 0
    since: float = 0.0
    updated_at: float = 0.0
    tool: str = ""


def read_activity(directory: Path, state: LoopState) -> tuple[LoopActivity | None, float]:
    """Return what the last runner was seen doing, and when it was seen; a cache, like the checkpoint."""
    path = directory / ACTIVITY
    try:
        activity = json.decode(path.read_bytes(), type=LoopActivity)
        seen_at = path.stat().st_mtime
    except (OSError, *UNREADABLE):
        return None, 0.0
    return (activity, seen_at) if activity.epoch == state.epoch else (None, 0.0)


class _JournalHead(msgspec.Struct):
    id: str
    seq: int
    ts: str


def open_loop_session(directory: Path) -> LoopSession:
    """Return a session, reading only the events after its last checkpoint."""
    path = directory / JOURNAL
    if not path.is_file():
        if (directory / "final-report.md").is_file():  # retention keeps the report
            hint = f"read its report: {directory / 'final-report.md'}"
            raise NotFound(f"the raw log of {directory.name} was deleted after a year", hint=hint)
        raise NotFound(
            f"no session has begun in {directory.name}", hint="flightlog loop run --plan FILE"
        )
    state, offset, damaged = _load_checkpoint(directory, path)
    decoder = json.Decoder(events.Event)
    skip = offset is not None  # the checkpoint includes the event at its offset
    for line in read_lines(path, offset or 0):
        damaged += isinstance(line, Damage) and line.reason != TORN_TAIL
        event = None if skip or isinstance(line, Damage) else _decode_line(line, decoder)
        skip = False
        if event is not None:
            apply_event(state, event.timestamp, event.event)
    return LoopSession(directory, state, holder_note(directory / LEASE), damaged)


def iter_events(directory: Path) -> Iterator[LoopEvent]:
    """Yield every event of a session, in order."""
    decoder = json.Decoder(events.Event)
    for line in read_together(directory / JOURNAL):
        if not isinstance(line, Damage) and (event := _decode_line(line, decoder)) is not None:
            yield event


def _decode_line(line: JsonlLine, decoder: "json.Decoder[events.Event]") -> LoopEvent | None:
    """Decode an event; None if a later version of flightlog wrote it."""
    try:
        head = json.decode(line.data, type=_JournalHead)
        return LoopEvent(head.seq, parse_utc_time(head.ts), decoder.decode(line.data))
    except (*UNREADABLE, ValueError):
        return None


def _load_checkpoint(directory: Path, path: Path) -> tuple[LoopState, int | None, int]:
    try:
        checkpoint = json.decode((directory / CHECKPOINT).read_bytes(), type=Checkpoint)
        with path.open("rb") as file:
            file.seek(checkpoint.offset)
            is_same = json.decode(file.readline(), type=_JournalHead).id == checkpoint.last
            if is_same and checkpoint.version == STATE_VERSION:
                return checkpoint.state, checkpoint.offset, checkpoint.damaged_lines
    except (OSError, *UNREADABLE):
        pass
    return LoopState(), None, 0


def prepare_root(root: Path) -> None:
    """Create the directory of the sessions, its README and templates; existing files stay."""
    for folder in (root, root / ARCHIVE, root / SUMMARIES):
        ensure_dir(folder)
    for name, data in (("README.md", readme_text().encode()), (".gitignore", _gitignore_bytes())):
        if not (root / name).exists():
            create_file(root / name, data)
    templates = {f"templates/{name}": body for name, body in build_templates().items()}
    absent = {name: body for name, body in templates.items() if not (root / name).exists()}
    missing = [OutputFile(name, Tier.PRIVATE, body) for name, body in absent.items()]
    write_output_files(root, missing)
    remove_abandoned_dirs(root)
    for folder in (root, root / "templates"):
        remove_partial_files(folder)


def prepare_surroundings(directory: Path) -> None:
    """Prepare the parent directory of a session if it is the project's own directory for loops.

    Anywhere else nothing is written outside the session's directory.
    """
    if directory.parent.name == ROOT and not (directory.parent / ".git").exists():
        prepare_root(directory.parent)
    else:
        create_file(directory / ".gitignore", _gitignore_bytes())


def _gitignore_bytes() -> bytes:
    return render_gitignore(layout_of("loop"), root="").encode()


def remove_partial_files(folder: Path) -> None:
    """Remove half-written files of processes that were killed."""
    remove_stale_temps(folder, 0.0, math.inf)


def create_session_dir(root: Path, title: str, fill: Callable[[Path, str], None]) -> Path:
    """Create the next session; `fill` writes its files before the directory is published."""
    prepare_root(root)
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:_SLUG_CHARS].strip("-")
    with exclusive_lock(root / ".numbering"):
        number = max((session_number(path) for path in iter_session_dirs(root)), default=0) + 1
        name = f"session-{number:03}-{slug or 'session'}"
        with staging_dir(root, name) as staging:
            fill(staging, f"session-{number:03}")
            if not publish_dir(staging, root / name):
                raise Conflict(f"another process just created {name}", hint="run the command again")
    return root / name
