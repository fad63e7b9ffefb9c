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

from flightlog.agents.claude_code.files import AGENT_NAME, find_config_dirs, has_sessions
from flightlog.agents.claude_code.hooks import KEEP_DAYS_DEFAULT, keep_days, project_settings
from flightlog.agents.recordings import agent_files, list_recorded_files
from flightlog.archive.archive import Archive, Progress
from flightlog.dataset.state import find_collecting_root
from flightlog.live.collector import FOLDER
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import Conflict, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.model.text import pluralize
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.setup.format_drift import compare_formats, load_known_format, read_json_objects
from flightlog.setup.hook_check import hook_findings, is_registered, status_line_findings
from flightlog.sources.hook_log import list_loss_counts
from flightlog.store.directories import LayoutMigration, ensure_writable, layout_of, migrate_layout, newest_layout
from flightlog.store.files import quarantine_file, rename_file
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import Repository, find_common_dir, is_ignored
from flightlog.store.index.database import is_sound
from flightlog.store.locks import find_holder
from flightlog.store.recordings.adoption import list_recorded_sessions, lost_sessions
from flightlog.store.recordings.sessions import RecordingFault, read_faults, restore_session, verify_session
from flightlog.usage.prices import PRICES_FROM

YEAR_MS = 365 * DAY_MS
FREE_BYTES_MIN = 500_000_000
FREE_INODES_MIN = 10_000
# Below these a settle after one turn cannot be stored: its transcript, manifest and lock, and the index.
FULL_BYTES = 1_000_000
FULL_INODES = 16
STEPS: tuple[LayoutMigration, ...] = ()  # the layout of our own directory has not changed since the first


class CheckLevel(enum.Enum):
    """How a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"
    DAMAGE = "damage"


class ArchiveVerification(Struct, frozen=True):
    """What reading the archive back found."""

    sessions: int
    busy: tuple[str, ...]
    faults: tuple[RecordingFault, ...]


class CheckResult(Struct, frozen=True):
    """One thing looked at; `next` is the command or setting that helps."""

    level: CheckLevel
    about: str
    text: str
    next: str = ""


def examine_installation(
    runtime: Runtime, progress: Progress | None = None, steps: Sequence[LayoutMigration] = STEPS
) -> list[CheckResult]:
    """Look at everything."""
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    place = Path(runtime.data_dir)
    archive = Archive([str(path) for path in dirs], str(place))
    return [
        *(finding for path in dirs for finding in _check_config_dir(path)),
        *(finding for path in dirs if has_sessions(path) for finding in _check_hooks(runtime, path, place)),
        *(finding for path in dirs for finding in _check_live(runtime, path)),
        _check_data_dir(place),
        _check_layout(place, newest_layout(steps)),
        *_check_permissions(place),
        _check_disk(place),
        *(finding for root in (place, *(path / FOLDER for path in dirs)) for finding in _check_stuck_locks(root)),
        *_recorded_faults(place),
        *_check_dataset(runtime),
        *_check_recordings(runtime, archive, progress),
        _check_prices(runtime),
    ]


def check_formats(runtime: Runtime) -> list[CheckResult]:
    """Hold what the agent writes here against the formats on file, field by field."""
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    files = [file.path for file in list_recorded_files([str(path) for path in dirs], runtime.data_dir).files]
    found = compare_formats((read_json_objects(Path(path)) for path in files), load_known_format())
    news = [*found.added_types, *map(".".join, found.added_fields)]
    gone = [*found.dropped_types, *map(".".join, found.dropped_fields)] if files else []
    told = [CheckResult(CheckLevel.NOTE, "format", f"new: {name}", "flightlog session list") for name in news]
    told += [CheckResult(CheckLevel.NOTE, "format", f"not met here: {name}") for name in gone]
    return told or [
        CheckResult(CheckLevel.OK, "format", f"nothing that is not on file in {pluralize(len(files), 'transcript')}")
    ]


def repair_installation(runtime: Runtime, steps: Sequence[LayoutMigration] = STEPS) -> list[CheckResult]:
    """Put right what can be put right without taking anything away; doing it twice is doing it once."""
    place = Path(runtime.data_dir)
    done: list[CheckResult] = []
    ensure_writable(place, newest_layout(steps))
    for path in sorted(_iter_own_files(place)):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink() and mode & 0o077:
            path.chmod(mode & 0o700)
            done.append(CheckResult(CheckLevel.OK, "mended", f"closed to other users: {path}"))
    for lost in list_loss_counts(place, Path(tempfile.gettempdir())):
        path = rename_file(lost, f"acknowledged-{lost.name}-{runtime.clock.now_ms()}")
        done.append(CheckResult(CheckLevel.OK, "mended", f"lost hook events acknowledged, their number is in {path}"))
    if place.is_dir() and layout_of(place) < newest_layout(steps):
        taken = migrate_layout(place, steps)
        done += [CheckResult(CheckLevel.OK, "mended", f"{step.why}; a copy is in {copy}") for step, copy in taken]
    index = place / "index.db"
    if index.exists() and not is_sound(index):
        parts = [Path(f"{index}{side}") for side in ("", "-wal", "-shm")]
        aside = [quarantine_file(part) for part in parts if part.exists()]
        done += [CheckResult(CheckLevel.OK, "mended", f"damaged index set aside as {part}") for part in aside]
    return done


def _check_config_dir(path: Path) -> Iterator[CheckResult]:
    if not has_sessions(path):
        yield CheckResult(CheckLevel.NOTE, "sessions", f"no Claude Code sessions below {path}", "flightlog demo")
        return
    days = keep_days(path)
    if days <= KEEP_DAYS_DEFAULT:
        yield CheckResult(
            CheckLevel.WARNING,
            "retention",
            f"Claude Code deletes transcripts after {days} days: {path}",
            f'set "cleanupPeriodDays": 365 in {path / "settings.json"}',
        )
    else:
        yield CheckResult(CheckLevel.OK, "retention", f"Claude Code keeps transcripts for {days} days: {path}")


def _check_data_dir(path: Path) -> CheckResult:
    """Whether flightlog's own directory can be used, and by nobody else."""
    if not path.exists():
        return CheckResult(CheckLevel.OK, "home", f"not made yet: {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return CheckResult(CheckLevel.WARNING, "home", f"cannot be written to: {path}", f"chmod u+rwx {path}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return CheckResult(CheckLevel.WARNING, "home", f"open to other users: {path}", f"chmod 700 {path}")
    return CheckResult(CheckLevel.OK, "home", f"private and writable: {path}")


def _check_layout(path: Path, known: int) -> CheckResult:
    """Whether our directory is of a layout this version writes."""
    try:
        have = layout_of(path)
    except Unreadable as error:
        return CheckResult(
            CheckLevel.DAMAGE, "layout", error.message, f"mv {path / 'layout.json'} {path / 'layout.json.old'}"
        )
    if have > known:
        return CheckResult(
            CheckLevel.WARNING,
            "layout",
            f"layout {have} is of a later version: {path}",
            "pip install --upgrade flightlog",
        )
    if have < known:
        return CheckResult(
            CheckLevel.WARNING, "layout", f"layout {have} is of an earlier version: {path}", "flightlog doctor --fix"
        )
    return CheckResult(CheckLevel.OK, "layout", f"layout {have}: {path}")


def _check_hooks(runtime: Runtime, config: Path, place: Path) -> Iterator[CheckResult]:
    settings = config / "settings.json"
    here = project_settings(Path(runtime.cwd))
    if is_registered(here) and not is_registered(settings):
        settings = here  # as `flightlog init --project` does it
    found = hook_findings(settings, place, (), Path(tempfile.gettempdir()))
    for each in found:
        level = CheckLevel.FAILURE if each.is_loss else CheckLevel.WARNING
        yield CheckResult(level, "hooks", f"{each.what}: {each.which}", each.fix)
    if not found:
        yield CheckResult(CheckLevel.OK, "hooks", f"registered: {settings}")


def _check_live(runtime: Runtime, config: Path) -> Iterator[CheckResult]:
    """The status line, and the file of the running sessions that people edit."""
    for each in status_line_findings(config / "settings.json"):
        yield CheckResult(CheckLevel.WARNING, "status line", f"{each.what}: {each.which}", each.fix)
    file = config / FOLDER / runtime_state.NAME
    broken = runtime_state.load_state(file.parent, runtime.clock.now_ms()).broken if file.exists() else ""
    if broken:
        yield CheckResult(CheckLevel.WARNING, "live", f"cannot be read, {broken}: {file}", f"correct it: {file}")


def _iter_own_files(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield place
        yield from place.rglob("*")


def _check_permissions(place: Path) -> Iterator[CheckResult]:
    wide = [
        path
        for path in _iter_own_files(place)
        if path != place and path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
    if wide:
        what = f"{len(wide):,} of our files are open to other users, {wide[0]} among them"
        yield CheckResult(CheckLevel.WARNING, "permissions", what, "flightlog doctor --fix")


def _check_disk(place: Path) -> CheckResult:
    """Whether there is room for what agents will write."""
    there = next(path for path in (place, *place.parents) if path.exists())
    disk = os.statvfs(there)
    free, inodes = disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else FREE_INODES_MIN
    level = CheckLevel.FAILURE if free < FULL_BYTES or inodes < FULL_INODES else CheckLevel.WARNING
    if inodes < FREE_INODES_MIN:
        return CheckResult(level, "disk", f"{pluralize(inodes, 'inode')} free: {there}", f"df -i {there}")
    if free < FREE_BYTES_MIN:
        return CheckResult(level, "disk", f"{free // 1_000_000:,} MB free: {there}", f"df -h {there}")
    return CheckResult(CheckLevel.OK, "disk", f"{free // 1_000_000_000:,} GB free: {there}")


def _check_stuck_locks(place: Path) -> Iterator[CheckResult]:
    """Name locks whose holder is stopped, or gone while a process it started holds on."""
    names = re.compile(r".*\.gate|.*lock|lost|(hooks|journal)\.jsonl")
    for path in filter(lambda path: names.fullmatch(path.name), _iter_own_files(place)):
        holder = find_holder(path)
        if holder is not None and holder.state != "running":
            wake = f"kill -CONT {holder.pid}" if holder.state == "stopped" else f"fuser -v {path}"
            yield CheckResult(CheckLevel.FAILURE, "lock", f"held by {holder.describe_holder()}: {path}", wake)


def _recorded_faults(place: Path) -> Iterator[CheckResult]:
    for session in sorted(lost_sessions(place, AGENT_NAME)):
        yield CheckResult(
            CheckLevel.DAMAGE, "archive", f"{session}: lost, its directory is gone", "flightlog doctor --verify"
        )
    for fault in read_faults(place, AGENT_NAME):
        text = f"{fault.session}/{fault.file}: {fault.what}, {fault.text}"
        yield CheckResult(CheckLevel.DAMAGE, "archive", text, "flightlog doctor --verify")


def verify_archive(runtime: Runtime, progress: Progress | None = None, *, accept: bool = False) -> ArchiveVerification:
    """Read every archived session back, compare it with its manifest, restore what the agent's own files have."""
    place = Path(runtime.data_dir)
    ensure_writable(place)
    archive = Archive(find_config_dirs(runtime), str(place))
    lost = lost_sessions(place, AGENT_NAME)
    names = sorted(list_recorded_sessions(place, AGENT_NAME)[0] | lost)
    faults: list[RecordingFault] = []
    busy: list[str] = []
    for done, session in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        recording = archive.recordings.get(session)
        sources = agent_files(str(place), recording.files if recording else ())
        try:
            if session in lost:
                faults.append(restore_session(place, AGENT_NAME, session, sources, accept=accept))
            else:
                faults += verify_session(place, AGENT_NAME, session, sources, accept=accept)
        except Conflict as error:
            busy.append(error.message)
    return ArchiveVerification(len(names) - len(busy), tuple(busy), tuple(faults))


def _check_dataset(runtime: Runtime) -> Iterator[CheckResult]:
    """Whether git would take the training rows of the repository here."""
    top = find_collecting_root(Path(runtime.cwd))
    if top is None:
        return
    pending = top / ".git-ml" / "tracked" / "pending"
    try:
        ignored = is_ignored(Repository(top, find_common_dir(top), is_trusted(runtime, top)), pending / "rows.jsonl")
    except GitError as error:
        yield CheckResult(CheckLevel.WARNING, "dataset", error.message, error.hint)
        return
    if ignored:
        text, check = f"git ignores the training rows: {pending}", f"git check-ignore -v {pending / 'rows.jsonl'}"
        yield CheckResult(CheckLevel.WARNING, "dataset", text, check)
    else:
        yield CheckResult(CheckLevel.OK, "dataset", f"training rows are collected: {pending}")


def _check_recordings(runtime: Runtime, archive: Archive, progress: Progress | None) -> Iterator[CheckResult]:
    sessions = steps = 0
    unknown: dict[str, int] = {}
    late = ""
    damage = list(archive.damage)
    for done, session in enumerate(archive.iter_sessions(progress)):
        sessions = done + 1
        steps += session.records
        damage += session.damage
        for kind, count in (*session.unknown, *session.unknown_fields):
            unknown[kind] = unknown.get(kind, 0) + count
        if (session.ended_ms or 0) > runtime.clock.now_ms() + DAY_MS:
            late = session.id
    yield CheckResult(
        CheckLevel.OK, "recordings", f"{pluralize(sessions, 'session')}, {pluralize(steps, 'record')} read"
    )
    for kind, count in sorted(unknown.items()):
        yield CheckResult(
            CheckLevel.NOTE, "format", f"{pluralize(count, 'time')} unknown here: {kind}", "flightlog --version"
        )
    if late:
        yield CheckResult(
            CheckLevel.WARNING,
            "clock",
            "a session ends in the future: a clock is wrong",
            f"flightlog session show {late}",
        )
    for span in damage:
        where = f"{pluralize(span.length, 'byte')} at {span.offset:,} of" if span.length else "all of"
        yield CheckResult(
            CheckLevel.DAMAGE, "damage", f"{span.why}: {where} {span.path}", "the sound records around it are read"
        )


def _check_prices(runtime: Runtime) -> CheckResult:
    taken = datetime.fromisoformat(PRICES_FROM["date"]).replace(tzinfo=UTC)
    told = f"{PRICES_FROM['source']}, {PRICES_FROM['date']}"
    if runtime.clock.now_ms() - taken.timestamp() * 1000 > YEAR_MS:
        return CheckResult(
            CheckLevel.WARNING, "prices", f"more than a year old: {told}", "pip install --upgrade flightlog"
        )
    return CheckResult(CheckLevel.OK, "prices", told)
