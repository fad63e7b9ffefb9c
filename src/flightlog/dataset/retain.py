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

from flightlog.dataset.book import Book, base_files, read_blobs, read_book, read_files, shard_files
from flightlog.dataset.compact import compact, purge_shards
from flightlog.dataset.consent import WORDS, withheld
from flightlog.dataset.forgotten import Forgotten, mark, session_of
from flightlog.dataset.layout import TRACKED, Place, write_shard
from flightlog.dataset.memory import recall_clone, writer
from flightlog.dataset.older import FOLDERS, is_ours
from flightlog.dataset.rows import COUNTED, WITHHELD, Row, moment, short
from flightlog.dataset.shards import GONE
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import Deed, Item, Move, Policy, Rule
from flightlog.privacy.records import Records
from flightlog.sources.git.repository import asked, blobs, current_branch, default_branch
from flightlog.store import files
from flightlog.views.retention import plan

WHY = "older than the project keeps rows"
ASKED = "asked for"
WITHDRAWN = "consent to words was withdrawn"
_TELLING_CHARS = 12  # shorter words of a row are found in files that have nothing to do with it
_AT_ONCE = 64  # blobs of history held in memory together


class LetGo(Struct, frozen=True):
    """What went, or would go: keys of rows that are gone or lost words or links, and what is left elsewhere."""

    gone: tuple[str, ...]
    stripped: tuple[str, ...]
    counts: dict[str, int]
    done: bool
    files_removed: tuple[str, ...] = ()
    files_left: tuple[str, ...] = ()
    versions_in_history: int = 0
    commands: tuple[str, ...] = ()


def due(book: Book, keep_days: int, now_ms: int) -> tuple[Move, ...]:
    """Return the rows that are to go, oldest first; a row without a time stays."""
    items = [
        Item(key, str(row.get("kind")), at_ms, len(book.lines[key].line))
        for key, row in book.rows.items()
        if key not in book.gone and (at_ms := _time(row))
    ]
    rules = tuple(Rule(kind, keep_days, Deed.DELETE) for kind in COUNTED)
    return plan(Policy("dataset", rules, untouched=("chats", "sessions", "actions")), items, now_ms)


def marks_of_rows(book: Book, names: Iterable[str], now_ms: int) -> list[Row]:
    """Return marks for sessions and rows, each named by a unique prefix of its id."""
    return [mark for name in names for mark in _of_row(book, named(book, name), now_ms)]


def marks_of_text(book: Book, text: str, now_ms: int) -> list[Row]:
    """Return marks for rows in which `text` occurs, in any case; a session that says it in its summary loses that."""
    if not (wanted := _plain(text)):
        raise Invalid("no text to look for", hint='flightlog dataset forget --text "…" --dry-run')
    marks = []
    for key, row in _living(book):
        if row.get("kind") == "session":
            marks += [mark(ASKED, now_ms, session=session_of(row))] if wanted in _plain(row.get("summary")) else []
            marks += [mark(ASKED, now_ms, of=key)] if wanted in _plain(withheld(row)) else []
        elif wanted in _plain(row):
            marks += _of_row(book, key, now_ms)
    return marks


def marks_of_time(book: Book, since: str, before: str, now_ms: int) -> list[Row]:
    """Return a mark for every row from `since` until just before `before`, and for the actions of its chats."""
    rules = Forgotten()
    rules.add(mark(ASKED, now_ms, since=since, before=before))
    chats = [str(row.get("id")) for _, row in _living(book) if row.get("kind") == "chat" and rules.covers(row)]
    return [mark(ASKED, now_ms, since=since, before=before, chats=sorted(chats), lanes=_lanes(book, chats))]


def marks_of_words(now_ms: int) -> list[Row]:
    """Return the mark that rows of anything said until now have no words."""
    return [mark(WITHDRAWN, now_ms, before=moment(now_ms), words=WITHHELD)]


def let_go(place: Place, records: Records, marks: Sequence[Row], default: str, *, dry_run: bool) -> LetGo:
    """Write marks, then remove what they cover from the work tree; return what went and what is left."""
    book = read_book(place.tracked)
    rules, before = book.forgotten, {key: (row, book.forgotten.stripped(row)) for key, row in _living(book)}
    for row in marks:
        rules.add(row)
    gone = {key: row for key, (row, _) in before.items() if rules.covers(row)}
    stripped = {key: row for key, (row, old) in before.items() if key not in gone and rules.stripped(row) != old}
    is_default = current_branch(place.repository) == (default or default_branch(place.repository))
    if marks and not dry_run:
        write_shard(place, GONE, marks, max(row["rev"] for row in marks), records)
        compact(place, records, default=default) if is_default else purge_shards(place, records)
        sessions = {session_of(row) for row in (*gone.values(), *stripped.values())}
        files.remove(path for path in (place.state / "sessions").glob("*.json") if short(path.stem) in sessions)
    stale, left = _repeating(place, gone.values(), stripped.values())
    if not dry_run:
        files.remove(stale)
        tracked = [*base_files(place.tracked), *shard_files(place.tracked)]
        left += [path for path in tracked if _is_stale(read_files([path]), rules)]
    held = _history(place, rules)
    counts = Counter(sorted(str(row.get("kind")) for row in gone.values()))
    removed, kept = (tuple(str(path.relative_to(place.repository.top)) for path in each) for each in (stale, left))
    commands = tuple(_commands(place, held, is_default=is_default, dry_run=dry_run))
    return LetGo(tuple(sorted(gone)), tuple(sorted(stripped)), dict(counts), not dry_run, removed, kept, len(held),
                 commands)  # fmt: skip


def named(book: Book, name: str) -> str:
    """Return the key of the one row that `name` is the beginning of; of a session also where its row is not here."""
    living = dict(_living(book))
    names = {key: {key, str(row.get("id") or ""), str(row.get("hash") or "")} for key, row in living.items()}
    sessions = {session_of(row): key for key, row in living.items() if row.get("kind") == "session"}
    for row in living.values():
        if session := str(row.get("session") or row.get("session_id") or ""):
            names.setdefault(sessions.setdefault(short(session), f"session:{session}"), set()).add(session)
    found = [key for key in names if name in names[key]]
    found = found or [key for key in names if name and any(each.startswith(name) for each in names[key])]
    if not found:
        raise NotFound(f"no row has an id that begins with {name[:60]!r}", hint="flightlog dataset stats")
    if len(found) > 1:
        raise Invalid(f"{len(found)} rows have an id that begins with {name[:60]!r}", hint="write more of it")
    return found[0]


def _of_row(book: Book, key: str, now_ms: int) -> list[Row]:
    """Return marks for a row and all that belongs to it."""
    kind, _, rest = key.partition(":")
    row = book.rows.get(key, {})
    if kind == "session":
        inside = [each for _, each in _living(book) if session_of(each) == short(rest)]
        chats = sorted(str(each.get("id")) for each in inside if each.get("kind") == "chat")
        return [mark(ASKED, now_ms, session=rest, whole=True, chats=chats)]
    if kind == "chat":
        chats = [str(row.get("id"))]
        return [mark(ASKED, now_ms, session=session_of(row), chats=chats, lanes=_lanes(book, chats))]
    return [mark(ASKED, now_ms, of=key)]


def _lanes(book: Book, chats: Iterable[str]) -> list[str]:
    """Return the subagents that these chats started; their actions name no chat."""
    wanted = set(chats)
    agents = [agent for row in book.of("orchestration") for agent in row.get("agents", ())]
    return sorted(str(agent.get("id")) for agent in agents if str(agent.get("chat_id")) in wanted)


def _living(book: Book) -> Iterator[tuple[str, Row]]:
    gone = book.gone
    return ((key, row) for key, row in book.rows.items() if key not in gone and row.get("kind") != "tombstone")


def _plain(value: object) -> str:
    """Return all texts in a value as one, in small letters, spaces and line ends alike."""
    if isinstance(value, dict | list):
        return "\0".join(map(_plain, value.values() if isinstance(value, dict) else value))
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def _is_stale(book: Book, rules: Forgotten) -> bool:
    return any(rules.covers(row) or rules.stripped(row) is not row for row in book.rows.values())


def _repeating(place: Place, gone: Iterable[Row], stripped: Iterable[Row]) -> tuple[list[Path], list[Path]]:
    """Return files beside the tracked ones with ids or words of these rows: copies and exports, and a person's own."""
    rows = (*(forgotten := list(gone)), *stripped)
    texts = {str(row.get("id") or "") for row in forgotten}
    texts |= {str(row.get(name) or "") for row in rows for name in WORDS}
    texts |= {target for row in rows if " " in (target := str(row.get("target") or ""))}
    telling = [text for text in texts if len(text) >= _TELLING_CHARS]
    needles = {each for text in telling for each in (text.encode("utf-8", "replace"), msgspec.json.encode(text)[1:-1])}
    beside = (path for path in sorted(place.root.rglob("*")) if path.is_file() and place.tracked not in path.parents)
    found = [path for path in beside if any(needle in path.read_bytes() for needle in needles)]
    own = [path for path in found if path.relative_to(place.root).parts[0] in FOLDERS and not is_ours(path)]
    return [path for path in found if path not in own], own


def _history(place: Place, rules: Forgotten) -> list[str]:
    """Return the versions of files, in any ref, that hold a row which is gone or lost its words."""
    listed = asked(place.repository, "rev-list", "--objects", "--all", "--", TRACKED).splitlines()
    found = [(line[:at], line[at + 1 :]) for line in listed if (at := line.find(" ")) > 0 and line.endswith(".jsonl")]
    held = []
    for begin in range(0, len(found), _AT_ONCE):
        paths = dict(found[begin : begin + _AT_ONCE])
        bodies = blobs(place.repository, paths)
        held += [blob for blob, body in bodies.items() if _is_stale(read_blobs({paths[blob]: body}), rules)]
    return held


def _commands(place: Place, held: Sequence[str], *, is_default: bool, dry_run: bool) -> Iterator[str]:
    """Yield the commands that remove these versions from history, in their order; names of blobs go into a file."""
    if not held:
        return
    path = place.state / "forgotten-blobs"
    if not dry_run:
        files.replace(path, "".join(f"{blob}\n" for blob in held).encode())
    by_hand = "git add .git-ml && git commit -m 'Forget rows'"
    yield "flightlog dataset tracked compact --commit" if is_default else by_hand
    yield f"git filter-repo --force --strip-blobs-with-ids {os.path.relpath(path, place.repository.top)}"
    if recall_clone(place.state).pushed:
        yield f"git push REMOTE --delete refs/flightlog/dataset/{writer(place.state)}"


def _time(row: Row) -> int:
    said = str(row.get("ended_at") or row.get("timestamp") or row.get("started_at") or "")
    try:
        return int(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
