"""Looking this machine over: what is there, what is wrong, and the one thing to do about each."""

import enum
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from flightlog.app.collecting import collecting
from flightlog.app.formats import drift, known, read
from flightlog.app.hook_check import hook_findings, is_registered, line_findings
from flightlog.app.hook_events import KEEP_DAYS_DEFAULT, keep_days, project_settings
from flightlog.archive import Archive, Progress
from flightlog.live.file import runtime_state
from flightlog.live.gather import FOLDER
from flightlog.model.errors import Conflict, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.model.text import counted
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.sources.claude_code.discover import AGENT, find_config_dirs
from flightlog.sources.claude_code.kept import recorded, sources_of
from flightlog.sources.git.heads import find_common_dir
from flightlog.sources.git.repository import Repository, ignores
from flightlog.sources.hook_log import list_loss_counts
from flightlog.store.files import quarantine, renamed
from flightlog.store.git.command import GitError
from flightlog.store.index.database import is_sound
from flightlog.store.kept import kept_sessions, lost_sessions
from flightlog.store.locks import find_holder
from flightlog.store.migration import Step, ensure_writable, layout_of, migrate, newest
from flightlog.store.sessions import Fault, read_faults, restore_session, verify_session
from flightlog.usage.prices import PRICES_FROM

YEAR_MS = 365 * DAY_MS
FREE_BYTES_MIN = 500_000_000
FREE_INODES_MIN = 10_000
# Below these a settle after one turn cannot be stored: its transcript, manifest and lock, and the index.
FULL_BYTES = 1_000_000
FULL_INODES = 16
STEPS: tuple[Step, ...] = ()  # the layout of our own directory has not changed since the first


class Level(enum.Enum):
    """How a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"
    DAMAGE = "damage"


class Verified(Struct, frozen=True):
    """What reading the archive back found."""

    sessions: int
    busy: tuple[str, ...]
    faults: tuple[Fault, ...]


class Finding(Struct, frozen=True):
    """One thing looked at; `next` is the command or setting that helps."""

    level: Level
    about: str
    text: str
    next: str = ""


def examine(runtime: Runtime, progress: Progress | None = None, steps: Sequence[Step] = STEPS) -> list[Finding]:
    """Look at everything."""
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    place = Path(runtime.data_dir)
    archive = Archive([str(path) for path in dirs], str(place))
    return [
        *(finding for path in dirs for finding in _config_dir(path)),
        *(finding for path in dirs if (path / "projects").is_dir() for finding in _hooks(runtime, path, place)),
        *(finding for path in dirs for finding in _live(runtime, path)),
        _home(place),
        _layout(place, newest(steps)),
        *_open_to_others(place),
        _disk(place),
        *(finding for root in (place, *(path / FOLDER for path in dirs)) for finding in _stuck_locks(root)),
        *_known_faults(place),
        *_dataset(runtime),
        *_recordings(runtime, archive, progress),
        _prices(runtime),
    ]


def formats(runtime: Runtime) -> list[Finding]:
    """Hold what the agent writes here against the formats on file, field by field."""
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    files = [file.path for file in recorded([str(path) for path in dirs], runtime.data_dir).files]
    found = drift((read(Path(path)) for path in files), known())
    news = [*found.added_types, *map(".".join, found.added_fields)]
    gone = [*found.dropped_types, *map(".".join, found.dropped_fields)] if files else []
    told = [Finding(Level.NOTE, "format", f"new: {name}", "flightlog session list") for name in news]
    told += [Finding(Level.NOTE, "format", f"not met here: {name}") for name in gone]
    return told or [Finding(Level.OK, "format", f"nothing that is not on file in {counted(len(files), 'transcript')}")]


def mend(runtime: Runtime, steps: Sequence[Step] = STEPS) -> list[Finding]:
    """Put right what can be put right without taking anything away; doing it twice is doing it once."""
    place = Path(runtime.data_dir)
    done: list[Finding] = []
    ensure_writable(place, newest(steps))
    for path in sorted(_ours(place)):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink() and mode & 0o077:
            path.chmod(mode & 0o700)
            done.append(Finding(Level.OK, "mended", f"closed to other users: {path}"))
    for lost in list_loss_counts(place, Path(tempfile.gettempdir())):
        path = renamed(lost, f"acknowledged-{lost.name}-{runtime.clock.now_ms()}")
        done.append(Finding(Level.OK, "mended", f"lost hook events acknowledged, their number is in {path}"))
    if place.is_dir() and layout_of(place) < newest(steps):
        taken = migrate(place, steps)
        done += [Finding(Level.OK, "mended", f"{step.why}; a copy is in {copy}") for step, copy in taken]
    index = place / "index.db"
    if index.exists() and not is_sound(index):
        parts = [Path(f"{index}{side}") for side in ("", "-wal", "-shm")]
        aside = [quarantine(part) for part in parts if part.exists()]
        done += [Finding(Level.OK, "mended", f"damaged index set aside as {part}") for part in aside]
    return done


def _config_dir(path: Path) -> Iterator[Finding]:
    if not (path / "projects").is_dir():
        yield Finding(Level.NOTE, "sessions", f"no Claude Code sessions below {path}", "flightlog demo")
        return
    days = keep_days(path)
    if days <= KEEP_DAYS_DEFAULT:
        yield Finding(
            Level.WARNING,
            "retention",
            f"Claude Code deletes transcripts after {days} days: {path}",
            f'set "cleanupPeriodDays": 365 in {path / "settings.json"}',
        )
    else:
        yield Finding(Level.OK, "retention", f"Claude Code keeps transcripts for {days} days: {path}")


def _home(path: Path) -> Finding:
    """Whether flightlog's own directory can be used, and by nobody else."""
    if not path.exists():
        return Finding(Level.OK, "home", f"not made yet: {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(Level.WARNING, "home", f"cannot be written to: {path}", f"chmod u+rwx {path}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding(Level.WARNING, "home", f"open to other users: {path}", f"chmod 700 {path}")
    return Finding(Level.OK, "home", f"private and writable: {path}")


def _layout(path: Path, known: int) -> Finding:
    """Whether our directory is of a layout this version writes."""
    try:
        have = layout_of(path)
    except Unreadable as error:
        return Finding(Level.DAMAGE, "layout", error.message, f"mv {path / 'layout.json'} {path / 'layout.json.old'}")
    if have > known:
        return Finding(
            Level.WARNING, "layout", f"layout {have} is of a later version: {path}", "pip install --upgrade flightlog"
        )
    if have < known:
        return Finding(
            Level.WARNING, "layout", f"layout {have} is of an earlier version: {path}", "flightlog doctor --fix"
        )
    return Finding(Level.OK, "layout", f"layout {have}: {path}")


def _hooks(runtime: Runtime, config: Path, place: Path) -> Iterator[Finding]:
    settings = config / "settings.json"
    here = project_settings(Path(runtime.cwd))
    if is_registered(here) and not is_registered(settings):
        settings = here  # as `flightlog init --project` does it
    found = hook_findings(settings, place, (), Path(tempfile.gettempdir()))
    for each in found:
        level = Level.FAILURE if each.is_loss else Level.WARNING
        yield Finding(level, "hooks", f"{each.what}: {each.which}", each.fix)
    if not found:
        yield Finding(Level.OK, "hooks", f"registered: {settings}")


def _live(runtime: Runtime, config: Path) -> Iterator[Finding]:
    """The status line, and the file of the running sessions that people edit."""
    for each in line_findings(config / "settings.json"):
        yield Finding(Level.WARNING, "status line", f"{each.what}: {each.which}", each.fix)
    file = config / FOLDER / runtime_state.NAME
    broken = runtime_state.look(file.parent, runtime.clock.now_ms()).broken if file.exists() else ""
    if broken:
        yield Finding(Level.WARNING, "live", f"cannot be read, {broken}: {file}", f"correct it: {file}")


def _ours(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield place
        yield from place.rglob("*")


def _open_to_others(place: Path) -> Iterator[Finding]:
    wide = [path for path in _ours(place) if path != place and path.lstat().st_mode & 0o077 and not path.is_symlink()]
    if wide:
        what = f"{len(wide):,} of our files are open to other users, {wide[0]} among them"
        yield Finding(Level.WARNING, "permissions", what, "flightlog doctor --fix")


def _disk(place: Path) -> Finding:
    """Whether there is room for what agents will write."""
    there = next(path for path in (place, *place.parents) if path.exists())
    disk = os.statvfs(there)
    free, inodes = disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else FREE_INODES_MIN
    level = Level.FAILURE if free < FULL_BYTES or inodes < FULL_INODES else Level.WARNING
    if inodes < FREE_INODES_MIN:
        return Finding(level, "disk", f"{counted(inodes, 'inode')} free: {there}", f"df -i {there}")
    if free < FREE_BYTES_MIN:
        return Finding(level, "disk", f"{free // 1_000_000:,} MB free: {there}", f"df -h {there}")
    return Finding(Level.OK, "disk", f"{free // 1_000_000_000:,} GB free: {there}")


def _stuck_locks(place: Path) -> Iterator[Finding]:
    """Name locks whose holder is stopped, or gone while a process it started holds on."""
    names = re.compile(r".*\.gate|.*lock|lost|(hooks|journal)\.jsonl")
    for path in filter(lambda path: names.fullmatch(path.name), _ours(place)):
        holder = find_holder(path)
        if holder is not None and holder.state != "running":
            wake = f"kill -CONT {holder.pid}" if holder.state == "stopped" else f"fuser -v {path}"
            yield Finding(Level.FAILURE, "lock", f"held by {holder.describe()}: {path}", wake)


def _known_faults(place: Path) -> Iterator[Finding]:
    for session in sorted(lost_sessions(place, AGENT)):
        yield Finding(Level.DAMAGE, "archive", f"{session}: lost, its directory is gone", "flightlog doctor --verify")
    for fault in read_faults(place, AGENT):
        text = f"{fault.session}/{fault.file}: {fault.what}, {fault.text}"
        yield Finding(Level.DAMAGE, "archive", text, "flightlog doctor --verify")


def verify(runtime: Runtime, progress: Progress | None = None, *, accept: bool = False) -> Verified:
    """Read every archived session back, compare it with its manifest, restore what the agent's own files have."""
    place = Path(runtime.data_dir)
    ensure_writable(place)
    archive = Archive(find_config_dirs(runtime), str(place))
    lost = lost_sessions(place, AGENT)
    names = sorted(kept_sessions(place, AGENT)[0] | lost)
    faults: list[Fault] = []
    busy: list[str] = []
    for done, session in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        recording = archive.recordings.get(session)
        sources = sources_of(str(place), recording.files if recording else ())
        try:
            if session in lost:
                faults.append(restore_session(place, AGENT, session, sources, accept=accept))
            else:
                faults += verify_session(place, AGENT, session, sources, accept=accept)
        except Conflict as error:
            busy.append(error.message)
    return Verified(len(names) - len(busy), tuple(busy), tuple(faults))


def _dataset(runtime: Runtime) -> Iterator[Finding]:
    """Whether git would take the training rows of the repository here."""
    top = collecting(Path(runtime.cwd))
    if top is None:
        return
    pending = top / ".git-ml" / "tracked" / "pending"
    try:
        ignored = ignores(Repository(top, find_common_dir(top), is_trusted(runtime, top)), pending / "rows.jsonl")
    except GitError as error:
        yield Finding(Level.WARNING, "dataset", error.message, error.hint)
        return
    if ignored:
        text, check = f"git ignores the training rows: {pending}", f"git check-ignore -v {pending / 'rows.jsonl'}"
        yield Finding(Level.WARNING, "dataset", text, check)
    else:
        yield Finding(Level.OK, "dataset", f"training rows are collected: {pending}")


def _recordings(runtime: Runtime, archive: Archive, progress: Progress | None) -> Iterator[Finding]:
    sessions = steps = 0
    unknown: dict[str, int] = {}
    late = ""
    damage = list(archive.damage)
    for done, session in enumerate(archive.told(progress)):
        sessions = done + 1
        steps += session.records
        damage += session.damage
        for kind, count in (*session.unknown, *session.unknown_fields):
            unknown[kind] = unknown.get(kind, 0) + count
        if (session.ended_ms or 0) > runtime.clock.now_ms() + DAY_MS:
            late = session.id
    yield Finding(Level.OK, "recordings", f"{counted(sessions, 'session')}, {counted(steps, 'record')} read")
    for kind, count in sorted(unknown.items()):
        yield Finding(Level.NOTE, "format", f"{counted(count, 'time')} unknown here: {kind}", "flightlog --version")
    if late:
        yield Finding(
            Level.WARNING, "clock", "a session ends in the future: a clock is wrong", f"flightlog session show {late}"
        )
    for span in damage:
        where = f"{counted(span.length, 'byte')} at {span.offset:,} of" if span.length else "all of"
        yield Finding(
            Level.DAMAGE, "damage", f"{span.why}: {where} {span.path}", "the sound records around it are read"
        )


def _prices(runtime: Runtime) -> Finding:
    taken = datetime.fromisoformat(PRICES_FROM["date"]).replace(tzinfo=UTC)
    told = f"{PRICES_FROM['source']}, {PRICES_FROM['date']}"
    if runtime.clock.now_ms() - taken.timestamp() * 1000 > YEAR_MS:
        return Finding(Level.WARNING, "prices", f"more than a year old: {told}", "pip install --upgrade flightlog")
    return Finding(Level.OK, "prices", told)
