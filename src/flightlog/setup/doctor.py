"""Examine this machine: what is present, what is wrong, and the next command for each problem."""

import enum
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from flightlog.agents import agent_label, agent_names
from flightlog.agents.adoption import agent_files
from flightlog.agents.claude_code.files import find_config_dirs, find_unread_files, has_sessions
from flightlog.agents.claude_code.hooks import KEEP_DAYS_DEFAULT, keep_days, project_settings
from flightlog.agents.recordings import find_agent_dirs, find_missing_dirs, reads_samples
from flightlog.analysis.requests import has_sent_requests
from flightlog.archive.archive import Archive, Progress, open_archive
from flightlog.dataset.state import find_collecting_root
from flightlog.lab.replay.restore import describe_unrestored, list_unrestored
from flightlog.lab.service import explain_runs
from flightlog.live.collector import FOLDER
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import Conflict, Damage, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import pluralize
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.setup import hook_check
from flightlog.sources.hook_log import list_loss_counts
from flightlog.store import directories
from flightlog.store.files import quarantine_file, rename_file
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import Repository, find_common_dir, is_ignored
from flightlog.store.index.database import is_sound
from flightlog.store.locks import find_holder
from flightlog.store.recordings import sessions as recorded
from flightlog.store.recordings.adoption import list_recorded_sessions, lost_sessions
from flightlog.store.recordings.reader import raw_lines
from flightlog.usage.price_table import PRICES_FROM

YEAR_MS = 365 * DAY_MS  # prices older than this are reported
FREE_BYTES_MIN = 500_000_000  # less free space is a warning
UNREAD_SHOWN = 3  # paths of files in an unknown layout
FREE_INODES_MIN = 10_000  # fewer free inodes are a warning
# Below these, one settle cannot be stored: transcript, manifest, lock and index.
FULL_BYTES = 1_000_000
FULL_INODES = 16
# The layout of the data directory has not changed yet.
STEPS: tuple[directories.LayoutMigration, ...] = ()


class CheckLevel(enum.Enum):
    """Severity of a check result."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"
    DAMAGE = "damage"


class ArchiveVerification(Struct, frozen=True):
    """Result of reading the archive back."""

    sessions: int
    locked: tuple[str, ...]
    faults: tuple[recorded.RecordingFault, ...]


class CheckResult(Struct, frozen=True):
    """One checked thing; `next_command` is the command or setting that helps."""

    level: CheckLevel
    subject: str
    message: str
    next_command: str = ""


def examine_installation(
    runtime: Runtime,
    progress: Progress | None = None,
    steps: Sequence[directories.LayoutMigration] = STEPS,
) -> list[CheckResult]:
    """Return the results of all checks."""
    dirs = [Path(path) for path in find_config_dirs(runtime)]
    data_dir = Path(runtime.data_dir)
    archive = open_archive(runtime)
    own_dirs = [] if reads_samples(runtime) else dirs
    used_dirs = [path for path in own_dirs if has_sessions(path)]
    unrestored = [describe_unrestored(path) for path in list_unrestored(runtime)]
    locked_dirs = (data_dir, *(path / FOLDER for path in dirs))
    return [
        *(finding for path in own_dirs for finding in _check_config_dir(path)),
        *_list_other_agents(runtime, archive),
        *(finding for path in used_dirs for finding in _check_hooks(runtime, path, data_dir)),
        *(finding for path in dirs for finding in _check_live(runtime, path)),
        _check_data_dir(data_dir),
        _check_layout(data_dir, directories.newest_layout(steps)),
        *_check_permissions(data_dir),
        _check_disk(data_dir),
        *(finding for root in locked_dirs for finding in _check_stuck_locks(root)),
        *_recorded_faults(data_dir),
        *_check_dataset(runtime),
        *(CheckResult(CheckLevel.WARNING, "lab", *described) for described in unrestored),
        *_check_recordings(runtime, archive, progress),
        _check_prices(runtime),
    ]


def repair_installation(
    runtime: Runtime, steps: Sequence[directories.LayoutMigration] = STEPS
) -> list[CheckResult]:
    """Repair what can be repaired without losing anything; return what was done. Idempotent."""
    data_dir = Path(runtime.data_dir)
    done: list[str] = []
    directories.ensure_writable(data_dir, directories.newest_layout(steps))
    for path in sorted(_iter_own_files(data_dir)):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink() and mode & 0o077:
            path.chmod(mode & 0o700)
            done.append(f"closed to other users: {path}")
    for lost in list_loss_counts(data_dir, Path(tempfile.gettempdir())):
        path = rename_file(lost, f"acknowledged-{lost.name}-{runtime.clock.now_ms()}")
        done.append(f"lost hook events acknowledged, their number is in {path}")
    if data_dir.is_dir() and directories.layout_of(data_dir) < directories.newest_layout(steps):
        migrated = directories.migrate_layout(data_dir, steps)
        done += [f"{step.reason}; a copy is in {copy}" for step, copy in migrated]
    for index in sorted(data_dir.glob("index*.db")):
        if is_sound(index):
            continue
        parts = [Path(f"{index}{side}") for side in ("", "-wal", "-shm")]
        done += [
            f"damaged index moved to {quarantine_file(part)}" for part in parts if part.exists()
        ]
    return [CheckResult(CheckLevel.OK, "repaired", text) for text in done]


def _check_config_dir(path: Path) -> Iterator[CheckResult]:
    if not has_sessions(path):
        text = f"no Claude Code sessions below {path}"
        yield CheckResult(CheckLevel.NOTE, "sessions", text, "flightlog demo")
        return
    unread = find_unread_files(str(path))
    if unread:
        some = ", ".join(unread[:UNREAD_SHOWN])
        text = f"{pluralize(len(unread), 'file')} in an unknown layout not read: {some}"
        yield CheckResult(CheckLevel.WARNING, "sessions", text, "flightlog --version")
    days = keep_days(path)
    if days <= KEEP_DAYS_DEFAULT:
        text = f"Claude Code deletes transcripts after {pluralize(days, 'day')}: {path}"
        setting = f'set "cleanupPeriodDays": 365 in {path / "settings.json"}'
        yield CheckResult(CheckLevel.WARNING, "retention", text, setting)
    else:
        text = f"Claude Code keeps transcripts for {pluralize(days, 'day')}: {path}"
        yield CheckResult(CheckLevel.OK, "retention", text)


def _list_other_agents(runtime: Runtime, archive: Archive) -> Iterator[CheckResult]:
    agents = Counter(recording.agent for recording in archive.recordings.values())
    for name, dirs in find_agent_dirs(runtime).items():
        if name != DEFAULT_AGENT:
            text = f"{pluralize(agents[name], f'{agent_label(name)} session')}: {', '.join(dirs)}"
            yield CheckResult(CheckLevel.OK, "sessions", text)
            if hook_check.find_plugin(runtime, name):
                text = f"registered by the plugin with {agent_label(name)}: {dirs[0]}"
                yield CheckResult(CheckLevel.OK, "hooks", text)
    for path in find_missing_dirs(runtime):
        text = f"agents.directories names a directory that does not exist: {path}"
        yield CheckResult(CheckLevel.WARNING, "sessions", text, "flightlog config show --origin")


def _check_data_dir(path: Path) -> CheckResult:
    """Check that flightlog's data directory is writable and private."""
    present = directories.find_existing(path)
    warn = partial(CheckResult, CheckLevel.WARNING, "home")
    if not os.access(present, os.W_OK | os.X_OK):
        return warn(f"not writable: {present}", f"chmod u+rwx {present}")
    if present != path:
        return CheckResult(CheckLevel.OK, "home", f"not created yet: {path}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return warn(f"open to other users: {path}", f"chmod 700 {path}")
    return CheckResult(CheckLevel.OK, "home", f"private and writable: {path}")


def _check_layout(path: Path, known: int) -> CheckResult:
    """Check that this version can write the data directory's layout."""
    try:
        layout = directories.layout_of(path)
    except Unreadable as error:
        move = f"mv {path / 'layout.json'} {path / 'layout.json.old'}"
        return CheckResult(CheckLevel.DAMAGE, "layout", error.message, move)
    text = f"layout {layout} is of a {'later' if layout > known else 'earlier'} version: {path}"
    if layout > known:
        return CheckResult(CheckLevel.WARNING, "layout", text, "pip install --upgrade flightlog")
    if layout < known:
        return CheckResult(CheckLevel.WARNING, "layout", text, "flightlog doctor --fix")
    return CheckResult(CheckLevel.OK, "layout", f"layout {layout}: {path}")


def _check_hooks(runtime: Runtime, config: Path, data_dir: Path) -> Iterator[CheckResult]:
    settings = config / "settings.json"
    local = project_settings(Path(runtime.cwd))
    if hook_check.is_registered(local) and not hook_check.is_registered(settings):
        settings = local  # registered by `flightlog init --project`
    problems = hook_check.hook_findings(settings, data_dir, (), Path(tempfile.gettempdir()))
    for problem in problems:
        level = CheckLevel.FAILURE if problem.is_failure else CheckLevel.WARNING
        yield CheckResult(level, "hooks", f"{problem.kind}: {problem.subject}", problem.fix)
    if not problems:
        yield CheckResult(CheckLevel.OK, "hooks", hook_check.describe_registration(settings))


def _check_live(runtime: Runtime, config: Path) -> Iterator[CheckResult]:
    """Check the status line, and the state file of running sessions, which people edit."""
    template = runtime.config["statusline.template"]
    for problem in hook_check.status_line_findings(config / "settings.json", template):
        level = CheckLevel.FAILURE if problem.is_failure else CheckLevel.WARNING
        yield CheckResult(level, "status line", f"{problem.kind}: {problem.subject}", problem.fix)
    file = config / FOLDER / runtime_state.NAME
    state = runtime_state.load_state(file.parent, runtime.clock.now_ms()) if file.exists() else None
    if state and state.error:
        text = f"unreadable, {state.error}: {file}"
        yield CheckResult(CheckLevel.WARNING, "live", text, f"correct it: {file}")


def _iter_own_files(data_dir: Path) -> Iterator[Path]:
    if data_dir.is_dir():
        yield data_dir
        yield from data_dir.rglob("*")


def _check_permissions(data_dir: Path) -> Iterator[CheckResult]:
    own = (path for path in _iter_own_files(data_dir) if path != data_dir and not path.is_symlink())
    readable = [path for path in own if path.lstat().st_mode & 0o077]
    if readable:
        text = f"{pluralize(len(readable), 'file')} open to other users, for example {readable[0]}"
        yield CheckResult(CheckLevel.WARNING, "permissions", text, "flightlog doctor --fix")


def _check_disk(data_dir: Path) -> CheckResult:
    """Check the free space for recordings."""
    existing = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    disk = os.statvfs(existing)
    free, inodes = disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else FREE_INODES_MIN
    level = CheckLevel.FAILURE if free < FULL_BYTES or inodes < FULL_INODES else CheckLevel.WARNING
    if inodes < FREE_INODES_MIN:
        text, option = f"{pluralize(inodes, 'inode')} free", "-i"
    elif free < FREE_BYTES_MIN:
        text, option = f"{free // 1_000_000:,} MB free", "-h"
    else:
        return CheckResult(CheckLevel.OK, "disk", f"{free // 1_000_000_000:,} GB free: {existing}")
    return CheckResult(level, "disk", f"{text}: {existing}", f"df {option} {existing}")


def _check_stuck_locks(directory: Path) -> Iterator[CheckResult]:
    """Report locks whose holder is stopped, or gone while a child still holds them."""
    names = re.compile(r".*\.gate|.*lock|lost|(hooks|journal)\.jsonl")
    for path in filter(lambda path: names.fullmatch(path.name), _iter_own_files(directory)):
        holder = find_holder(path)
        if holder is not None and holder.state != "running":
            is_stopped = holder.state == "stopped"
            command = f"kill -CONT {holder.pid}" if is_stopped else f"fuser -v {path}"
            text = f"held by {holder.describe_holder()}: {path}"
            yield CheckResult(CheckLevel.FAILURE, "lock", text, command)


def _recorded_faults(data_dir: Path) -> Iterator[CheckResult]:
    lost = {name for agent in agent_names() for name in lost_sessions(data_dir, agent)}
    for session in sorted(lost):
        text = f"{session}: its directory is missing"
        yield CheckResult(CheckLevel.DAMAGE, "archive", text, "flightlog doctor --verify")
    faults = [recorded.read_faults(data_dir, name) for name in agent_names()]
    for fault in chain.from_iterable(faults):
        text = f"{fault.session}/{fault.file}: {fault.kind}, {fault.message}"
        yield CheckResult(CheckLevel.DAMAGE, "archive", text, "flightlog doctor --verify")


def verify_archive(
    runtime: Runtime, progress: Progress | None = None, *, accept: bool = False
) -> ArchiveVerification:
    """Read every archived session back, and restore damaged ones from the agent's files."""
    data_dir = Path(runtime.data_dir)
    directories.ensure_writable(data_dir)
    archive = open_archive(runtime)
    lost = {(agent, name) for agent in agent_names() for name in lost_sessions(data_dir, agent)}
    sessions = ((agent, list_recorded_sessions(data_dir, agent)[0]) for agent in agent_names())
    known = {(agent, name) for agent, names in sessions for name in names}
    names = sorted(known | lost)
    faults: list[recorded.RecordingFault] = []
    busy: list[str] = []
    for done, (agent, session) in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        recording = archive.recordings.get(session)
        with TemporaryDirectory(prefix="flightlog-") as folder:
            files = recording.files if recording else ()
            place = data_dir, agent, session, agent_files(str(data_dir), files, Path(folder))
            try:
                if (agent, session) in lost:
                    faults.append(recorded.restore_session(*place, accept=accept))
                else:
                    faults += recorded.verify_session(*place, accept=accept)
            except Conflict as error:
                busy.append(error.message)
    return ArchiveVerification(len(names) - len(busy), tuple(busy), tuple(faults))


def _check_dataset(runtime: Runtime) -> Iterator[CheckResult]:
    """Check that git does not ignore the training rows here."""
    top = find_collecting_root(Path(runtime.cwd))
    if top is None:
        return
    pending = top / ".git-ml" / "tracked" / "pending"
    try:
        repository = Repository(top, find_common_dir(top), is_trusted(runtime, top))
        ignored = is_ignored(repository, pending / "rows.jsonl")
    except GitError as error:
        yield CheckResult(CheckLevel.WARNING, "dataset", error.message, error.hint)
        return
    if ignored:
        text = f"git ignores the training rows: {pending}"
        check = f"git check-ignore -v {pending / 'rows.jsonl'}"
        yield CheckResult(CheckLevel.WARNING, "dataset", text, check)
    else:
        yield CheckResult(CheckLevel.OK, "dataset", f"training rows are collected: {pending}")


def _check_recordings(
    runtime: Runtime, archive: Archive, progress: Progress | None
) -> Iterator[CheckResult]:
    sessions = records = 0
    logged = explain_runs(runtime)
    unknown: dict[str, int] = {}
    late = ""
    damage = list(archive.damage)
    owners: dict[str, str] = {}
    for done, session in enumerate(archive.iter_sessions(progress)):
        sessions = done + 1
        recording = archive.recordings[session.id]
        records += sum(1 for file in recording.files for _ in raw_lines(file.path, 0))
        logged.append(has_sent_requests(session, recording))
        damage += session.damage
        owners |= {span.path: session.id for span in session.damage}
        label = "" if session.agent == DEFAULT_AGENT else f"{agent_label(session.agent)} "
        for kind, count in (*session.unknown_record_types, *session.unknown_fields):
            unknown[label + kind] = unknown.get(label + kind, 0) + count
        if (session.ended_ms or 0) > runtime.clock.now_ms() + DAY_MS:
            late = session.id
    text = f"{pluralize(sessions, 'session')}, {pluralize(records, 'record')} read"
    yield CheckResult(CheckLevel.OK, "recordings", text)
    if logged:
        share = f"{sum(logged):,} of {pluralize(len(logged), 'session')}"
        share += (
            f" ({100 * sum(logged) / len(logged):.0f} %), whose requests are logged or captured"
        )
        yield CheckResult(CheckLevel.OK, "cache", f"causes of cache misses are known for {share}")
    for kind, count in sorted(unknown.items()):
        text = f"{pluralize(count, 'record')} of unknown format: {kind}"
        yield CheckResult(CheckLevel.NOTE, "format", text, "flightlog doctor --formats")
    if late:
        text = "a session ends in the future: a clock is wrong"
        yield CheckResult(CheckLevel.WARNING, "clock", text, f"flightlog session show {late}")
    for path, spans in groupby(sorted(damage), key=lambda span: span.path):
        yield _describe_damage(owners.get(path, ""), path, list(spans))


def _describe_damage(session: str, path: str, spans: Sequence[Damage]) -> CheckResult:
    """Return one result for all damage in a file, with a command that shows what is left of it."""
    reasons = Counter(span.reason for span in spans)
    counts = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
    length = sum(span.length for span in spans)
    size = f"{pluralize(length, 'byte')} from {spans[0].offset:,} on in" if length else "all of"
    show = f"flightlog session show {session}" if session and length else f"ls -ld {path}"
    return CheckResult(CheckLevel.DAMAGE, "damage", f"{counts}: {size} {path}", show)


def _check_prices(runtime: Runtime) -> CheckResult:
    date = datetime.fromisoformat(PRICES_FROM["date"]).replace(tzinfo=UTC)
    text = f"{PRICES_FROM['source']}, {PRICES_FROM['date']}"
    if runtime.clock.now_ms() - date.timestamp() * 1000 > YEAR_MS:
        text = f"more than a year old: {text}"
        return CheckResult(CheckLevel.WARNING, "prices", text, "pip install --upgrade flightlog")
    return CheckResult(CheckLevel.OK, "prices", text)
