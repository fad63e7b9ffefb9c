"""Extract the new turns of a session into one shard.

A session's main file is read from the start of its last turns; of subagents, those whose file
grew.

The cost is proportional to what is new. An extraction may be killed at any point: the shard is
complete before progress is saved, and a row that is written twice is read once.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive, SessionFiles
from flightlog.dataset.extract import commits
from flightlog.dataset.extract.consent import permitted_rows, search_values, values_of
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
from flightlog.dataset.state import (
    SessionProgress,
    SubagentProgress,
    recall_session,
    remember_session,
)
from flightlog.model.entries import Entry, SessionTitled, UserPrompt
from flightlog.model.session import Session, SessionFile, Turn
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store.output_files import write_output_files
from flightlog.usage.prices import price
from flightlog.views.session.fold import fold_session

_OPEN_TURNS = 2  # last turns that may still grow


class SessionWindow(NamedTuple):
    """A session or its last turns, and the file offset of each prompt."""

    session: Session
    offsets: Mapping[str, int]
    records: int
    titled: bool

    @property
    def open_turns(self) -> tuple[Turn, ...]:
        """Return the turns that may still grow."""
        return self.session.turns[-_OPEN_TURNS:]

    @property
    def closed_turns(self) -> tuple[Turn, ...]:
        """Return the turns that are complete."""
        return self.session.turns[:-_OPEN_TURNS]


def read_window(
    archive: Archive, recording: SessionFiles, progress: SessionProgress
) -> SessionWindow | None:
    """Fold a session from where the progress says.

    Return None if the file changed before that point.
    """
    main = _main_files(recording)
    starts = {progress.path: progress.start} if progress.start else {}
    if starts and (
        len(main) != 1 or main[0].path != progress.path or main[0].size < progress.start
    ):
        return None
    sizes = {subagent_id: subagent.size for subagent_id, subagent in progress.subagents.items()}
    subagents = [
        file for file in recording.files if file.subagent and sizes.get(file.subagent) != file.size
    ]
    items = list(archive.iter_file_entries([*main, *subagents], starts))
    entries = [item for item in items if isinstance(item, Entry)]
    if starts and not (entries and entries[0].uuid == progress.uuid):
        return None
    offsets: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.event, UserPrompt) and entry.uuid and not entry.subagent:
            offsets.setdefault(entry.uuid, entry.offset)
    titled = any(isinstance(entry.event, SessionTitled) for entry in entries)
    session = fold_session(recording.session, recording.agent, price, items)
    return SessionWindow(session, offsets, len(entries), titled)


def sum_session(
    window: SessionWindow, before: EarlierTurns, turns: Iterable[Turn], top: str
) -> EarlierTurns:
    """Return the totals of a session: those of earlier turns plus these turns."""
    title = window.session.title if window.titled or not before.title else before.title
    started = before.started_ms or window.session.started_ms or 0
    return replace(add_turns(before, turns, top), title=title, started_ms=started)


def subagent_progress(
    window: SessionWindow, progress: SessionProgress, recording: SessionFiles
) -> dict[str, SubagentProgress]:
    """Return every subagent of the session, from this window or an earlier one."""
    session = window.session
    sizes = {file.subagent: file.size for file in recording.files if file.subagent}
    tools = {
        subagent.id: sorted(
            {
                call.name
                for turn in subagent.turns
                for step in turn.steps
                for call in step.tool_calls
            }
        )
        for subagent in session.subagents
    }
    subagents = dict(progress.subagents)
    for name, (started_ms, agent) in subagents_by_id(session).items():
        old = subagents.get(name)
        chat = agent.chat_id or (old.agent.chat_id if old else "")
        subagents[name] = SubagentProgress(
            sizes.get(name, 0), started_ms, replace(agent, chat_id=chat), tools[name]
        )
    return subagents


def next_window_start(
    window: SessionWindow, recording: SessionFiles
) -> tuple[str, int, str] | None:
    """Return path, offset and prompt of the next window; None if it starts where this one did."""
    main = _main_files(recording)
    first = window.open_turns[0].uuid if window.open_turns else ""
    if not window.closed_turns or len(main) != 1 or first not in window.offsets:
        return None
    return main[0].path, window.offsets[first], first


def _main_files(recording: SessionFiles) -> list[SessionFile]:
    return [file for file in recording.files if not file.subagent]


class ExtractOptions(Struct, frozen=True):
    """What the project allows."""

    words: bool = False
    local_cache: bool = False


class ExtractContext(NamedTuple):
    """What an extraction works with."""

    dirs: DatasetDirs
    archive: Archive
    redactor: JsonRedactor
    options: ExtractOptions


class ExtractResult(Struct, frozen=True):
    """Counts of an extraction."""

    session: str
    rows: int = 0
    secrets: int = 0
    personal: int = 0
    turn_count: int = 0
    record_count: int = 0
    shard: str = ""


def capture_session(
    context: ExtractContext, recording: SessionFiles, *, is_ended: bool = False
) -> ExtractResult:
    """Write the rows that are new since the last extraction of a session.

    While the session runs, the row of its subagents is repeated only when it has doubled in size:
    repeated at every change, it would take quadratic space. At the end it is written once more.
    """
    known = recall_session(context.dirs.state_dir, recording.session)
    restarted = SessionProgress(shards=known.shards, searches=known.searches)
    progress = known if known.has_words == context.options.words else restarted
    window = read_window(context.archive, recording, progress)
    if window is None:
        progress, window = restarted, read_window(context.archive, recording, restarted)
    assert window is not None, "a session can always be read from its start"
    progress = replace(progress, orchestration_bytes=0) if is_ended else progress
    return _write_rows(context, recording, progress, window)


def capture_whole_session(
    context: ExtractContext, recording: SessionFiles, dataset: DatasetReader
) -> ExtractResult:
    """Read a whole session and write the rows that the dataset lacks."""
    known = recall_session(context.dirs.state_dir, recording.session)
    unchanged = known.file_stamp == stamp_of(recording) and known.has_words == context.options.words
    if unchanged and _is_captured(dataset, known, recording.session):
        return ExtractResult(recording.session)
    progress = SessionProgress(shards=known.shards, searches=known.searches)
    window = read_window(context.archive, recording, progress)
    assert window is not None, "a session can always be read from its start"
    return _write_rows(context, recording, progress, window, dataset)


def stamp_of(recording: SessionFiles) -> str:
    """Return the sizes of a session's files as text."""
    ordered = sorted(recording.files, key=lambda file: file.path)
    return " ".join(f"{file.subagent}:{file.size}" for file in ordered)


def _is_captured(dataset: DatasetReader, known: SessionProgress, session: str) -> bool:
    row = dataset.rows.get(f"session:{session}")
    return dataset.forgotten.covers_row({"kind": "session", "session": session}) or (
        row is not None and rev_of(row) >= known.rev
    )


def _write_rows(
    context: ExtractContext,
    recording: SessionFiles,
    progress: SessionProgress,
    window: SessionWindow,
    dataset: DatasetReader | None = None,
) -> ExtractResult:
    dirs, redactor, options = context.dirs, context.redactor, context.options
    searched = search_values(recording.files, progress.searches, redactor)
    forgotten = dataset.forgotten if dataset is not None else read_tombstones(dirs.tracked_dir)
    is_forgotten = forgotten.covers_row({"kind": "session", "session": recording.session})
    if is_forgotten or (not window.session.turns and not window.session.subagents):
        return ExtractResult(recording.session, record_count=window.records)
    subagents = subagent_progress(window, progress, recording)
    permitted = permitted_rows(
        _build_rows(dirs, window, progress, subagents), redactor, words=options.words
    )
    stripped = (replace(row, value=forgotten.strip_row(row.value)) for row in permitted)
    redacted = [row for row in stripped if not forgotten.covers_row(row.value)]
    if dataset is None:
        redacted = [row for row in redacted if not _is_deferred(row.value, progress)]
    new = [row for row in redacted if _is_fresh(row.value, progress.row_digests, dataset)]
    rows, fresh = values_of(redacted), values_of(new)
    name = short_session_id(recording.session)
    path = write_shard(dirs, name, fresh, progress.shards, redactor) if fresh else None
    if fresh and options.local_cache:
        write_output_files(dirs.root, cache_pages(fresh), durable=False)
    after = replace(
        _next_progress(context, window, progress, rows, recording),
        subagents=subagents,
        file_stamp=stamp_of(recording),
        has_words=options.words,
        shards=progress.shards + bool(fresh),
        searches=searched,
        rev=max((rev_of(row) for row in rows if row["kind"] == "session"), default=progress.rev),
        orchestration_bytes=_orchestration_bytes(rows) or progress.orchestration_bytes,
    )
    remember_session(dirs.state_dir, recording.session, after)
    return ExtractResult(
        recording.session,
        rows=len(fresh),
        secrets=sum(row.secrets for row in new),
        personal=sum(row.personal for row in new),
        turn_count=len(window.session.turns),
        record_count=window.records,
        shard=path.name if path else "",
    )


def _build_rows(
    dirs: DatasetDirs,
    window: SessionWindow,
    progress: SessionProgress,
    subagents: Mapping[str, SubagentProgress],
) -> list[AnyRow]:
    top, session = str(dirs.repository.top), window.session
    rows, links = commits.session_commits(dirs.repository, session)
    by_chat: dict[str, list[str]] = {}
    for name, (_, chat_id) in links.items():
        by_chat.setdefault(chat_id, []).append(name[:12])
    for turn, chat in chat_rows(session, top):
        rows.append(with_commits(chat, by_chat.get(chat.id, [])))
        rows += action_rows(session, turn, top)
    turns = ((turn, own.id) for own in session.subagents for turn in own.turns)
    rows += [row for turn, name in turns for row in action_rows(session, turn, top, name)]
    agents = {name: (subagent.started_ms, subagent.agent) for name, subagent in subagents.items()}
    orchestration = orchestration_row(
        session.id, agents, (tool for subagent in subagents.values() for tool in subagent.tools)
    )
    rows += [orchestration] if orchestration else []
    whole = sum_session(window, progress.before, session.turns, top)
    whole = replace(
        whole, commits=list(dict.fromkeys([*whole.commits, *(name[:12] for name in links)]))
    )
    return [*rows, session_row(session, whole, [subagent.agent for subagent in subagents.values()])]


def _is_deferred(row: Row, progress: SessionProgress) -> bool:
    """Return whether a changed row of subagents waits until it has doubled or the session ends."""
    if row["kind"] != "orchestration" or progress.row_digests.get(key_of(row)) == _hash_row(row):
        return False
    return len(encode_row(row)) < 2 * progress.orchestration_bytes


def _orchestration_bytes(rows: Iterable[Row]) -> int:
    return sum(len(encode_row(row)) for row in rows if row["kind"] == "orchestration")


def _is_fresh(row: Row, written: Mapping[str, str], dataset: DatasetReader | None) -> bool:
    if dataset is not None:
        return not dataset.contains_row(row)
    return written.get(key_of(row)) != _hash_row(row)


def _next_progress(
    context: ExtractContext,
    window: SessionWindow,
    progress: SessionProgress,
    rows: Sequence[Row],
    recording: SessionFiles,
) -> SessionProgress:
    """Return the progress of turns: hashes of rows that may change, and where to continue."""
    written = {key_of(row): _hash_row(row) for row in rows}
    start_of_next = next_window_start(window, recording)
    subagents = {
        key: digest for key, digest in progress.row_digests.items() if key.startswith("action:")
    }
    if start_of_next is None:
        return replace(progress, row_digests={**subagents, **written})
    top = str(context.dirs.repository.top)
    before = sum_session(window, progress.before, window.closed_turns, top)
    names = [name for row in rows if row["kind"] == "session" for name in row["commits"]]
    title = context.redactor.redactor.redact_string(before.title)
    before = replace(before, commits=names, title=title)
    open_rows = {key: written[key] for key in map(key_of, _open_rows(window, rows))}
    path, start, uuid = start_of_next
    return replace(
        progress, path=path, start=start, uuid=uuid, before=before, row_digests=open_rows
    )


def _open_rows(window: SessionWindow, rows: Sequence[Row]) -> Iterable[Row]:
    """Yield the rows that may change: those of open turns, of subagents, and of the session."""
    steps = (step for turn in window.open_turns for step in turn.steps)
    calls = {f"action-{call.id}" for step in steps for call in step.tool_calls}
    uuids = {turn.uuid for turn in window.open_turns}
    for row in rows:
        match row["kind"]:
            case "action":
                is_open = row["id"] in calls or bool(row.get("subagent"))
            case "chat":
                is_open = row["uuid"] in uuids
            case _:
                is_open = True
        if is_open:
            yield row


def _hash_row(row: Row) -> str:
    return hashlib.sha256(encode_row(row)).hexdigest()[:16]
