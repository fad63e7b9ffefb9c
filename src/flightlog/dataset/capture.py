"""Capturing a session: its new turns become rows, the rows one shard.

A capture costs as much as there is new. It may be killed anywhere: the shard is written whole before it
is remembered, and a row that is written twice is read once.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive import Archive, SessionFiles
from flightlog.dataset import commits as commit_rows
from flightlog.dataset.book import DatasetReader, read_tombstones
from flightlog.dataset.consent import permitted_rows, values_of
from flightlog.dataset.layout import DatasetDirs, cache_pages, write_shard
from flightlog.dataset.memory import SessionProgress, SubagentProgress, recall_session, remember_session
from flightlog.dataset.orchestration import orchestration_row
from flightlog.dataset.rows import AnyRow, Row, encode_row, key_of, rev_of, short_session_id
from flightlog.dataset.telling import action_rows, chat_rows, session_row, with_commits
from flightlog.dataset.window import (
    SessionWindow,
    next_window_start,
    read_window,
    search_values,
    subagent_progress,
    sum_session,
)
from flightlog.model.session import Session
from flightlog.privacy.records import JsonRedactor
from flightlog.sources.git.history import commit_times, head_commit, iter_commits
from flightlog.store.pages import write_output_files

_RECENT_COMMITS = 50


class ExtractOptions(Struct, frozen=True):
    """What the project said yes to."""

    words: bool = False
    local_cache: bool = False


class ExtractContext(NamedTuple):
    """What a capture works with."""

    place: DatasetDirs
    archive: Archive
    records: JsonRedactor
    options: ExtractOptions


class ExtractResult(Struct, frozen=True):
    """What a capture did and what it took, in counts."""

    session: str
    rows: int = 0
    secrets: int = 0
    personal: int = 0
    turns_told: int = 0
    records_read: int = 0
    shard: str = ""


def capture_session(kit: ExtractContext, recording: SessionFiles) -> ExtractResult:
    """Write what is new of a session since it was last captured."""
    known = recall_session(kit.place.state_dir, recording.session)
    restarted = SessionProgress(shards=known.shards, searched=known.searched)
    memory = known if known.words == kit.options.words else restarted
    told = read_window(kit.archive, recording, memory)
    if told is None:
        memory, told = restarted, read_window(kit.archive, recording, restarted)
    assert told is not None, "a session can always be told from its beginning"
    return _write_rows(kit, recording, (memory, told, None))


def capture_whole_session(kit: ExtractContext, recording: SessionFiles, book: DatasetReader) -> ExtractResult:
    """Tell all of a session and write what the book lacks."""
    known = recall_session(kit.place.state_dir, recording.session)
    if (
        known.stamp == stamp_of(recording)
        and known.words == kit.options.words
        and _is_captured(book, known, recording.session)
    ):
        return ExtractResult(recording.session)
    memory = SessionProgress(shards=known.shards, searched=known.searched)
    told = read_window(kit.archive, recording, memory)
    assert told is not None, "a session can always be told from its beginning"
    return _write_rows(kit, recording, (memory, told, book))


def stamp_of(recording: SessionFiles) -> str:
    """Say how a session's files stand."""
    return " ".join(f"{file.lane}:{file.size}" for file in sorted(recording.files, key=lambda file: file.path))


def _is_captured(book: DatasetReader, known: SessionProgress, session: str) -> bool:
    row = book.rows.get(f"session:{session}")
    return book.forgotten.covers_row({"kind": "session", "session": session}) or (
        row is not None and rev_of(row) >= known.rev
    )


def _write_rows(
    kit: ExtractContext, recording: SessionFiles, what: tuple[SessionProgress, SessionWindow, DatasetReader | None]
) -> ExtractResult:
    place, records, options = kit.place, kit.records, kit.options
    memory, told, book = what
    searched = search_values(recording, memory.searched, records)
    forgotten = book.forgotten if book is not None else read_tombstones(place.tracked_dir)
    is_forgotten = forgotten.covers_row({"kind": "session", "session": recording.session})
    if is_forgotten or (not told.session.turns and not told.session.lanes):
        return ExtractResult(recording.session, records_read=told.records)
    lanes = subagent_progress(told, memory, recording)
    made = _build_rows(place, told, memory, lanes)
    stripped = (
        replace(row, value=forgotten.strip_row(row.value)) for row in permitted_rows(made, records, words=options.words)
    )
    redacted = [row for row in stripped if not forgotten.covers_row(row.value)]
    written = [row for row in redacted if _is_fresh(row.value, memory.written, book)]
    rows, fresh = values_of(redacted), values_of(written)
    path = write_shard(place, short_session_id(recording.session), fresh, memory.shards, records) if fresh else None
    if fresh and options.local_cache:
        write_output_files(place.root, cache_pages(fresh), durable=False)
    after = replace(
        _next_progress(kit, told, memory, rows, recording),
        lanes=lanes,
        stamp=stamp_of(recording),
        words=options.words,
        shards=memory.shards + bool(fresh),
        searched=searched,
        rev=max((rev_of(row) for row in rows if row["kind"] == "session"), default=memory.rev),
    )
    remember_session(place.state_dir, recording.session, after)
    return ExtractResult(
        recording.session,
        rows=len(fresh),
        secrets=sum(row.secrets for row in written),
        personal=sum(row.personal for row in written),
        turns_told=len(told.session.turns),
        records_read=told.records,
        shard=path.name if path else "",
    )


def _build_rows(
    place: DatasetDirs, told: SessionWindow, memory: SessionProgress, lanes: Mapping[str, SubagentProgress]
) -> list[AnyRow]:
    """Make the rows of what was told."""
    top, session = str(place.repository.top), told.session
    rows, links = _session_commits(place, session)
    by_chat: dict[str, list[str]] = {}
    for name, (_, chat_id) in links.items():
        by_chat.setdefault(chat_id, []).append(name[:12])
    for turn, chat in chat_rows(session, top):
        rows.append(with_commits(chat, by_chat.get(chat.id, [])))
        rows += action_rows(session, turn, top)
    rows += [
        action for lane in session.lanes for turn in lane.turns for action in action_rows(session, turn, top, lane.id)
    ]
    agents = {name: (lane.began_ms, lane.agent) for name, lane in lanes.items()}
    led = orchestration_row(session.id, agents, (tool for lane in lanes.values() for tool in lane.tools))
    whole = sum_session(told, memory.before, session.turns, top)
    whole = replace(whole, commits=_merge_names(whole.commits, links))
    return [*rows, *([led] if led else []), session_row(session, whole, [lane.agent for lane in lanes.values()])]


def _session_commits(place: DatasetDirs, session: Session) -> tuple[list[AnyRow], dict[str, commit_rows.Maker]]:
    """Return the commits that turns of this session made."""
    tip = head_commit(place.repository) if commit_rows.mentions_commits(session.turns) else ""
    if not tip:
        return [], {}
    recent = list(iter_commits(place.repository, [tip], limit=_RECENT_COMMITS))
    links = commit_rows.find_makers(session, recent)
    made = [commit for commit in recent if commit.hash in links]
    parents = commit_times(place.repository, [commit.parents[0] for commit in made if commit.parents])
    return commit_rows.build_rows(made, links, parents), links


def _is_fresh(row: Row, written: Mapping[str, str], book: DatasetReader | None) -> bool:
    if book is not None:
        return not book.contains_row(row)
    return written.get(key_of(row)) != _hash_row(row)


def _next_progress(
    kit: ExtractContext, told: SessionWindow, memory: SessionProgress, rows: Sequence[Row], recording: SessionFiles
) -> SessionProgress:
    """Return what to remember of turns: the last may still grow, the others are done with."""
    written = {key_of(row): _hash_row(row) for row in rows}
    begin = next_window_start(told, recording)
    lanes = {key: digest for key, digest in memory.written.items() if key.startswith("action:")}
    if begin is None:
        return replace(memory, written={**lanes, **written})
    before = sum_session(told, memory.before, told.closed_turns, str(kit.place.repository.top))
    made = [name for row in rows if row["kind"] == "session" for name in row["commits"]]
    path, start, uuid = begin
    return replace(
        memory,
        path=path,
        start=start,
        uuid=uuid,
        before=replace(before, commits=made, title=kit.records.redactor.redact_string(before.title)),
        written={key: written[key] for key in map(key_of, _open_rows(told, rows))},
    )


def _open_rows(told: SessionWindow, rows: Sequence[Row]) -> Iterable[Row]:
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


def _merge_names(known: Sequence[str], links: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*known, *(name[:12] for name in links)]))


def _hash_row(row: Row) -> str:
    return hashlib.sha256(encode_row(row)).hexdigest()[:16]
