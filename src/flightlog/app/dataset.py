"""Wiring of the dataset's commands: the repository one stands in, its settings, the clock."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightlog.app.capturing import PERSON, allowed_in, kit, options, place_here, push_if_on, records, said
from flightlog.app.collecting import is_off, say_if_off
from flightlog.dataset import remote, retain, stats
from flightlog.dataset.book import FIELDS, read_book, shard_files
from flightlog.dataset.commits import judged
from flightlog.dataset.compact import Compaction, compact, compact_and_commit
from flightlog.dataset.consent import permitted, values_of
from flightlog.dataset.forgotten import mark
from flightlog.dataset.layout import ROOT, Place, total_bytes, write_shard
from flightlog.dataset.rows import Row, moment
from flightlog.dataset.shards import GONE
from flightlog.dataset.sync import SyncReport, belonging, sync, sync_commits
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import Move
from flightlog.model.runtime import Runtime
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted, open_trust
from flightlog.sources.git import repository as repositories
from flightlog.sources.git.history import commits, head

__all__ = ["PERSON", "allowed_in", "place_here", "push_if_on", "records", "said", "say_if_off"]
_RECENT_MS = DAY_MS


def existing_place(runtime: Runtime, folder: Path | None = None) -> Place:
    """Return the dataset of this repository, or say how to begin one."""
    place = place_here(runtime, folder)
    if not place.tracked.is_dir():
        raise NotFound(
            f"no training rows in this repository: {place.tracked}", hint="flightlog dataset session sync-to-jsonl"
        )
    return place


def sync_here(runtime: Runtime, place: Place, allowed: frozenset[str] = PERSON) -> SyncReport:
    """Write every row that the files of this repository lack; who begins a dataset here allows rows from now on."""
    if is_off(runtime):
        return SyncReport(0, 0, (), 0, options(runtime, place).words)
    if allowed == PERSON and not place.tracked.is_dir():
        open_trust(runtime).allow_rows(place.repository.top)
    tools = kit(runtime, place, None, allowed)
    default = str(said(runtime, place)["dataset.default_branch"].value)
    return sync(tools, belonging(tools.archive, place), default)


def sync_commits_here(runtime: Runtime, place: Place) -> int:
    """Note the commits that are new since the last time, as the hook after a commit asks; return how many."""
    allowed = allowed_in(runtime, place.repository.top)
    if is_off(runtime) or not allowed:
        return 0
    tip = head(place.repository)
    newest = next(commits(place.repository, [tip] if tip else [], limit=1), None)
    # A commit of rows alone is noted with the next one: a row about it would have to be committed, too.
    if newest is None or all(path.startswith(f"{ROOT}/") for path in newest.files):
        return 0
    tools = kit(runtime, place, None, allowed)
    # The sessions of the last day: one of them may have made the commit, and know what in its message is a secret.
    recent = runtime.clock.now_ms() - _RECENT_MS
    sessions = (session for session in belonging(tools.archive, place) if session.changed_ms >= recent)
    return sync_commits(tools, sessions)


def compact_here(runtime: Runtime, place: Place, *, dry_run: bool, commit: bool = False) -> Compaction:
    """Fold shards, as the branch that is checked out asks for."""
    default = str(said(runtime, place)["dataset.default_branch"].value)
    watched = gc.isenabled()
    gc.disable()  # rows are many and make no cycles; looking for some takes a tenth of the time
    try:
        if commit:
            return compact_and_commit(place, records(runtime, place), default=default)
        return compact(place, records(runtime, place), default=default, dry_run=dry_run)
    finally:
        if watched:
            gc.enable()


def looked_at(runtime: Runtime, folder: Path | None = None) -> Place | None:
    """Return the dataset of the repository here, or nothing; looking writes nothing."""
    folder = folder or Path(runtime.cwd)
    repository = repositories.find(folder, trusted=is_trusted(runtime, folder))
    place = Place(repository) if repository else None
    return place if place is not None and place.tracked.is_dir() else None


def stats_here(runtime: Runtime, place: Place) -> dict[str, Any]:
    """Return what the dataset amounts to."""
    book = read_book(place.tracked)
    have = stats.counts(book)
    return {
        "counts": have,
        "bytes": total_bytes(place),
        "pending": len(shard_files(place.tracked)),
        "words": {"tracked": options(runtime, place).words, "chats_without_words": stats.withheld(book)},
        "tokens": stats.tokens(book),
        "milestones": stats.milestones(have),
        "growth": stats.growth(book),
        "projected_bytes": stats.projected(book),
        "quality": stats.quality(book),
        "repeats": dict(book.repeats),
        "older_versions": book.older,
        "tombstones": book.counts().get("tombstone", 0),
        "damage": len(book.damage),
        "safety": msgspec.to_builtins(remote.safety(place)),
        "now_ms": runtime.clock.now_ms(),
    }


def judge(runtime: Runtime, place: Place, name: str, field: str, value: object) -> str:
    """Write a later judgement of the row whose id begins with `name`; return its key."""
    book = read_book(place.tracked)
    key = retain.named(book, name)
    if field not in FIELDS:
        raise Invalid(f"no such judgement: {field[:40]!r}", hint=f"one of: {', '.join(sorted(FIELDS))}")
    rows = values_of(
        permitted(judged(key, {field: value}, runtime.clock.now_ms()), records(runtime, place), words=True)
    )
    write_shard(place, "judged", rows, runtime.clock.now_ms(), records(runtime, place))
    return key


def forget(  # noqa: PLR0913 - one parameter per way to name rows
    runtime: Runtime, place: Place, names: Sequence[str], text: str, times_ms: Sequence[int | None], *, dry_run: bool
) -> retain.LetGo:
    """Remove sessions and rows: by a prefix of their ids, by a text in them, by their time; return what went."""
    book, now = read_book(place.tracked), runtime.clock.now_ms()
    since, before = (moment(each) if each is not None else "" for each in times_ms)
    marks = retain.marks_of_rows(book, names, now)
    marks += retain.marks_of_text(book, text, now) if text else []
    marks += retain.marks_of_time(book, since, before or moment(now + 1000), now) if since or before else []
    return _let_go(runtime, place, marks, dry_run=dry_run)


def strip_words(runtime: Runtime, place: Place, *, dry_run: bool) -> retain.LetGo:
    """Remove the words of every row until now; return which rows lost them."""
    return _let_go(runtime, place, retain.marks_of_words(runtime.clock.now_ms()), dry_run=dry_run)


def _let_go(runtime: Runtime, place: Place, marks: list[Row], *, dry_run: bool) -> retain.LetGo:
    default = str(said(runtime, place)["dataset.default_branch"].value)
    return retain.let_go(place, records(runtime, place), marks, default, dry_run=dry_run)


def retain_here(runtime: Runtime, place: Place, *, dry_run: bool) -> tuple[Move, ...]:
    """Tombstone the rows that are too old; a dry run shows the same plan."""
    days = said(runtime, place)["dataset.keep_days"].value
    moves = retain.due(read_book(place.tracked), int(days), runtime.clock.now_ms())
    if moves and not dry_run:
        rows = [mark(retain.WHY, runtime.clock.now_ms(), of=move.item.name) for move in moves]
        write_shard(place, GONE, rows, runtime.clock.now_ms(), records(runtime, place))
    return moves
