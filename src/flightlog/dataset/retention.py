"""Letting rows go: the old ones by the retention engine, others because a person asks.

A tombstone keeps a row gone, or without its words, through every merge. `let_go` also removes the bytes from the work
tree, and says what git's history still holds. The older layouts' files are a person's own and stay.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.dataset.compact import compact_dataset, purge_shards
from flightlog.dataset.extract.consent import WORDS, withhold_words
from flightlog.dataset.extract.sync import FOLDERS, is_ours
from flightlog.dataset.layout import TRACKED, DatasetDirs, write_shard
from flightlog.dataset.reader import GONE, DatasetReader, base_files, read_blobs, read_dataset, read_files, shard_files
from flightlog.dataset.rows import COUNTED, WITHHELD, Row, format_row_time, short_session_id
from flightlog.dataset.state import recall_clone, writer_name
from flightlog.dataset.tombstones import TombstoneRules, make_tombstone, short_session_of
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import (
    RetentionAction,
    RetentionItem,
    RetentionMove,
    RetentionPolicy,
    RetentionRule,
    plan_retention,
)
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store import files
from flightlog.store.git.repository import current_branch, default_branch, git_output, read_blob_contents

WHY = "older than the project keeps rows"
ASKED = "asked for"
WITHDRAWN = "consent to words was withdrawn"
_TELLING_CHARS = 12  # shorter words of a row are found in files that have nothing to do with it
_AT_ONCE = 64  # blobs of history held in memory together


class RemovalReport(Struct, frozen=True):
    """What went, or would go: keys of rows that are gone or lost words or links, and what is left elsewhere."""

    gone: tuple[str, ...]
    stripped: tuple[str, ...]
    counts: dict[str, int]
    done: bool
    files_removed: tuple[str, ...] = ()
    files_left: tuple[str, ...] = ()
    versions_in_history: int = 0
    commands: tuple[str, ...] = ()


def rows_due(book: DatasetReader, keep_days: int, now_ms: int) -> tuple[RetentionMove, ...]:
    """Return the rows that are to go, oldest first; a row without a time stays."""
    items = [
        RetentionItem(key, str(row.get("kind")), at_ms, len(book.lines[key].line))
        for key, row in book.rows.items()
        if key not in book.removed_keys and (at_ms := _row_time_ms(row))
    ]
    rules = tuple(RetentionRule(kind, keep_days, RetentionAction.DELETE) for kind in COUNTED)
    return plan_retention(RetentionPolicy("dataset", rules, untouched=("chats", "sessions", "actions")), items, now_ms)


def tombstones_for_rows(book: DatasetReader, names: Iterable[str], now_ms: int) -> list[Row]:
    """Return marks for sessions and rows, each named by a unique prefix of its id."""
    return [mark for name in names for mark in _tombstones_for_row(book, find_row_key(book, name), now_ms)]


def tombstones_for_text(book: DatasetReader, text: str, now_ms: int) -> list[Row]:
    """Return marks for rows in which `text` occurs, in any case; a session that says it in its summary loses that."""
    if not (wanted := _normalize_text(text)):
        raise Invalid("no text to look for", hint='flightlog dataset forget --text "…" --dry-run')
    marks = []
    for key, row in _live_rows(book):
        if row.get("kind") == "session":
            marks += (
                [make_tombstone(ASKED, now_ms, session=short_session_of(row))]
                if wanted in _normalize_text(row.get("summary"))
                else []
            )
            marks += [make_tombstone(ASKED, now_ms, of=key)] if wanted in _normalize_text(withhold_words(row)) else []
        elif wanted in _normalize_text(row):
            marks += _tombstones_for_row(book, key, now_ms)
    return marks


def tombstones_for_time(book: DatasetReader, since: str, before: str, now_ms: int) -> list[Row]:
    """Return a mark for every row from `since` until just before `before`, and for the actions of its chats."""
    rules = TombstoneRules()
    rules.add_tombstone(make_tombstone(ASKED, now_ms, since=since, before=before))
    chats = [str(row.get("id")) for _, row in _live_rows(book) if row.get("kind") == "chat" and rules.covers_row(row)]
    return [
        make_tombstone(
            ASKED, now_ms, since=since, before=before, chats=sorted(chats), lanes=_subagents_of_chats(book, chats)
        )
    ]


def tombstones_for_words(now_ms: int) -> list[Row]:
    """Return the mark that rows of anything said until now have no words."""
    return [make_tombstone(WITHDRAWN, now_ms, before=format_row_time(now_ms), words=WITHHELD)]


def apply_tombstones(
    place: DatasetDirs, records: JsonRedactor, marks: Sequence[Row], default: str, *, dry_run: bool
) -> RemovalReport:
    """Write marks, then remove what they cover from the work tree; return what went and what is left."""
    book = read_dataset(place.tracked_dir)
    rules, before = book.forgotten, {key: (row, book.forgotten.strip_row(row)) for key, row in _live_rows(book)}
    for row in marks:
        rules.add_tombstone(row)
    gone = {key: row for key, (row, _) in before.items() if rules.covers_row(row)}
    stripped = {key: row for key, (row, old) in before.items() if key not in gone and rules.strip_row(row) != old}
    is_default = current_branch(place.repository) == (default or default_branch(place.repository))
    if marks and not dry_run:
        write_shard(place, GONE, marks, max(row["rev"] for row in marks), records)
        compact_dataset(place, records, default=default) if is_default else purge_shards(place, records)
        sessions = {short_session_of(row) for row in (*gone.values(), *stripped.values())}
        files.remove_files(
            path for path in (place.state_dir / "sessions").glob("*.json") if short_session_id(path.stem) in sessions
        )
    stale, left = _find_copies(place, gone.values(), stripped.values())
    if not dry_run:
        files.remove_files(stale)
        tracked = [*base_files(place.tracked_dir), *shard_files(place.tracked_dir)]
        left += [path for path in tracked if _is_stale(read_files([path]), rules)]
    held = _find_stale_blobs(place, rules)
    counts = Counter(sorted(str(row.get("kind")) for row in gone.values()))
    removed, kept = (tuple(str(path.relative_to(place.repository.top)) for path in each) for each in (stale, left))
    commands = tuple(_cleanup_commands(place, held, is_default=is_default, dry_run=dry_run))
    return RemovalReport(
        tuple(sorted(gone)), tuple(sorted(stripped)), dict(counts), not dry_run, removed, kept, len(held), commands
    )


def find_row_key(book: DatasetReader, name: str) -> str:
    """Return the key of the one row that `name` is the beginning of; of a session also where its row is not here."""
    living = dict(_live_rows(book))
    names = {key: {key, str(row.get("id") or ""), str(row.get("hash") or "")} for key, row in living.items()}
    sessions = {short_session_of(row): key for key, row in living.items() if row.get("kind") == "session"}
    for row in living.values():
        if session := str(row.get("session") or row.get("session_id") or ""):
            names.setdefault(sessions.setdefault(short_session_id(session), f"session:{session}"), set()).add(session)
    found = [key for key in names if name in names[key]]
    found = found or [key for key in names if name and any(each.startswith(name) for each in names[key])]
    if not found:
        raise NotFound(f"no row has an id that begins with {name[:60]!r}", hint="flightlog dataset stats")
    if len(found) > 1:
        raise Invalid(f"{len(found)} rows have an id that begins with {name[:60]!r}", hint="write more of it")
    return found[0]


def _tombstones_for_row(book: DatasetReader, key: str, now_ms: int) -> list[Row]:
    """Return marks for a row and all that belongs to it."""
    kind, _, rest = key.partition(":")
    row = book.rows.get(key, {})
    if kind == "session":
        inside = [each for _, each in _live_rows(book) if short_session_of(each) == short_session_id(rest)]
        chats = sorted(str(each.get("id")) for each in inside if each.get("kind") == "chat")
        return [make_tombstone(ASKED, now_ms, session=rest, whole=True, chats=chats)]
    if kind == "chat":
        chats = [str(row.get("id"))]
        return [
            make_tombstone(
                ASKED, now_ms, session=short_session_of(row), chats=chats, lanes=_subagents_of_chats(book, chats)
            )
        ]
    return [make_tombstone(ASKED, now_ms, of=key)]


def _subagents_of_chats(book: DatasetReader, chats: Iterable[str]) -> list[str]:
    """Return the subagents that these chats started; their actions name no chat."""
    wanted = set(chats)
    agents = [agent for row in book.rows_of_kind("orchestration") for agent in row.get("agents", ())]
    return sorted(str(agent.get("id")) for agent in agents if str(agent.get("chat_id")) in wanted)


def _live_rows(book: DatasetReader) -> Iterator[tuple[str, Row]]:
    gone = book.removed_keys
    return ((key, row) for key, row in book.rows.items() if key not in gone and row.get("kind") != "tombstone")


def _normalize_text(value: object) -> str:
    """Return all texts in a value as one, in small letters, spaces and line ends alike."""
    if isinstance(value, dict | list):
        return "\0".join(map(_normalize_text, value.values() if isinstance(value, dict) else value))
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def _is_stale(book: DatasetReader, rules: TombstoneRules) -> bool:
    return any(rules.covers_row(row) or rules.strip_row(row) is not row for row in book.rows.values())


def _find_copies(place: DatasetDirs, gone: Iterable[Row], stripped: Iterable[Row]) -> tuple[list[Path], list[Path]]:
    """Return files beside the tracked ones with ids or words of these rows: copies and exports, and a person's own."""
    rows = (*(forgotten := list(gone)), *stripped)
    texts = {str(row.get("id") or "") for row in forgotten}
    texts |= {str(row.get(name) or "") for row in rows for name in WORDS}
    texts |= {target for row in rows if " " in (target := str(row.get("target") or ""))}
    telling = [text for text in texts if len(text) >= _TELLING_CHARS]
    needles = {each for text in telling for each in (text.encode("utf-8", "replace"), msgspec.json.encode(text)[1:-1])}
    beside = (
        path for path in sorted(place.root.rglob("*")) if path.is_file() and place.tracked_dir not in path.parents
    )
    found = [path for path in beside if any(needle in path.read_bytes() for needle in needles)]
    own = [path for path in found if path.relative_to(place.root).parts[0] in FOLDERS and not is_ours(path)]
    return [path for path in found if path not in own], own


def _find_stale_blobs(place: DatasetDirs, rules: TombstoneRules) -> list[str]:
    """Return the versions of files, in any ref, that hold a row which is gone or lost its words."""
    listed = git_output(place.repository, "rev-list", "--objects", "--all", "--", TRACKED).splitlines()
    found = [(line[:at], line[at + 1 :]) for line in listed if (at := line.find(" ")) > 0 and line.endswith(".jsonl")]
    held = []
    for begin in range(0, len(found), _AT_ONCE):
        paths = dict(found[begin : begin + _AT_ONCE])
        bodies = read_blob_contents(place.repository, paths)
        held += [blob for blob, body in bodies.items() if _is_stale(read_blobs({paths[blob]: body}), rules)]
    return held


def _cleanup_commands(place: DatasetDirs, held: Sequence[str], *, is_default: bool, dry_run: bool) -> Iterator[str]:
    """Yield the commands that remove these versions from history, in their order; names of blobs go into a file."""
    if not held:
        return
    path = place.state_dir / "forgotten-blobs"
    if not dry_run:
        files.replace_file(path, "".join(f"{blob}\n" for blob in held).encode())
    by_hand = "git add .git-ml && git commit -m 'Forget rows'"
    yield "flightlog dataset tracked compact --commit" if is_default else by_hand
    yield f"git filter-repo --force --strip-blobs-with-ids {os.path.relpath(path, place.repository.top)}"
    if recall_clone(place.state_dir).pushed:
        yield f"git push REMOTE --delete refs/flightlog/dataset/{writer_name(place.state_dir)}"


def _row_time_ms(row: Row) -> int:
    said = str(row.get("ended_at") or row.get("timestamp") or row.get("started_at") or "")
    try:
        return int(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
