"""What the CLI and settle call.

An agent may be waiting for it, so it loads no more than a capture needs; the rest is in `app.dataset`.
"""

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightlog.archive.archive import Archive, SessionFiles, open_archive
from flightlog.dataset import remote, retention, stats
from flightlog.dataset.compact import Compaction, compact_and_commit, compact_dataset
from flightlog.dataset.extract.commits import judgment_rows
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.extract import ExtractContext, ExtractOptions, capture_session
from flightlog.dataset.extract.sync import SyncReport, is_inside, iter_own_sessions, sync_commits, sync_dataset
from flightlog.dataset.layout import ROOT, DatasetDirs, total_bytes, write_shard
from flightlog.dataset.reader import FIELDS, GONE, read_dataset, shard_files
from flightlog.dataset.rows import NAMES, Row, format_row_time
from flightlog.dataset.state import find_collecting_root, is_off, report_if_off, row_sources, writer_name
from flightlog.dataset.tombstones import make_tombstone
from flightlog.model.errors import FlightlogError, Invalid, NotFound
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

OWN_HOOK = "own-hook"  # as `app.hook.recorder` names it
PERSON = frozenset({"rows", "words", "push"})  # what a person's own command may write, as far as settings say so
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


def extract_session_rows(runtime: Runtime, archive: Archive, recording: SessionFiles, cwd: str) -> int:
    """Capture a session that was just settled, if its repository collects rows; then push, if that is on."""
    top = None if is_off(runtime) else find_collecting_root(Path(cwd))
    if top is None or not is_inside(cwd, top):
        return 0
    allowed = allowed_writes(runtime, top, own_hook=_ran_own_hook(runtime, recording, top))
    if not allowed:
        return 0
    place = DatasetDirs(Repository(top, find_common_dir(top), is_trusted(runtime, top)))
    writer_name(place.state_dir, os.urandom(4).hex())
    tools = make_extract_context(runtime, place, archive, allowed)
    rows = capture_session(tools, recording).rows + sync_commits(tools)
    if "push" in allowed:
        push_if_enabled(runtime, place)
    return rows


def allowed_writes(runtime: Runtime, top: Path, *, own_hook: bool = False) -> frozenset[str]:
    """Return what may be written into a repository without a person's own command: of rows, words and push."""
    return frozenset().union(*row_sources(runtime, top, own_hook=own_hook).values())


def _ran_own_hook(runtime: Runtime, recording: SessionFiles, top: Path) -> bool:
    """Return whether a hook of this repository's own recorded the session; the recorder leaves its directory."""
    try:
        project = (
            (session_dir(Path(runtime.data_dir), recording.agent, recording.session) / OWN_HOOK)
            .read_text("utf-8")
            .strip()
        )
    except (OSError, UnicodeDecodeError):
        return False
    return Path(project).is_absolute() and find_collecting_root(Path(project)) == top


def push_if_enabled(runtime: Runtime, place: DatasetDirs) -> FlightlogError | None:
    """Push the rows if the project said so; a network that is away costs nothing but the safety of the last ones."""
    values = load_project_settings(runtime, place)
    if values["dataset.push"].value is not True:
        return None
    from flightlog.dataset import remote  # noqa: PLC0415 - most projects do not push

    try:
        remote.push_shards(place, str(values["dataset.remote"].value), runtime.clock.now_ms())
    except FlightlogError as error:
        return error
    return None


def locate_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs:
    """Return the dataset of the repository that holds `folder`."""
    folder = folder or Path(runtime.cwd)
    place = DatasetDirs(repository.open_repository(folder, trusted=is_trusted(runtime, folder)))
    writer_name(place.state_dir, os.urandom(4).hex())
    return place


def load_project_settings(runtime: Runtime, place: DatasetDirs) -> Mapping[str, ConfigValue]:
    """Return the settings in force for a repository; what it may not decide by itself needs trust."""
    return runtime.read_config(str(place.repository.top))


def load_options(runtime: Runtime, place: DatasetDirs) -> ExtractOptions:
    """Return what the project said yes to."""
    values = load_project_settings(runtime, place)
    return ExtractOptions(
        words=values["dataset.track_words"].value is True, local_cache=values["dataset.local_cache"].value is True
    )


def make_row_redactor(runtime: Runtime, place: DatasetDirs) -> JsonRedactor:
    """Return the redactor for rows of a repository; its own directory is called `.`."""
    return JsonRedactor(make_redactor(runtime, place.repository.top, {str(place.repository.top): "."}), NAMES)


def make_extract_context(
    runtime: Runtime, place: DatasetDirs, archive: Archive | None = None, allowed: frozenset[str] = PERSON
) -> ExtractContext:
    """Return what a capture works with; words are written if the settings say so and they are `allowed`."""
    wanted = load_options(runtime, place)
    wanted = msgspec.structs.replace(wanted, words=wanted.words and "words" in allowed)
    return ExtractContext(place, archive or open_archive(runtime), make_row_redactor(runtime, place), wanted)


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
    repository = find_repository(folder, trusted=is_trusted(runtime, folder))
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
    key = retention.find_row_key(book, name)
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
) -> retention.RemovalReport:
    """Remove sessions and rows: by a prefix of their ids, by a text in them, by their time; return what went."""
    book, now = read_dataset(place.tracked_dir), runtime.clock.now_ms()
    since, before = (format_row_time(each) if each is not None else "" for each in times_ms)
    marks = retention.tombstones_for_rows(book, names, now)
    marks += retention.tombstones_for_text(book, text, now) if text else []
    marks += (
        retention.tombstones_for_time(book, since, before or format_row_time(now + 1000), now)
        if since or before
        else []
    )
    return _remove_marked_rows(runtime, place, marks, dry_run=dry_run)


def strip_words(runtime: Runtime, place: DatasetDirs, *, dry_run: bool) -> retention.RemovalReport:
    """Remove the words of every row until now; return which rows lost them."""
    return _remove_marked_rows(runtime, place, retention.tombstones_for_words(runtime.clock.now_ms()), dry_run=dry_run)


def _remove_marked_rows(
    runtime: Runtime, place: DatasetDirs, marks: list[Row], *, dry_run: bool
) -> retention.RemovalReport:
    default = str(load_project_settings(runtime, place)["dataset.default_branch"].value)
    return retention.apply_tombstones(place, make_row_redactor(runtime, place), marks, default, dry_run=dry_run)


def retain_dataset(runtime: Runtime, place: DatasetDirs, *, dry_run: bool) -> tuple[RetentionMove, ...]:
    """Tombstone the rows that are too old; a dry run shows the same plan."""
    days = load_project_settings(runtime, place)["dataset.keep_days"].value
    moves = retention.rows_due(read_dataset(place.tracked_dir), int(days), runtime.clock.now_ms())
    if moves and not dry_run:
        rows = [make_tombstone(retention.WHY, runtime.clock.now_ms(), of=move.item.name) for move in moves]
        write_shard(place, GONE, rows, runtime.clock.now_ms(), make_row_redactor(runtime, place))
    return moves
