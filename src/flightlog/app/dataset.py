"""Wiring of the dataset's commands: the repository one stands in, its settings, the clock."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightlog.app.capturing import (
    PERSON,
    allowed_writes,
    load_options,
    load_project_settings,
    locate_dataset,
    make_extract_context,
    make_row_redactor,
    push_if_enabled,
)
from flightlog.app.collecting import is_off, report_if_off
from flightlog.dataset import remote, retain, stats
from flightlog.dataset.book import FIELDS, read_dataset, shard_files
from flightlog.dataset.commits import judgment_rows
from flightlog.dataset.compact import Compaction, compact_and_commit, compact_dataset
from flightlog.dataset.consent import permitted_rows, values_of
from flightlog.dataset.forgotten import make_tombstone
from flightlog.dataset.layout import ROOT, DatasetDirs, total_bytes, write_shard
from flightlog.dataset.rows import Row, format_row_time
from flightlog.dataset.shards import GONE
from flightlog.dataset.sync import SyncReport, iter_own_sessions, sync_commits, sync_dataset
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import RetentionMove
from flightlog.model.runtime import Runtime
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted, open_trust
from flightlog.sources.git import repository as repositories
from flightlog.sources.git.history import head_commit, iter_commits

__all__ = [
    "PERSON",
    "allowed_writes",
    "load_project_settings",
    "locate_dataset",
    "make_row_redactor",
    "push_if_enabled",
    "report_if_off",
]
_RECENT_MS = DAY_MS


def require_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs:
    """Return the dataset of this repository, or say how to begin one."""
    place = locate_dataset(runtime, folder)
    if not place.tracked_dir.is_dir():
        raise NotFound(
            f"no training rows in this repository: {place.tracked_dir}", hint="flightlog dataset session sync-to-jsonl"
        )
    return place


def sync_repository(runtime: Runtime, place: DatasetDirs, allowed: frozenset[str] = PERSON) -> SyncReport:
    """Write every row that the files of this repository lack; who begins a dataset here allows rows from now on."""
    if is_off(runtime):
        return SyncReport(0, 0, (), 0, load_options(runtime, place).words)
    if allowed == PERSON and not place.tracked_dir.is_dir():
        open_trust(runtime).allow_rows(place.repository.top)
    tools = make_extract_context(runtime, place, None, allowed)
    default = str(load_project_settings(runtime, place)["dataset.default_branch"].value)
    return sync_dataset(tools, iter_own_sessions(tools.archive, place), default)


def sync_new_commits(runtime: Runtime, place: DatasetDirs) -> int:
    """Note the commits that are new since the last time, as the hook after a commit asks; return how many."""
    allowed = allowed_writes(runtime, place.repository.top)
    if is_off(runtime) or not allowed:
        return 0
    tip = head_commit(place.repository)
    newest = next(iter_commits(place.repository, [tip] if tip else [], limit=1), None)
    # A commit of rows alone is noted with the next one: a row about it would have to be committed, too.
    if newest is None or all(path.startswith(f"{ROOT}/") for path in newest.files):
        return 0
    tools = make_extract_context(runtime, place, None, allowed)
    # The sessions of the last day: one of them may have made the commit, and know what in its message is a secret.
    recent = runtime.clock.now_ms() - _RECENT_MS
    sessions = (session for session in iter_own_sessions(tools.archive, place) if session.changed_ms >= recent)
    return sync_commits(tools, sessions)


def compact_repository(runtime: Runtime, place: DatasetDirs, *, dry_run: bool, commit: bool = False) -> Compaction:
    """Fold shards, as the branch that is checked out asks for."""
    default = str(load_project_settings(runtime, place)["dataset.default_branch"].value)
    watched = gc.isenabled()
    gc.disable()  # rows are many and make no cycles; looking for some takes a tenth of the time
    try:
        if commit:
            return compact_and_commit(place, make_row_redactor(runtime, place), default=default)
        return compact_dataset(place, make_row_redactor(runtime, place), default=default, dry_run=dry_run)
    finally:
        if watched:
            gc.enable()


def find_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs | None:
    """Return the dataset of the repository here, or nothing; looking writes nothing."""
    folder = folder or Path(runtime.cwd)
    repository = repositories.find_repository(folder, trusted=is_trusted(runtime, folder))
    place = DatasetDirs(repository) if repository else None
    return place if place is not None and place.tracked_dir.is_dir() else None


def dataset_stats(runtime: Runtime, place: DatasetDirs) -> dict[str, Any]:
    """Return what the dataset amounts to."""
    book = read_dataset(place.tracked_dir)
    have = stats.count_by_kind(book)
    return {
        "counts": have,
        "bytes": total_bytes(place),
        "pending": len(shard_files(place.tracked_dir)),
        "words": {"tracked": load_options(runtime, place).words, "chats_without_words": stats.count_withheld(book)},
        "tokens": stats.token_counts(book),
        "milestones": stats.milestone_progress(have),
        "growth": stats.chats_by_month(book),
        "projected_bytes": stats.projected_bytes(book),
        "quality": stats.quality_score(book),
        "repeats": dict(book.repeats),
        "older_versions": book.older,
        "tombstones": book.count_rows().get("tombstone", 0),
        "damage": len(book.damage),
        "safety": msgspec.to_builtins(remote.measure_safety(place)),
        "now_ms": runtime.clock.now_ms(),
    }


def record_judgment(runtime: Runtime, place: DatasetDirs, name: str, field: str, value: object) -> str:
    """Write a later judgement of the row whose id begins with `name`; return its key."""
    book = read_dataset(place.tracked_dir)
    key = retain.find_row_key(book, name)
    if field not in FIELDS:
        raise Invalid(f"no such judgement: {field[:40]!r}", hint=f"one of: {', '.join(sorted(FIELDS))}")
    rows = values_of(
        permitted_rows(
            judgment_rows(key, {field: value}, runtime.clock.now_ms()), make_row_redactor(runtime, place), words=True
        )
    )
    write_shard(place, "judged", rows, runtime.clock.now_ms(), make_row_redactor(runtime, place))
    return key


def forget_rows(  # noqa: PLR0913 - one parameter per way to name rows
    runtime: Runtime,
    place: DatasetDirs,
    names: Sequence[str],
    text: str,
    times_ms: Sequence[int | None],
    *,
    dry_run: bool,
) -> retain.RemovalReport:
    """Remove sessions and rows: by a prefix of their ids, by a text in them, by their time; return what went."""
    book, now = read_dataset(place.tracked_dir), runtime.clock.now_ms()
    since, before = (format_row_time(each) if each is not None else "" for each in times_ms)
    marks = retain.tombstones_for_rows(book, names, now)
    marks += retain.tombstones_for_text(book, text, now) if text else []
    marks += (
        retain.tombstones_for_time(book, since, before or format_row_time(now + 1000), now) if since or before else []
    )
    return _remove_marked_rows(runtime, place, marks, dry_run=dry_run)


def strip_words(runtime: Runtime, place: DatasetDirs, *, dry_run: bool) -> retain.RemovalReport:
    """Remove the words of every row until now; return which rows lost them."""
    return _remove_marked_rows(runtime, place, retain.tombstones_for_words(runtime.clock.now_ms()), dry_run=dry_run)


def _remove_marked_rows(
    runtime: Runtime, place: DatasetDirs, marks: list[Row], *, dry_run: bool
) -> retain.RemovalReport:
    default = str(load_project_settings(runtime, place)["dataset.default_branch"].value)
    return retain.apply_tombstones(place, make_row_redactor(runtime, place), marks, default, dry_run=dry_run)


def retain_dataset(runtime: Runtime, place: DatasetDirs, *, dry_run: bool) -> tuple[RetentionMove, ...]:
    """Tombstone the rows that are too old; a dry run shows the same plan."""
    days = load_project_settings(runtime, place)["dataset.keep_days"].value
    moves = retain.rows_due(read_dataset(place.tracked_dir), int(days), runtime.clock.now_ms())
    if moves and not dry_run:
        rows = [make_tombstone(retain.WHY, runtime.clock.now_ms(), of=move.item.name) for move in moves]
        write_shard(place, GONE, rows, runtime.clock.now_ms(), make_row_redactor(runtime, place))
    return moves
