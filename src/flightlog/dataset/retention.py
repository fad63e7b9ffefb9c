"""Removal of rows: old ones by the retention engine, others on request.

A tombstone keeps a row removed, or without its words, through every merge. `apply_tombstones` also
removes the bytes from the work tree, and reports what git's history still holds. Files of the older
layouts belong to the user and stay.
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
from flightlog.dataset.reader import (
    GONE,
    DatasetReader,
    base_files,
    read_blobs,
    read_dataset,
    read_files,
    shard_files,
)
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
from flightlog.store.git.repository import (
    current_branch,
    default_branch,
    git_output,
    read_blob_contents,
)

WHY = "older than the project keeps rows"
ASKED = "asked for"
WITHDRAWN = "consent to words was withdrawn"
_TELLING_CHARS = 12  # shorter texts of a row also occur in unrelated files
_AT_ONCE = 64  # blobs of history held in memory at a time
_BLOBS = "forgotten-blobs"  # the file with their names, for git filter-repo


class RemovalReport(Struct, frozen=True):
    """Keys of removed and stripped rows, and the copies that are left."""

    deleted_rows: tuple[str, ...]
    stripped_rows: tuple[str, ...]
    deleted_by_kind: dict[str, int]
    is_done: bool
    removed_files: tuple[str, ...] = ()
    remaining_files: tuple[str, ...] = ()
    versions_in_history: int = 0
    commands: tuple[str, ...] = ()


def rows_due(dataset: DatasetReader, keep_days: int, now_ms: int) -> tuple[RetentionMove, ...]:
    """Return the rows that are too old, oldest first; a row without a time stays."""
    items = [
        RetentionItem(key, str(row.get("kind")), at_ms, len(dataset.lines[key].line))
        for key, row in dataset.rows.items()
        if key not in dataset.removed_keys and (at_ms := _row_time_ms(row))
    ]
    rules = tuple(RetentionRule(kind, keep_days, RetentionAction.DELETE) for kind in COUNTED)
    policy = RetentionPolicy("dataset", rules, excluded_names=("chats", "sessions", "actions"))
    return plan_retention(policy, items, now_ms)


def tombstones_for_rows(dataset: DatasetReader, names: Iterable[str], now_ms: int) -> list[Row]:
    """Return tombstones for sessions and rows, each named by a unique prefix of its id."""
    keys = [find_row_key(dataset, name) for name in names]
    return [tombstone for key in keys for tombstone in _tombstones_for_row(dataset, key, now_ms)]


def tombstones_for_text(dataset: DatasetReader, text: str, now_ms: int) -> list[Row]:
    """Return tombstones for rows that contain `text`, ignoring case.

    A session whose summary contains it loses only the summary.
    """
    if not (wanted := _normalize_text(text)):
        hint = 'flightlog dataset forget --text "…" --dry-run'
        raise Invalid("the text to search for is empty", hint=hint)
    tombstones = []
    for key, row in _live_rows(dataset):
        if row.get("kind") == "session":
            if wanted in _normalize_text(row.get("summary")):
                tombstones.append(make_tombstone(ASKED, now_ms, session=short_session_of(row)))
            if wanted in _normalize_text(withhold_words(row)):
                tombstones.append(make_tombstone(ASKED, now_ms, row_id=key))
        elif wanted in _normalize_text(row):
            tombstones += _tombstones_for_row(dataset, key, now_ms)
    return tombstones


def tombstones_for_time(dataset: DatasetReader, since: str, before: str, now_ms: int) -> list[Row]:
    """Return a tombstone for every row from `since` up to `before`, and actions of its chats."""
    rules = TombstoneRules()
    rules.add_tombstone(make_tombstone(ASKED, now_ms, since=since, before=before))
    rows = [row for _, row in _live_rows(dataset) if row.get("kind") == "chat"]
    chats = [str(row.get("id")) for row in rows if rules.covers_row(row)]
    subagents = _subagents_of_chats(dataset, chats)
    return [
        make_tombstone(
            ASKED, now_ms, since=since, before=before, chats=sorted(chats), subagents=subagents
        )
    ]


def tombstones_for_words(now_ms: int) -> list[Row]:
    """Return the tombstone that removes the words of all rows until now."""
    return [make_tombstone(WITHDRAWN, now_ms, before=format_row_time(now_ms), words=WITHHELD)]


def apply_tombstones(
    dirs: DatasetDirs,
    redactor: JsonRedactor,
    tombstones: Sequence[Row],
    default: str,
    *,
    dry_run: bool,
) -> RemovalReport:
    """Write tombstones, remove what they cover from the work tree, and report it."""
    dataset = read_dataset(dirs.tracked_dir)
    rules = dataset.forgotten
    before = {key: (row, rules.strip_row(row)) for key, row in _live_rows(dataset)}
    for row in tombstones:
        rules.add_tombstone(row)
    removed = {key: row for key, (row, _) in before.items() if rules.covers_row(row)}
    rest = {key: rows for key, rows in before.items() if key not in removed}
    stripped = {key: row for key, (row, old) in rest.items() if rules.strip_row(row) != old}
    is_default = current_branch(dirs.repository) == (default or default_branch(dirs.repository))
    if tombstones and not dry_run:
        write_shard(dirs, GONE, tombstones, max(row["rev"] for row in tombstones), redactor)
        compact_dataset(dirs, redactor, default=default) if is_default else purge_shards(
            dirs, redactor
        )
        sessions = {short_session_of(row) for row in (*removed.values(), *stripped.values())}
        states = (dirs.state_dir / "sessions").glob("*.json")
        files.remove_files(path for path in states if short_session_id(path.stem) in sessions)
    stale, left = _find_copies(dirs, removed.values(), stripped.values())
    if not dry_run:
        files.remove_files(stale)
        tracked = [*base_files(dirs.tracked_dir), *shard_files(dirs.tracked_dir)]
        left += [path for path in tracked if _is_stale(read_files([path]), rules)]
    blobs = _find_stale_blobs(dirs, rules)
    if blobs and not dry_run:
        files.replace_file(dirs.state_dir / _BLOBS, "".join(f"{blob}\n" for blob in blobs).encode())
    return RemovalReport(
        deleted_rows=tuple(sorted(removed)),
        stripped_rows=tuple(sorted(stripped)),
        deleted_by_kind=dict(Counter(sorted(str(row.get("kind")) for row in removed.values()))),
        is_done=not dry_run,
        removed_files=tuple(str(path.relative_to(dirs.repository.top)) for path in stale),
        remaining_files=tuple(str(path.relative_to(dirs.repository.top)) for path in left),
        versions_in_history=len(blobs),
        commands=tuple(_cleanup_commands(dirs, is_default=is_default)) if blobs else (),
    )


def find_row_key(dataset: DatasetReader, name: str) -> str:
    """Return the key of the only row whose id starts with `name`.

    A session is also found by rows that refer to it.
    """
    rows = dict(_live_rows(dataset))
    names = {
        key: {key, str(row.get("id") or ""), str(row.get("hash") or "")}
        for key, row in rows.items()
    }
    sessions = {
        short_session_of(row): key for key, row in rows.items() if row.get("kind") == "session"
    }
    for row in rows.values():
        if session := str(row.get("session") or row.get("session_id") or ""):
            names.setdefault(
                sessions.setdefault(short_session_id(session), f"session:{session}"), set()
            ).add(session)
    matches = [key for key in names if name in names[key]]
    matches = matches or [
        key for key in names if name and any(own.startswith(name) for own in names[key])
    ]
    if not matches:
        raise NotFound(f"no row id starts with {name[:60]!r}", hint="flightlog dataset stats")
    if len(matches) > 1:
        hint = "use a longer prefix"
        raise Invalid(f"{len(matches)} row ids start with {name[:60]!r}", hint=hint)
    return matches[0]


def _tombstones_for_row(dataset: DatasetReader, key: str, now_ms: int) -> list[Row]:
    """Return tombstones for a row and all rows that belong to it."""
    kind, _, rest = key.partition(":")
    row = dataset.rows.get(key, {})
    if kind == "session":
        session, live = short_session_id(rest), _live_rows(dataset)
        own = [other for _, other in live if short_session_of(other) == session]
        chats = sorted(str(other.get("id")) for other in own if other.get("kind") == "chat")
        return [make_tombstone(ASKED, now_ms, session=rest, is_whole_session=True, chats=chats)]
    if kind == "chat":
        chats = [str(row.get("id"))]
        subagents = _subagents_of_chats(dataset, chats)
        session = short_session_of(row)
        return [make_tombstone(ASKED, now_ms, session=session, chats=chats, subagents=subagents)]
    return [make_tombstone(ASKED, now_ms, row_id=key)]


def _subagents_of_chats(dataset: DatasetReader, chats: Iterable[str]) -> list[str]:
    """Return the subagents that these chats started; their actions name no chat."""
    wanted = set(chats)
    agents = [
        agent for row in dataset.rows_of_kind("orchestration") for agent in row.get("agents", ())
    ]
    return sorted(str(agent.get("id")) for agent in agents if str(agent.get("chat_id")) in wanted)


def _live_rows(dataset: DatasetReader) -> Iterator[tuple[str, Row]]:
    gone = dataset.removed_keys
    live = ((key, row) for key, row in dataset.rows.items() if key not in gone)
    return ((key, row) for key, row in live if row.get("kind") != "tombstone")


def _normalize_text(value: object) -> str:
    """Return all texts in a value as one, in lower case and with single spaces."""
    if isinstance(value, dict | list):
        return "\0".join(map(_normalize_text, value.values() if isinstance(value, dict) else value))
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def _is_stale(dataset: DatasetReader, rules: TombstoneRules) -> bool:
    return any(
        rules.covers_row(row) or rules.strip_row(row) is not row for row in dataset.rows.values()
    )


def _find_copies(
    dirs: DatasetDirs, gone: Iterable[Row], stripped: Iterable[Row]
) -> tuple[list[Path], list[Path]]:
    """Return untracked files with ids or words of these rows: flightlog's, and the user's."""
    removed = list(gone)
    rows = (*removed, *stripped)
    texts = {str(row.get("id") or "") for row in removed}
    texts |= {str(row.get(name) or "") for row in rows for name in WORDS}
    texts |= {target for row in rows if " " in (target := str(row.get("target") or ""))}
    distinctive = [text for text in texts if len(text) >= _TELLING_CHARS]
    needles = {text.encode("utf-8", "replace") for text in distinctive}
    needles |= {msgspec.json.encode(text)[1:-1] for text in distinctive}
    copies: list[Path] = []
    own: list[Path] = []
    for path in sorted(dirs.root.rglob("*")):
        if not path.is_file() or dirs.tracked_dir in path.parents:
            continue
        body = path.read_bytes()
        if any(needle in body for needle in needles):
            is_own = path.relative_to(dirs.root).parts[0] in FOLDERS and not is_ours(path)
            (own if is_own else copies).append(path)
    return copies, own


def _find_stale_blobs(dirs: DatasetDirs, rules: TombstoneRules) -> list[str]:
    """Return the blobs, in any ref, with a row that is removed or lost its words."""
    listed = git_output(
        dirs.repository, "rev-list", "--objects", "--all", "--", TRACKED
    ).splitlines()
    named = [line.partition(" ") for line in listed if line.endswith(".jsonl")]
    blobs = [(blob, path) for blob, space, path in named if blob and space]
    stale = []
    for start in range(0, len(blobs), _AT_ONCE):
        paths = dict(blobs[start : start + _AT_ONCE])
        stale += [
            blob
            for blob, body in read_blob_contents(dirs.repository, paths).items()
            if _is_stale(read_blobs({paths[blob]: body}), rules)
        ]
    return stale


def _cleanup_commands(dirs: DatasetDirs, *, is_default: bool) -> Iterator[str]:
    """Yield the commands that remove the stale blobs from history, in order."""
    by_hand = "git add .git-ml && git commit -m 'Forget rows'"
    yield "flightlog dataset tracked compact --commit" if is_default else by_hand
    path = os.path.relpath(dirs.state_dir / _BLOBS, dirs.repository.top)
    yield f"git filter-repo --force --strip-blobs-with-ids {path}"
    if recall_clone(dirs.state_dir).pushed_commit:
        yield f"git push REMOTE --delete refs/flightlog/dataset/{writer_name(dirs.state_dir)}"


def _row_time_ms(row: Row) -> int:
    time = str(row.get("ended_at") or row.get("timestamp") or row.get("started_at") or "")
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
