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

from flightlog.dataset import older
from flightlog.dataset.book import GONE, Book, base_files, read_blobs, read_book, read_files, shard_files
from flightlog.dataset.compact import compact, purge_shards
from flightlog.dataset.consent import withheld
from flightlog.dataset.forgotten import Forgotten, mark
from flightlog.dataset.layout import CACHED, TRACKED, Place, write_shard
from flightlog.dataset.memory import recall_clone, writer
from flightlog.dataset.rows import COUNTED, WITHHELD, Row, moment, plain, short, tombstone
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.retention import Deed, Item, Move, Policy, Rule
from flightlog.privacy.records import Records
from flightlog.sources.git.repository import asked, blobs, current_branch, default_branch
from flightlog.store import files
from flightlog.views.retention import plan

WHY = "older than the project keeps rows"
ASKED = "asked for"
WITHDRAWN = "consent to words was withdrawn"
_OF_SESSION = ("session", "orchestration")
_WORDS = ("input", "output", "summary", "message", "target", "result_summary")
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


def policy(keep_days: int) -> Policy:
    """Return the rules: every kind of row after so many days."""
    rules = tuple(Rule(kind, keep_days, Deed.DELETE) for kind in COUNTED)
    return Policy("dataset", rules, untouched=("chats", "sessions", "actions"))


def due(book: Book, keep_days: int, now_ms: int) -> tuple[Move, ...]:
    """Return the rows that are to go, oldest first; a row without a time stays."""
    items = [
        Item(key, str(row.get("kind")), at_ms, len(book.lines[key].line))
        for key, row in book.rows.items()
        if key not in book.gone and (at_ms := _time(row))
    ]
    return plan(policy(keep_days), items, now_ms)


def tombstones(keys: Iterable[str], why: str, now_ms: int) -> list[Row]:
    """Return the marks that these rows are gone."""
    return [plain(tombstone(key, why, now_ms)) for key in sorted(set(keys))]


def marks_of_rows(book: Book, names: Iterable[str], now_ms: int) -> list[Row]:
    """Return marks for sessions and rows, each named by a unique prefix of its id."""
    marks = []
    for name in names:
        key, row = _named(book, name)
        if row.get("kind") == "session":
            marks.append(_of_session(book, str(row["session"]), now_ms))
        else:
            marks += _of_row(book, key, row, now_ms)
    return marks


def marks_of_text(book: Book, text: str, now_ms: int) -> list[Row]:
    """Return marks for rows in which `text` occurs, in any case; a session that has it in its summary loses that."""
    wanted = _plain(text)
    if not wanted:
        raise Invalid("no text to look for", hint='flightlog dataset forget --text "…" --dry-run')
    marks = []
    for key, row in _living(book):
        if any(wanted in _plain(each) for each in _strings(row)):
            marks += _of_row(book, key, row, now_ms)
            if row.get("kind") == "session" and any(wanted in _plain(each) for each in _strings(withheld(row))):
                marks += tombstones([key], ASKED, now_ms)
    return marks


def marks_of_time(book: Book, since: str, before: str, now_ms: int) -> list[Row]:
    """Return a mark for every row from `since` until just before `before`, and for the actions of its chats."""
    times = mark(ASKED, now_ms, since=since, before=before)
    rules = Forgotten()
    rules.add(times)
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
        if is_default:
            compact(place, records, default=default)
        else:
            purge_shards(place, records)
        files.remove(_memories(place, [*gone.values(), *stripped.values()]))
    stale, left = _derived(place, rules, _needles(gone.values(), stripped.values()))
    if not dry_run:
        files.remove(stale)
        left += [path for path in [*base_files(place.tracked), *shard_files(place.tracked)] if _holds(path, rules)]
    held = _history(place, rules)
    counts = Counter(sorted(str(row.get("kind")) for row in gone.values()))
    return LetGo(
        tuple(sorted(gone)), tuple(sorted(stripped)), dict(counts),
        not dry_run, _below(place, stale), _below(place, left), len(held),
        tuple(_commands(place, held, is_default=is_default, dry_run=dry_run)),
    )  # fmt: skip


def _named(book: Book, name: str) -> tuple[str, Row]:
    """Return the one row that `name` is the beginning of; for a session, something that names it in full."""
    living = dict(_living(book))
    fields = ("id", "hash", "session")
    names = {key: [key, *(str(row.get(each) or "") for each in fields)] for key, row in living.items()}
    found = [key for key in living if name in names[key]]
    found = found or [key for key in living if any(each.startswith(name) for each in names[key])]
    # A session is one thing, whether its own row, the row of its subagents or only a chat of it is here.
    sessions = {_session_of(living[key]) for key in found if living[key].get("kind") in _OF_SESSION}
    if not found:
        sessions = {each for each in map(_session_of, living.values()) if each.startswith(name)}
    is_session = len(sessions) == 1 and all(living[key].get("kind") in _OF_SESSION for key in found)
    if name and is_session:
        full = next((str(living[key]["session"]) for key in found if living[key].get("session")), sessions.pop())
        return "", {"kind": "session", "session": full}
    if not name or not found + list(sessions):
        raise NotFound(f"no row has an id that begins with {name[:60]!r}", hint="flightlog dataset stats")
    if len(found) != 1:
        number = max(len(found), len(sessions))
        raise Invalid(f"{number} rows have an id that begins with {name[:60]!r}", hint="write more of it")
    return found[0], living[found[0]]


def _of_session(book: Book, session: str, now_ms: int) -> Row:
    chats = [
        str(row.get("id"))
        for _, row in _living(book)
        if row.get("kind") == "chat" and _session_of(row) == short(session)
    ]
    return mark(ASKED, now_ms, session=session, whole=True, chats=sorted(chats))


def _of_row(book: Book, key: str, row: Row, now_ms: int) -> list[Row]:
    if row.get("kind") == "chat":
        chats = [str(row.get("id"))]
        return [mark(ASKED, now_ms, session=_session_of(row), chats=chats, lanes=_lanes(book, chats))]
    if row.get("kind") == "session":
        return [mark(ASKED, now_ms, session=_session_of(row))]
    return tombstones([key], ASKED, now_ms)


def _lanes(book: Book, chats: Iterable[str]) -> list[str]:
    """Return the subagents that these chats started; their actions name no chat."""
    wanted = set(chats)
    crews = [row.get("agents") for _, row in _living(book) if row.get("kind") == "orchestration"]
    agents = [agent for crew in crews if isinstance(crew, list) for agent in crew if isinstance(agent, dict)]
    return sorted(str(agent.get("id")) for agent in agents if str(agent.get("chat_id")) in wanted)


def _living(book: Book) -> Iterator[tuple[str, Row]]:
    for key, row in book.rows.items():
        if key not in book.gone and row.get("kind") != "tombstone":
            yield key, row


def _session_of(row: Row) -> str:
    return short(str(row.get("session") or row.get("session_id") or ""))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _strings(member)


def _is_stale(book: Book, rules: Forgotten) -> bool:
    return any(rules.covers(row) or rules.stripped(row) is not row for row in book.rows.values())


def _holds(path: Path, rules: Forgotten) -> bool:
    return path.exists() and _is_stale(read_files([path]), rules)


def _needles(gone: Iterable[Row], stripped: Iterable[Row]) -> set[bytes]:
    """Return what a file that repeats these rows holds: ids of those that are gone, and words of all."""
    gone = list(gone)
    texts = {str(row.get("id") or "") for row in gone}
    for row in (*gone, *stripped):
        texts |= {str(row.get(name) or "") for name in _WORDS if name != "target" or " " in str(row.get(name))}
    telling = [text for text in texts if len(text) >= _TELLING_CHARS]
    return {each for text in telling for each in (text.encode("utf-8", "replace"), msgspec.json.encode(text)[1:-1])}


def _derived(place: Place, rules: Forgotten, needles: set[bytes]) -> tuple[list[Path], list[Path]]:
    """Return files beside the tracked ones that repeat these rows: copies and exports, and a person's own."""
    kinds = {folder: kind for kind, folder in CACHED.items()}
    stale: list[Path] = []
    own: list[Path] = []
    for path in sorted(place.root.rglob("*")):
        if not path.is_file() or path.is_symlink() or place.tracked in path.parents:
            continue
        kind = kinds.get(path.relative_to(place.root).parts[0], "")
        body = path.read_bytes()
        if kind:
            row = older.decoded(kind, body)
            if row is not None and (rules.covers(row) or rules.stripped(row) is not row):
                (stale if older.is_ours(path) else own).append(path)
        elif any(needle in body for needle in needles) or _holds(path, rules):
            stale.append(path)
    return stale, own


def _memories(place: Place, rows: Iterable[Row]) -> list[Path]:
    """Return what this clone remembers of the sessions of these rows: it holds titles."""
    sessions = {_session_of(row) for row in rows}
    return [path for path in (place.state / "sessions").glob("*.json") if short(path.stem) in sessions]


def _history(place: Place, rules: Forgotten) -> list[str]:
    """Return the versions of files, in any ref, that hold a row which is gone or lost its words."""
    listed = asked(place.repository, "rev-list", "--objects", "--all", "--", TRACKED).splitlines()
    found = [pair for pair in (line.split(" ", 1) for line in listed) if len(pair) == 2 and pair[1].endswith(".jsonl")]
    held = []
    for at in range(0, len(found), _AT_ONCE):
        paths = dict(found[at : at + _AT_ONCE])
        for blob, body in blobs(place.repository, paths).items():
            held += [blob] if _is_stale(read_blobs({paths[blob]: body}), rules) else []
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


def _below(place: Place, paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(place.repository.top)) for path in paths))


def _time(row: Row) -> int:
    said = str(row.get("ended_at") or row.get("timestamp") or row.get("started_at") or "")
    try:
        return int(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
