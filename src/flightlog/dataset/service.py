"""Dataset operations for the CLI and for settling sessions."""

import gc
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from flightlog.archive.archive import Archive, SessionFiles, open_archive
from flightlog.dataset import remote, retention, stats
from flightlog.dataset.compact import Compaction, compact_and_commit, compact_dataset
from flightlog.dataset.extract import sync
from flightlog.dataset.extract.commits import judgment_rows
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.extract import ExtractContext, ExtractOptions, capture_session
from flightlog.dataset.layout import ROOT, DatasetDirs, total_bytes, write_shard
from flightlog.dataset.reader import GONE, check_judgment, read_dataset, shard_files
from flightlog.dataset.rows import BASES, NAMES, Row, format_row_time
from flightlog.dataset.state import find_collecting_root, is_off, row_sources, writer_name
from flightlog.dataset.tombstones import make_tombstone
from flightlog.model.errors import FlightlogError, Misconfigured, NotFound
from flightlog.model.retention import RetentionMove
from flightlog.model.runtime import ConfigValue, Runtime
from flightlog.model.usage import DAY_MS
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import is_trusted, open_trust
from flightlog.store.git import repository
from flightlog.store.git.history import head_commit, iter_commits
from flightlog.store.git.repository import Repository, find_common_dir, find_repository
from flightlog.store.recordings.adoption import session_dir

OWN_HOOK = "own-hook"  # file in which the recorder stores the directory of a repository's own hook
PERSON = frozenset({"rows", "words", "push"})  # what a person's own command may write if configured


def extract_session_rows(
    runtime: Runtime, archive: Archive, recording: SessionFiles, cwd: str, *, is_ended: bool
) -> int:
    """Extract a settled session if its repository collects rows; then push if enabled."""
    top = None if is_off(runtime) else find_collecting_root(Path(cwd))
    if top is None or not sync.is_inside(cwd, top):
        return 0
    allowed = allowed_writes(runtime, top, own_hook=_ran_own_hook(runtime, recording, top))
    if not allowed:
        return 0
    dirs = DatasetDirs(Repository(top, find_common_dir(top), is_trusted(runtime, top)))
    writer_name(dirs.state_dir, os.urandom(4).hex())
    context = make_extract_context(runtime, dirs, archive, allowed)
    if not (dirs.tracked_dir / BASES["session"]).exists():
        sync.prepare_if_possible(context, _default_branch(runtime, dirs))
    rows = capture_session(context, recording, is_ended=is_ended).rows + sync.sync_commits(context)
    if "push" in allowed:
        push_if_enabled(runtime, dirs)
    return rows


def allowed_writes(runtime: Runtime, top: Path, *, own_hook: bool = False) -> frozenset[str]:
    """Return what may be written without a person's command: of rows, words and push."""
    return frozenset().union(*row_sources(runtime, top, own_hook=own_hook).values())


def _ran_own_hook(runtime: Runtime, recording: SessionFiles, top: Path) -> bool:
    """Return whether a hook of this repository recorded the session."""
    directory = session_dir(Path(runtime.data_dir), recording.agent, recording.session)
    try:
        project = (directory / OWN_HOOK).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return Path(project).is_absolute() and find_collecting_root(Path(project)) == top


def push_if_enabled(runtime: Runtime, dirs: DatasetDirs) -> FlightlogError | None:
    """Push the rows if the project enables it; return the error if the remote is unreachable."""
    values = load_project_settings(runtime, dirs)
    if values["dataset.push"].value is not True:
        return None
    try:
        remote.push_shards(dirs, str(values["dataset.remote"].value), runtime.clock.now_ms())
    except FlightlogError as error:
        return error
    return None


def locate_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs:
    """Return the dataset of the repository that holds `folder`."""
    folder = folder or Path(runtime.cwd)
    dirs = DatasetDirs(repository.open_repository(folder, trusted=is_trusted(runtime, folder)))
    writer_name(dirs.state_dir, os.urandom(4).hex())
    return dirs


def load_project_settings(runtime: Runtime, dirs: DatasetDirs) -> Mapping[str, ConfigValue]:
    """Return the settings of a repository; some of them take effect only with trust."""
    return runtime.read_config(str(dirs.repository.top))


def _default_branch(runtime: Runtime, dirs: DatasetDirs) -> str:
    return str(load_project_settings(runtime, dirs)["dataset.default_branch"].value)


def load_options(runtime: Runtime, dirs: DatasetDirs) -> ExtractOptions:
    """Return what the project allows."""
    values = load_project_settings(runtime, dirs)
    words, cache = (
        values[f"dataset.{name}"].value is True for name in ("track_words", "local_cache")
    )
    return ExtractOptions(words=words, local_cache=cache)


def make_row_redactor(runtime: Runtime, dirs: DatasetDirs) -> JsonRedactor:
    """Return the redactor for rows of a repository, whose directory becomes `.`."""
    redactor = make_redactor(runtime, dirs.repository.top, {str(dirs.repository.top): "."})
    return JsonRedactor(redactor, NAMES)


def make_extract_context(
    runtime: Runtime,
    dirs: DatasetDirs,
    archive: Archive | None = None,
    allowed: frozenset[str] = PERSON,
) -> ExtractContext:
    """Return an extraction context; words are written if configured and `allowed`."""
    options = load_options(runtime, dirs)
    options = msgspec.structs.replace(options, words=options.words and "words" in allowed)
    redactor = make_row_redactor(runtime, dirs)
    return ExtractContext(dirs, archive or open_archive(runtime), redactor, options)


def require_dataset(runtime: Runtime) -> DatasetDirs:
    """Return the dataset of this repository, or raise `NotFound`."""
    dirs = locate_dataset(runtime)
    if not dirs.tracked_dir.is_dir():
        hint = "flightlog dataset session sync-to-jsonl"
        raise NotFound(f"no training rows in this repository: {dirs.tracked_dir}", hint=hint)
    return dirs


def sync_repository(
    runtime: Runtime, dirs: DatasetDirs, allowed: frozenset[str] = PERSON
) -> sync.SyncReport:
    """Write every missing row; a person who starts a dataset here allows rows from now on."""
    if is_off(runtime):
        return sync.SyncReport(0, 0, (), 0, load_options(runtime, dirs).words)
    if allowed == PERSON and not dirs.tracked_dir.is_dir():
        open_trust(runtime).allow_rows(dirs.repository.top)
    context = make_extract_context(runtime, dirs, None, allowed)
    own = sync.iter_own_sessions(context.archive, dirs)
    return sync.sync_dataset(context, own, _default_branch(runtime, dirs))


def sync_new_commits(runtime: Runtime, dirs: DatasetDirs) -> int:
    """Write the commits since the last sync, for the post-commit hook; return how many."""
    allowed = allowed_writes(runtime, dirs.repository.top)
    if is_off(runtime) or not allowed:
        return 0
    tip = head_commit(dirs.repository)
    newest = next(iter_commits(dirs.repository, [tip] if tip else [], limit=1), None)
    # A commit of rows alone waits for the next commit: its own row would need yet another commit.
    if newest is None or all(path.startswith(f"{ROOT}/") for path in newest.files):
        return 0
    context = make_extract_context(runtime, dirs, None, allowed)
    # A session of the last day may have made the commit and hold the secrets in its message.
    recent = runtime.clock.now_ms() - DAY_MS
    own = sync.iter_own_sessions(context.archive, dirs)
    return sync.sync_commits(context, (session for session in own if session.changed_ms >= recent))


class CompactMode(Enum):
    """How far a compaction goes."""

    DRY_RUN = "dry run"
    WRITE = "write"
    COMMIT = "commit"


def compact_repository(runtime: Runtime, dirs: DatasetDirs, mode: CompactMode) -> Compaction:
    """Compact the dataset as the current branch requires."""
    default = _default_branch(runtime, dirs)
    was_enabled = gc.isenabled()
    gc.disable()  # rows are many and form no cycles; collection takes a tenth of the time
    try:
        if mode is CompactMode.COMMIT:
            return compact_and_commit(dirs, make_row_redactor(runtime, dirs), default=default)
        redactor = make_row_redactor(runtime, dirs)
        return compact_dataset(dirs, redactor, default=default, dry_run=mode is CompactMode.DRY_RUN)
    finally:
        if was_enabled:
            gc.enable()


def find_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs | None:
    """Return the dataset of the repository here, or None, without writing."""
    folder = folder or Path(runtime.cwd)
    repository = find_repository(folder, trusted=is_trusted(runtime, folder))
    dirs = DatasetDirs(repository) if repository else None
    return dirs if dirs is not None and dirs.tracked_dir.is_dir() else None


def dataset_stats(runtime: Runtime, dirs: DatasetDirs) -> dict[str, Any]:
    """Return counts, sizes, milestones, quality and safety of the dataset."""
    dataset = read_dataset(dirs.tracked_dir)
    counts = stats.count_by_kind(dataset)
    return {
        "counts": counts,
        "total_bytes": total_bytes(dirs),
        "pending_shards": len(shard_files(dirs.tracked_dir)),
        "words": {
            "tracked": load_options(runtime, dirs).words,
            "chats_without_words": stats.count_withheld(dataset),
        },
        "tokens": stats.token_counts(dataset),
        "milestones": stats.milestone_progress(counts),
        "growth": stats.chats_by_month(dataset),
        "projected_bytes": stats.projected_bytes(dataset),
        "quality": stats.quality_score(dataset),
        "duplicate_rows": dict(dataset.repeats),
        "superseded_rows": dataset.older,
        "tombstones": dataset.count_rows().get("tombstone", 0),
        "damage_count": len(dataset.damage),
        "safety": msgspec.to_builtins(remote.measure_safety(dirs)),
        "now_ms": runtime.clock.now_ms(),
    }


def record_judgment(
    runtime: Runtime, dirs: DatasetDirs, name: str, field: str, value: object
) -> str:
    """Write a judgment of the row whose id starts with `name`; return its key."""
    key = retention.find_row_key(read_dataset(dirs.tracked_dir), name)
    check_judgment(key.partition(":")[0], field, value)
    redactor, now = make_row_redactor(runtime, dirs), runtime.clock.now_ms()
    rows = permitted_rows(judgment_rows(key, {field: value}, now), redactor, words=True)
    write_shard(dirs, "judged", values_of(rows), now, redactor)
    return key


def forget_rows(  # noqa: PLR0913 - one parameter per way to name rows
    runtime: Runtime,
    dirs: DatasetDirs,
    names: Sequence[str],
    text: str,
    times_ms: Sequence[int | None],
    *,
    dry_run: bool,
) -> retention.RemovalReport:
    """Remove sessions and rows by prefixes of ids, by a text, or by time; report what went."""
    dataset, now = read_dataset(dirs.tracked_dir), runtime.clock.now_ms()
    since, before = (format_row_time(time) if time is not None else "" for time in times_ms)
    tombstones = retention.tombstones_for_rows(dataset, names, now)
    if text:
        tombstones += retention.tombstones_for_text(dataset, text, now)
    if since or before:
        tombstones += retention.tombstones_for_time(
            dataset, since, before or format_row_time(now + 1000), now
        )
    return _remove_marked_rows(runtime, dirs, tombstones, dry_run=dry_run)


def strip_words(runtime: Runtime, dirs: DatasetDirs, *, dry_run: bool) -> retention.RemovalReport:
    """Remove the words of all rows until now; report which rows lost them."""
    tombstones = retention.tombstones_for_words(runtime.clock.now_ms())
    return _remove_marked_rows(runtime, dirs, tombstones, dry_run=dry_run)


def _remove_marked_rows(
    runtime: Runtime, dirs: DatasetDirs, tombstones: list[Row], *, dry_run: bool
) -> retention.RemovalReport:
    default = str(load_project_settings(runtime, dirs)["dataset.default_branch"].value)
    redactor = make_row_redactor(runtime, dirs)
    return retention.apply_tombstones(dirs, redactor, tombstones, default, dry_run=dry_run)


def retain_dataset(
    runtime: Runtime, dirs: DatasetDirs, *, dry_run: bool
) -> tuple[RetentionMove, ...]:
    """Add tombstones for rows that are too old; a dry run returns the same plan."""
    days = load_project_settings(runtime, dirs)["dataset.keep_days"].value
    if int(days) < 1:
        hint = "set keep_days under [dataset] in flightlog.toml to 1 or more"
        raise Misconfigured(f"dataset.keep_days would remove every row: {days}", hint=hint)
    moves = retention.rows_due(read_dataset(dirs.tracked_dir), int(days), runtime.clock.now_ms())
    if moves and not dry_run:
        why, now_ms = retention.WHY, runtime.clock.now_ms()
        rows = [make_tombstone(why, now_ms, row_id=move.item.name) for move in moves]
        write_shard(dirs, GONE, rows, runtime.clock.now_ms(), make_row_redactor(runtime, dirs))
    return moves
