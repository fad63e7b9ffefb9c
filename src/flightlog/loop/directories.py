"""Find, create, open and retire session directories.

Imports little: `status` waits for it.

Nothing is written. The checkpoint is a cache: it counts only if the event it names stands
where it says.

A session's directory appears whole, under a number nobody else has.
"""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import json

from flightlog.loop import events, layout
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.layout import build_templates, readme_text
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import LoopState
from flightlog.model.errors import UNREADABLE, Conflict, Damage, Invalid, NotFound
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import parse_utc_time
from flightlog.privacy.tiers import layout_of, render_gitignore
from flightlog.store.directories import publish_dir, remove_abandoned_dirs, staging_dir
from flightlog.store.files import create_file, ensure_dir
from flightlog.store.files import remove_stale_temps as sweep_files
from flightlog.store.jsonl import JsonlLine, read_lines, read_together
from flightlog.store.locks import exclusive_lock, holder_note
from flightlog.store.output_files import write_output_files

if TYPE_CHECKING:
    from flightlog.privacy.redactor import Redactor

ROOT = "ralph-loop-sessions"
ARCHIVE = "archive"
JOURNAL = "journal.jsonl"
_NAMED = re.compile(r"session-(\d{3,})(?:-[a-z0-9-]*)?")
CHECKPOINT, PLAN, LEASE = "checkpoint.json", "plan.yaml", "runner.lock"
SUMMARIES = "summaries"
_SLUG_CHARS = 60


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


class LoopEvent(NamedTuple):
    """One event, with its number and time."""

    seq: int
    at: float
    event: events.Event


class LoopSession(NamedTuple):
    """A session as it stands."""

    directory: Path
    state: LoopState
    runner: str

    def read_plan(self, redactor: "Redactor") -> Plan:
        """The plan it follows, with clean words; reading it takes a moment."""
        from flightlog.loop.plan.load import parse_plan, redact_plan  # noqa: PLC0415

        return redact_plan(parse_plan((self.directory / PLAN).read_bytes(), PLAN), redactor)

    def build_metadata(self, redactor: "Redactor") -> dict[str, Any]:
        """What `session-metadata.yaml` shows."""
        return layout.build_metadata(self.state, self.read_plan(redactor), self.state.last_at)


class _Checkpoint(msgspec.Struct):
    offset: int
    last: str
    state: LoopState


class _JournalHead(msgspec.Struct):
    id: str
    seq: int
    ts: str


def open_loop_session(directory: Path) -> LoopSession:
    """Say how a session stands, reading no more than what is new since its last checkpoint."""
    path = directory / JOURNAL
    if not path.is_file():
        raise NotFound(f"no session has begun in {directory.name}", hint="flightlog loop run --plan FILE")
    state, offset = _load_checkpoint(directory, path)
    decoder = json.Decoder(events.Event)
    skip = offset is not None
    for item in read_lines(path, offset or 0):
        if skip or isinstance(item, Damage):
            skip = False
            continue
        _apply_line(state, item, decoder)
    return LoopSession(directory, state, holder_note(directory / LEASE))


def iter_events(directory: Path) -> Iterator[LoopEvent]:
    """Every event of a session, in order."""
    heads, decoder = json.Decoder(_JournalHead), json.Decoder(events.Event)
    for item in read_together(directory / JOURNAL):
        if isinstance(item, Damage):
            continue
        try:
            head = heads.decode(item.data)
            yield LoopEvent(head.seq, parse_utc_time(head.ts), decoder.decode(item.data))
        except (*UNREADABLE, ValueError):
            continue  # an event of a later version


def _apply_line(state: LoopState, line: JsonlLine, decoder: "json.Decoder[events.Event]") -> None:
    try:
        head = json.decode(line.data, type=_JournalHead)
        apply_event(state, parse_utc_time(head.ts), decoder.decode(line.data))
    except (*UNREADABLE, ValueError):
        return  # an event of a later version; `logs` counts it


def _load_checkpoint(directory: Path, path: Path) -> tuple[LoopState, int | None]:
    try:
        kept = json.decode((directory / CHECKPOINT).read_bytes(), type=_Checkpoint)
        with path.open("rb") as file:
            file.seek(kept.offset)
            if json.decode(file.readline(), type=_JournalHead).id == kept.last:
                return kept.state, kept.offset
    except (OSError, *UNREADABLE):
        pass
    return LoopState(), None


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
