"""Wiring of the dataset's commands: the repository one stands in, its settings, the clock."""

import gc
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightlog.app import now_ms
from flightlog.app.capturing import OFF, kit, options, place_here, push_if_on, records, said
from flightlog.dataset import remote, stats
from flightlog.dataset.book import FIELDS, Book, read_book, shard_files
from flightlog.dataset.commits import judged
from flightlog.dataset.compact import Compaction, compact, compact_and_commit
from flightlog.dataset.consent import permitted, values_of
from flightlog.dataset.layout import Place, total_bytes, write_shard
from flightlog.dataset.retain import WHY, due, tombstones
from flightlog.dataset.sync import SyncReport, belonging, sync, sync_commits
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import Move
from flightlog.sources.git import repository as repositories

__all__ = ["place_here", "push_if_on", "records", "said"]
_RECENT_MS = 86_400_000


def existing_place(folder: Path | None = None) -> Place:
    """Return the dataset of this repository, or say how to begin one."""
    place = place_here(folder)
    if not place.tracked.is_dir():
        raise NotFound(
            f"no training rows in this repository: {place.tracked}", hint="flightlog dataset session sync-to-jsonl"
        )
    return place


def sync_here(place: Place) -> SyncReport:
    """Write every row that the files of this repository lack."""
    tools = kit(place)
    default = str(said(place)["dataset.default_branch"].value)
    return sync(tools, belonging(tools.archive, place), default)


def sync_commits_here(place: Place) -> int:
    """Note the commits that are new since the last time, as the hook after a commit asks; return how many."""
    if os.environ.get(OFF) == "0":
        return 0
    tools = kit(place)
    # The sessions of the last day: one of them may have made the commit, and know what in its message is a secret.
    recent = now_ms() - _RECENT_MS
    sessions = (session for session in belonging(tools.archive, place) if session.changed_ms >= recent)
    return sync_commits(tools, sessions)


def compact_here(place: Place, *, dry_run: bool, commit: bool = False) -> Compaction:
    """Fold shards, as the branch that is checked out asks for."""
    default = str(said(place)["dataset.default_branch"].value)
    watched = gc.isenabled()
    gc.disable()  # rows are many and make no cycles; looking for some takes a tenth of the time
    try:
        if commit:
            return compact_and_commit(place, records(place), default=default)
        return compact(place, records(place), default=default, dry_run=dry_run)
    finally:
        if watched:
            gc.enable()


def looked_at(folder: Path | None = None) -> Place | None:
    """Return the dataset of the repository here, or nothing; looking writes nothing."""
    repository = repositories.find(folder or Path.cwd())
    place = Place(repository) if repository else None
    return place if place is not None and place.tracked.is_dir() else None


def stats_here(place: Place) -> dict[str, Any]:
    """Return what the dataset amounts to."""
    book = read_book(place.tracked)
    have = stats.counts(book)
    return {
        "counts": have,
        "bytes": total_bytes(place),
        "pending": len(shard_files(place.tracked)),
        "words": {"tracked": options(place).words, "chats_without_words": stats.withheld(book)},
        "tokens": stats.tokens(book),
        "milestones": stats.milestones(have),
        "growth": stats.growth(book),
        "projected_bytes": stats.projected(book),
        "quality": stats.quality(book),
        "repeats": dict(book.repeats),
        "older_versions": book.older,
        "tombstones": len(book.gone),
        "damage": len(book.damage),
        "safety": msgspec.to_builtins(remote.safety(place)),
        "now_ms": now_ms(),
    }


def judge(place: Place, name: str, field: str, value: object) -> str:
    """Write a later judgement of the row whose id begins with `name`; return its key."""
    book = read_book(place.tracked)
    key = _key(book, name)
    if field not in FIELDS:
        raise Invalid(f"no such judgement: {field[:40]!r}", hint=f"one of: {', '.join(sorted(FIELDS))}")
    rows = values_of(permitted(judged(key, {field: value}, now_ms()), records(place), words=True))
    write_shard(place, "judged", rows, now_ms(), records(place))
    return key


def forget(place: Place, names: Sequence[str], *, dry_run: bool) -> list[str]:
    """Tombstone the rows whose ids begin with these names; return their keys."""
    book = read_book(place.tracked)
    keys = [_key(book, name) for name in names]
    if not dry_run:
        write_shard(place, "gone", tombstones(keys, "asked for", now_ms()), now_ms(), records(place))
    return keys


def retain_here(place: Place, *, dry_run: bool) -> tuple[Move, ...]:
    """Tombstone the rows that are too old; a dry run shows the same plan."""
    days = said(place)["dataset.keep_days"].value
    moves = due(read_book(place.tracked), int(days), now_ms())
    if moves and not dry_run:
        rows = tombstones((move.item.name for move in moves), WHY, now_ms())
        write_shard(place, "gone", rows, now_ms(), records(place))
    return moves


def hook_command() -> str:
    """Return how git is to call us: the program beside this Python, else whatever is on the path."""
    beside = Path(sys.executable).with_name("flightlog")
    return shlex.quote(str(beside)) if beside.exists() else "flightlog"


def _key(book: Book, name: str) -> str:
    living = {key: row for key, row in book.rows.items() if key not in book.gone}
    found = [key for key, row in living.items() if name in (key, row.get("id"), row.get("hash"))]
    found = found or [key for key, row in living.items() if str(row.get("id", "")).startswith(name)]
    if not found:
        raise NotFound(f"no row has an id that begins with {name[:60]!r}", hint="flightlog dataset stats")
    if len(found) > 1:
        raise Invalid(f"{len(found)} rows have an id that begins with {name[:60]!r}", hint="write more of it")
    return found[0]
