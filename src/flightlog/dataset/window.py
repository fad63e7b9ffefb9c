"""The end of a session that may still change: read it, tell it, say where the next look begins.

A session's main file is read from where its last turns begin; of subagents, those whose file grew.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from flightlog.archive import Archive, SessionFiles
from flightlog.dataset.memory import SearchProgress, SessionProgress, SubagentProgress
from flightlog.dataset.orchestration import subagents_by_id
from flightlog.dataset.telling import EarlierTurns, add_turns
from flightlog.model.events import Entry, SessionTitled, UserPrompt
from flightlog.model.session import Session, Turn
from flightlog.privacy.records import JsonRedactor
from flightlog.store.reading import raw_lines
from flightlog.usage.prices import price
from flightlog.views.session.fold import fold_session

_OPEN_TURNS = 2
_BATCH_LINES = 500  # about a megabyte of a usual transcript, which the redactor searches in one go


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
