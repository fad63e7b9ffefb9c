"""Capturing a session: its new turns become rows, the rows one shard.

A capture costs as much as there is new. It may be killed anywhere: the shard is written whole before it
is remembered, and a row that is written twice is read once.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive import Archive, Recording
from flightlog.dataset import commits as commit_rows
from flightlog.dataset.book import Book, read_forgotten
from flightlog.dataset.consent import permitted, values_of
from flightlog.dataset.layout import Place, cache_pages, write_shard
from flightlog.dataset.memory import LaneMemory, Memory, recall, remember
from flightlog.dataset.orchestration import row as orchestration_row
from flightlog.dataset.rows import AnyRow, Row, encoded, key_of, rev_of, short
from flightlog.dataset.telling import actions, chats, session_row, with_commits
from flightlog.dataset.window import Told, begin_at, crew, search_values, tell, total
from flightlog.model.session import Session
from flightlog.privacy.records import Records
from flightlog.sources.git.history import commits, head, times
from flightlog.store.pages import publish

_RECENT_COMMITS = 50


class Options(Struct, frozen=True):
    """What the project said yes to."""

    words: bool = False
    local_cache: bool = False


class Kit(NamedTuple):
    """What a capture works with."""

    place: Place
    archive: Archive
    records: Records
    options: Options


class Work(Struct, frozen=True):
    """What a capture did and what it took, in counts."""

    session: str
    rows: int = 0
    secrets: int = 0
    personal: int = 0
    turns_told: int = 0
    records_read: int = 0
    shard: str = ""


def capture(kit: Kit, recording: Recording) -> Work:
    """Write what is new of a session since it was last captured."""
    known = recall(kit.place.state, recording.session)
    restarted = Memory(shards=known.shards, searched=known.searched)
    memory = known if known.words == kit.options.words else restarted
    told = tell(kit.archive, recording, memory)
    if told is None:
        memory, told = restarted, tell(kit.archive, recording, restarted)
    assert told is not None, "a session can always be told from its beginning"
    return _captured(kit, recording, (memory, told, None))


def capture_whole(kit: Kit, recording: Recording, book: Book) -> Work:
    """Tell all of a session and write what the book lacks."""
    known = recall(kit.place.state, recording.session)
    if (
        known.stamp == stamp_of(recording)
        and known.words == kit.options.words
        and _is_in(book, known, recording.session)
    ):
        return Work(recording.session)
    memory = Memory(shards=known.shards, searched=known.searched)
    told = tell(kit.archive, recording, memory)
    assert told is not None, "a session can always be told from its beginning"
    return _captured(kit, recording, (memory, told, book))


def stamp_of(recording: Recording) -> str:
    """Say how a session's files stand."""
    return " ".join(f"{file.lane}:{file.size}" for file in sorted(recording.files, key=lambda file: file.path))


def _is_in(book: Book, known: Memory, session: str) -> bool:
    row = book.rows.get(f"session:{session}")
    return book.forgotten.covers({"kind": "session", "session": session}) or (
        row is not None and rev_of(row) >= known.rev
    )


def _captured(kit: Kit, recording: Recording, what: tuple[Memory, Told, Book | None]) -> Work:
    place, records, options = kit.place, kit.records, kit.options
    memory, told, book = what
    searched = search_values(recording, memory.searched, records)
    forgotten = book.forgotten if book is not None else read_forgotten(place.tracked)
    is_forgotten = forgotten.covers({"kind": "session", "session": recording.session})
    if is_forgotten or (not told.session.turns and not told.session.lanes):
        return Work(recording.session, records_read=told.records)
    lanes = crew(told, memory, recording)
    made = _made(place, told, memory, lanes)
    stripped = (
        replace(row, value=forgotten.stripped(row.value)) for row in permitted(made, records, words=options.words)
    )
    redacted = [row for row in stripped if not forgotten.covers(row.value)]
    written = [row for row in redacted if _is_fresh(row.value, memory.written, book)]
    rows, fresh = values_of(redacted), values_of(written)
    path = write_shard(place, short(recording.session), fresh, memory.shards, records) if fresh else None
    if fresh and options.local_cache:
        publish(place.root, cache_pages(fresh), durable=False)
    after = replace(
        _after(kit, told, memory, rows, recording),
        lanes=lanes,
        stamp=stamp_of(recording),
        words=options.words,
        shards=memory.shards + bool(fresh),
        searched=searched,
        rev=max((rev_of(row) for row in rows if row["kind"] == "session"), default=memory.rev),
    )
    remember(place.state, recording.session, after)
    return Work(
        recording.session,
        rows=len(fresh),
        secrets=sum(row.secrets for row in written),
        personal=sum(row.personal for row in written),
        turns_told=len(told.session.turns),
        records_read=told.records,
        shard=path.name if path else "",
    )


def _made(place: Place, told: Told, memory: Memory, lanes: Mapping[str, LaneMemory]) -> list[AnyRow]:
    """Make the rows of what was told."""
    top, session = str(place.repository.top), told.session
    rows, links = _commits(place, session)
    by_chat: dict[str, list[str]] = {}
    for name, (_, chat_id) in links.items():
        by_chat.setdefault(chat_id, []).append(name[:12])
    for turn, chat in chats(session, top):
        rows.append(with_commits(chat, by_chat.get(chat.id, [])))
        rows += actions(session, turn, top)
    rows += [action for lane in session.lanes for turn in lane.turns for action in actions(session, turn, top, lane.id)]
    agents = {name: (lane.began_ms, lane.agent) for name, lane in lanes.items()}
    led = orchestration_row(session.id, agents, (tool for lane in lanes.values() for tool in lane.tools))
    whole = total(told, memory.before, session.turns, top)
    whole = replace(whole, commits=_joined(whole.commits, links))
    return [*rows, *([led] if led else []), session_row(session, whole, [lane.agent for lane in lanes.values()])]


def _commits(place: Place, session: Session) -> tuple[list[AnyRow], dict[str, commit_rows.Maker]]:
    """Return the commits that turns of this session made."""
    tip = head(place.repository) if commit_rows.mentions_commits(session.turns) else ""
    if not tip:
        return [], {}
    recent = list(commits(place.repository, [tip], limit=_RECENT_COMMITS))
    links = commit_rows.makers(session, recent)
    made = [commit for commit in recent if commit.hash in links]
    parents = times(place.repository, [commit.parents[0] for commit in made if commit.parents])
    return commit_rows.rows(made, links, parents), links


def _is_fresh(row: Row, written: Mapping[str, str], book: Book | None) -> bool:
    if book is not None:
        return not book.has(row)
    return written.get(key_of(row)) != _digest(row)


def _after(kit: Kit, told: Told, memory: Memory, rows: Sequence[Row], recording: Recording) -> Memory:
    """Return what to remember of turns: the last may still grow, the others are done with."""
    written = {key_of(row): _digest(row) for row in rows}
    begin = begin_at(told, recording)
    lanes = {key: digest for key, digest in memory.written.items() if key.startswith("action:")}
    if begin is None:
        return replace(memory, written={**lanes, **written})
    before = total(told, memory.before, told.done_turns, str(kit.place.repository.top))
    made = [name for row in rows if row["kind"] == "session" for name in row["commits"]]
    path, start, uuid = begin
    return replace(
        memory,
        path=path,
        start=start,
        uuid=uuid,
        before=replace(before, commits=made, title=kit.records.redactor.text(before.title)),
        written={key: written[key] for key in map(key_of, _open_rows(told, rows))},
    )


def _open_rows(told: Told, rows: Sequence[Row]) -> Iterable[Row]:
    """Leave out the rows of turns that are done: nobody will ask for them again."""
    calls = {f"action-{call.id}" for turn in told.open_turns for step in turn.steps for call in step.calls}
    uuids = {turn.uuid for turn in told.open_turns}
    for row in rows:
        match row["kind"]:
            case "action":
                is_open = row["id"] in calls or bool(row.get("lane"))
            case "chat":
                is_open = row["uuid"] in uuids
            case _:
                is_open = True
        if is_open:
            yield row


def _joined(known: Sequence[str], links: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*known, *(name[:12] for name in links)]))


def _digest(row: Row) -> str:
    return hashlib.sha256(encoded(row)).hexdigest()[:16]
