"""A session as a web page shows it: the outline in memory, row texts read when they are drawn.

Rows are equal to those of a fold of the whole session, but only their own records are read.
"""

import functools
from collections.abc import Container, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive
from flightlog.model.entries import (
    AssistantReply,
    Block,
    Entry,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UserPrompt,
    text_of,
)
from flightlog.model.errors import NotFound
from flightlog.model.session import Note, NoteKind, Session, Step, Turn
from flightlog.model.text import one_line
from flightlog.model.usage import UsageRow, usage_fields
from flightlog.usage.prices import price
from flightlog.views.session.fold import add_step_hooks, fold_session
from flightlog.views.session.outline import (
    RowRecord,
    SessionOutline,
    SessionSummary,
    SubagentSummary,
    ThreadOutline,
    TimelineBar,
)
from flightlog.views.session.timeline import RowKind, RowMark, count_failures, group_by_call

RecordPlace = tuple[str, int]  # path and offset
RowPlace = tuple[str, int]  # thread and row
FILES_MAX = 1_000  # files listed for one thread
KINDS = {RowMark.TURN: RowKind.TURN, RowMark.STEP: RowKind.STEP}
GONE = Note(NoteKind.REMARK, "no longer in the recording")


class PageRow(Struct, frozen=True):
    """One row with its text; `subagents` are the subagents it started."""

    id: str
    kind: RowKind
    item: Turn | Step | Note
    subagents: tuple[SubagentSummary, ...] = ()

    @property
    def failure_count(self) -> int:
        """Return the number of failures in this row."""
        return count_failures(self.item)


class SessionPage:
    """One session at one point in time."""

    def __init__(
        self,
        archive: Archive,
        outline: SessionOutline,
        version: str = "",
        title: str = "",
        own_usage: UsageRow | SessionSummary | None = None,
    ) -> None:
        """Take an outline; `title` and `own_usage` override title and usage of the session."""
        self._archive = archive
        self._bars: dict[str, list[TimelineBar]] = {}
        self._files: dict[str, list[tuple[str, str]]] = {}
        self.outline = outline
        self.version = version
        self.summary = outline.summary
        if own_usage is not None:
            used = usage_fields(own_usage.usage, own_usage.cost)
            unknown = own_usage.unknown_responses
            self.summary = replace(outline.summary, **used, unknown_responses=unknown)
        self.session: Session = replace(outline.session, title=title or outline.session.title)

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        threads = self.outline.threads.values()
        return sum(len(chunk) + 40 for thread in threads for chunk in thread.chunks)

    def find_subagent(self, name: str) -> SubagentSummary:
        """Return the subagent with this id."""
        for subagent in self.outline.subagents:
            if subagent.id == name:
                return subagent
        hint = "flightlog session show"
        raise NotFound(f'no subagent "{one_line(name, 40)}" in this session', hint=hint)

    def thread_of(self, subagent: str = "") -> ThreadOutline:
        """Return the outline of a thread."""
        return self.outline.threads[subagent]

    def timeline_bars(self, subagent: str = "") -> list[TimelineBar]:
        """Return the bars of a thread's strip, computed once."""
        if subagent not in self._bars:
            self._bars[subagent] = self.thread_of(subagent).sum_bars()
        return self._bars[subagent]

    def changed_files(self, subagent: str = "") -> list[tuple[str, str]]:
        """Return the files a thread changed, each with the last row that changed it."""
        if subagent not in self._files:
            thread = self.thread_of(subagent)
            self._files[subagent] = [
                (path, thread.id_at(row)) for path, row in list(thread.files.items())[:FILES_MAX]
            ]
        return self._files[subagent]

    def load_rows(self, rows: Sequence[int], subagent: str = "") -> list[PageRow]:
        """Read rows from the recording."""
        thread = self.thread_of(subagent)
        if isinstance(rows, range) and rows.step == 1:
            records = thread.read_records(rows[0], rows[-1] + 1) if rows else []
        else:
            records = [thread.read_records(row, row + 1)[0] for row in rows]
        locations = {location for record in records for location in self._record_locations(record)}
        content = _RowContent(self._archive.read_entries_at(sorted(locations)))
        pairs = zip(rows, records, strict=True)
        return [self._build_row(thread, row, record, content) for row, record in pairs]

    def find_rows(self, locations: Container[RecordPlace]) -> dict[RecordPlace, RowPlace]:
        """Return thread and row of the records at these paths and offsets."""
        return {at: row for at, row in self.outline.rows_by_location() if at in locations}

    def _record_locations(self, record: RowRecord) -> list[tuple[str, int, int]]:
        files = self.outline.files
        return [(files[file], offset, length) for file, offset, length in record.locations]

    def _build_row(
        self, thread: ThreadOutline, row: int, record: RowRecord, content: "_RowContent"
    ) -> PageRow:
        name, mark = thread.id_at(row), thread.row_kinds[row]
        item: Turn | Step | Note
        if mark == RowMark.TURN:
            item = _build_turn(int(name), record, content)
        elif record.content is not None:
            item = record.content
        else:
            step = content.find_step(self._record_locations(record))
            item = replace(step, number=int(name.partition(".")[2])) if step else GONE
        if isinstance(item, Step) and self.outline.tool_hooks:
            item = add_step_hooks(item, self.outline.tool_hooks)
        if isinstance(item, Note):
            mark = RowMark.NOTE if mark == RowMark.STEP else mark
        kind = KINDS.get(RowMark(mark), RowKind.NOTE)
        return PageRow(name, kind, item, self._subagents_of_row(item, record))

    def _subagents_of_row(
        self, item: Turn | Step | Note, record: RowRecord
    ) -> tuple[SubagentSummary, ...]:
        if record.subagent:
            return (self.find_subagent(record.subagent),)
        calls = [call.id for call in item.tool_calls] if isinstance(item, Step) else []
        by_call = self._subagents_by_call
        return tuple(subagent for call in calls for subagent in by_call.get(call, ()))

    @functools.cached_property
    def _subagents_by_call(self) -> dict[str, list[SubagentSummary]]:
        return group_by_call(self.outline.subagents)


def _build_turn(number: int, record: RowRecord, content: "_RowContent") -> Turn:
    header = record.turn
    assert header is not None, "the row of a turn has a header"
    prompt = content.prompts.get(header.uuid, header.prompt) if record.locations else header.prompt
    numbers = (number, header.kind, prompt, header.at_ms, ())
    return Turn(*numbers, is_rewound=header.is_rewound, uuid=header.uuid)


class _RowContent:
    """The steps and prompts folded from some records."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # Folded as one thread, because the outline already knows their subagent.
        read = [replace(entry, subagent="") for entry in entries]
        session = fold_session("", "", price, read)
        self._steps = {uuid: step for step in session.steps for uuid in step.record_uuids}
        replies = [entry for entry in read if isinstance(entry.event, AssistantReply)]
        self._uuids = {(entry.path, entry.offset): entry.uuid for entry in replies}
        self.prompts = {turn.uuid: turn.prompt for turn in session.turns}

    def find_step(self, locations: Iterable[tuple[str, int, int]]) -> Step | None:
        """Return the step made of these records."""
        uuids = (self._uuids.get((path, offset)) for path, offset, _ in locations)
        return next((self._steps[uuid] for uuid in uuids if uuid in self._steps), None)


def searchable_text(entry: Entry) -> str:
    """Return the text of a record that a page shows."""
    match entry.event:
        case UserPrompt() as event:
            return text_of((*event.content, *event.context))
        case ToolResult() as event:
            return text_of(event.content)
        case AssistantReply() as event:
            return "\n".join(_block_text(block) for block in event.content)
        case _:
            return ""


def _block_text(block: Block) -> str:
    match block:
        case Text() | Thinking():
            return block.text
        case ToolUse():
            return f"{block.name} " + " ".join(str(value) for value in block.input.values())
        case _:
            return ""
