"""New turns of a session to one shard.

A session's main file is read from where its last turns begin; of subagents, those whose file grew.

A capture costs as much as there is new. It may be killed anywhere: the shard is written whole before it
is remembered, and a row that is written twice is read once.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive, SessionFiles
from flightlog.dataset.extract import commits
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.turns import (
    EarlierTurns,
    action_rows,
    add_turns,
    chat_rows,
    orchestration_row,
    session_row,
    subagents_by_id,
    with_commits,
)
from flightlog.dataset.layout import DatasetDirs, cache_pages, write_shard
from flightlog.dataset.reader import DatasetReader, read_tombstones
from flightlog.dataset.rows import AnyRow, Row, encode_row, key_of, rev_of, short_session_id
from flightlog.dataset.state import SearchProgress, SessionProgress, SubagentProgress, recall_session, remember_session
from flightlog.model.entries import Entry, SessionTitled, UserPrompt
from flightlog.model.session import Session, Turn
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store.git.history import commit_times, head_commit, iter_commits
from flightlog.store.output_files import write_output_files
from flightlog.store.recordings.reader import raw_lines
from flightlog.usage.prices import price
from flightlog.views.session.fold import fold_session

_OPEN_TURNS = 2
_BATCH_LINES = 500  # about a megabyte of a usual transcript, which the redactor searches in one go
_RECENT_COMMITS = 50


class SessionWindow(NamedTuple):
    """A session or its end, and where each prompt of it stands in the file."""

    session: Session
    offsets: Mapping[str, int]
    records: int
    titled: bool

    @property
    def open_turns(self) -> tuple[Turn, ...]:
        """The turns that may still grow."""
        return self.session.turns[-_OPEN_TURNS:]

    @property
    def closed_turns(self) -> tuple[Turn, ...]:
        """The turns that will not."""
        return self.session.turns[:-_OPEN_TURNS]


def read_window(archive: Archive, recording: SessionFiles, memory: SessionProgress) -> SessionWindow | None:
    """Tell a session from where its memory says; None when the file no longer stands as it did."""
    main = [file for file in recording.files if not file.lane]
    starts = {memory.path: memory.start} if memory.start else {}
    if starts and (len(main) != 1 or main[0].path != memory.path or main[0].size < memory.start):
        return None
    lanes = [file for file in recording.files if file.lane and _previous_bytes(memory, file.lane) != file.size]
    items = list(archive.iter_file_entries([*main, *lanes], starts))
    entries = [item for item in items if isinstance(item, Entry)]
    if starts and not (entries and entries[0].uuid == memory.uuid):
        return None
    offsets: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.event, UserPrompt) and entry.uuid and not entry.lane:
            offsets.setdefault(entry.uuid, entry.offset)
    titled = any(isinstance(entry.event, SessionTitled) for entry in entries)
    return SessionWindow(fold_session(recording.session, recording.agent, price, items), offsets, len(entries), titled)


def search_values(
    recording: SessionFiles, known: Mapping[str, SearchProgress], records: JsonRedactor
) -> dict[str, SearchProgress]:
    """Teach `records` the private values in all files of a session; return what to remember of the search.

    Only what is new is searched, and again the lines in which a value was recognized before.
    """
    found = {}
    for file in recording.files:
        before = known.get(file.path, SearchProgress())
        before = before if before.end <= file.size else SearchProgress()
        records.collect_values(line for place in before.places for line in islice(raw_lines(file.path, place), 1))
        end, places = before.end, list(before.places)
        lines = raw_lines(file.path, before.end)
        while batch := list(islice(lines, _BATCH_LINES)):
            growth = records.redactor.known.growth
            records.collect_values(batch)
            is_news = records.redactor.known.growth > growth
            for line in batch:
                places += [end] if is_news and records.redactor.known.is_in(line) else []
                # A line that is still being written is searched now, and again when it is whole.
                end += len(line) if line.endswith(b"\n") else 0
        found[file.path] = SearchProgress(end, places)
    return found


def sum_session(told: SessionWindow, before: EarlierTurns, turns: Iterable[Turn], top: str) -> EarlierTurns:
    """Add turns to what came before."""
    title = told.session.title if told.titled or not before.title else before.title
    started = before.started_ms or told.session.started_ms or 0
    return replace(add_turns(before, turns, top), title=title, started_ms=started)


def subagent_progress(
    told: SessionWindow, memory: SessionProgress, recording: SessionFiles
) -> dict[str, SubagentProgress]:
    """Return every subagent of the session, as told now or before."""
    session = told.session
    sizes = {file.lane: file.size for file in recording.files if file.lane}
    tools = {
        lane.id: sorted({call.name for turn in lane.turns for step in turn.steps for call in step.calls})
        for lane in session.lanes
    }
    known = dict(memory.lanes)
    for name, (began, agent) in subagents_by_id(session).items():
        old = known.get(name)
        chat = agent.chat_id or (old.agent.chat_id if old else "")
        known[name] = SubagentProgress(sizes.get(name, 0), began, replace(agent, chat_id=chat), tools[name])
    return known


def next_window_start(told: SessionWindow, recording: SessionFiles) -> tuple[str, int, str] | None:
    """Return where the next look begins: path, offset, prompt; None when that is where this one did."""
    main = [file for file in recording.files if not file.lane]
    first = told.open_turns[0].uuid if told.open_turns else ""
    if not told.closed_turns or len(main) != 1 or first not in told.offsets:
        return None
    return main[0].path, told.offsets[first], first


def _previous_bytes(memory: SessionProgress, lane: str) -> int:
    known = memory.lanes.get(lane)
    return known.size if known else -1


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


def _session_commits(place: DatasetDirs, session: Session) -> tuple[list[AnyRow], dict[str, commits.Maker]]:
    """Return the commits that turns of this session made."""
    tip = head_commit(place.repository) if commits.mentions_commits(session.turns) else ""
    if not tip:
        return [], {}
    recent = list(iter_commits(place.repository, [tip], limit=_RECENT_COMMITS))
    links = commits.find_makers(session, recent)
    made = [commit for commit in recent if commit.hash in links]
    parents = commit_times(place.repository, [commit.parents[0] for commit in made if commit.parents])
    return commits.build_rows(made, links, parents), links


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
