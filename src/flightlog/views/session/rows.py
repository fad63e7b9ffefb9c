"""Add turns to the outline of a thread, and attach results that come later to their row.

A turn may come in several parts. Marks and figures are kept per row, records in packed chunks.
"""

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from flightlog.model import entries
from flightlog.model.session import Note, NoteKind, Step, Turn, clean_title, is_local_command
from flightlog.model.text import one_line
from flightlog.model.usage import CostSource, Usage, is_unknown
from flightlog.views.session.edits import changed_files
from flightlog.views.session.outline import (
    CHUNK_ROWS,
    CONTENT_BITS,
    RowRecord,
    ThreadOutline,
    TurnHeader,
    pack_records,
    unpack_records,
)
from flightlog.views.session.subagents import SubagentCall, find_subagent_calls
from flightlog.views.session.timeline import RowMark, count_failures, mark_of
from flightlog.views.session.tools import files_of_call, tool_kind

FAILED_MAX = 60_000  # fits the 16 bits of a row
PROMPTS_MAX = 500  # as many as a page lists
PROMPT_WIDTH = 90  # in the list of prompts on a page
PROMPT_WIDTH_MAX = 100  # in a summary
TITLE_CHARS_MAX = 1_000  # before spaces are taken out
_CONTENT_NAMES = {
    "read": "reads",
    "search": "reads",
    "edit": "edits",
    "command": "commands",
    "delegate": "subagents",
    "fetch": "web",
    "other": "other tools",
}  # by the kind of a tool

Location = tuple[int, int, int]  # file, offset, length
Locations = dict[str, Location]  # by the name under which a row looks for the record


def add_location(locations: Locations, entry: entries.Entry, file: int) -> None:
    """Store where a record is, if a row can be read from it."""
    location = (file, entry.offset, entry.length)
    match entry.event:
        case entries.AssistantReply() | entries.UserPrompt() if entry.uuid:
            locations[entry.uuid] = location
        case entries.ToolResult() as event:
            locations.setdefault(f"result:{event.tool_call_id}", location)
        case entries.ToolInputRewritten() as event:
            locations[f"rewrite:{event.tool_call_id}"] = location
        case _:
            pass


class RowBuilder:
    """The rows of one thread while they are added."""

    def __init__(self) -> None:
        self.marks, self.contents = bytearray(), bytearray()
        self.usd, self.tokens, self.failed = array("d"), array("Q"), array("H")
        self.chunks: list[bytes] = []
        self.last: list[RowRecord] = []
        self.prompts: list[str] = []
        self.files: dict[str, int] = {}
        self.usage = Usage()
        self.sources: set[CostSource] = set()
        self.has_lower_bounds = False
        self.unknown_steps = 0
        self.models: set[str] = set()
        self.calls = self.failed_calls = self.turns = 0
        self.title = ""
        self.has_prompt = False
        self.last_prompt: tuple[int | None, str] = (None, "")
        self.command = ""  # that began the last turn: a title once the model answered it
        self.first_turn: str | None = None  # text of its prompt
        self.started_ms: int | None = None
        self.step_times: tuple[int, int] | None = None
        self.human_prompts: dict[int, str] = {}  # by row
        self.subagent_calls: dict[str, SubagentCall] = {}
        self.open_calls: dict[str, int] = {}  # calls without a result, by row
        self.open_edits: set[str] = set()  # those of them that change a file if they succeed

    def clone(self) -> "RowBuilder":
        """Return a builder with the same rows, to which others can be added."""
        clone = RowBuilder()
        for name, value in vars(self).items():
            setattr(clone, name, _copy_value(value))
        return clone

    def add(
        self,
        turns: Iterable[Turn],
        locations: Mapping[str, Location] | None,
        *,
        goes_on: bool = False,
    ) -> None:
        """Add turns; with `goes_on`, a first turn without a prompt continues the turn before.

        Without `locations` the rows get figures, but no records.
        """
        for number, turn in enumerate(turns):
            if number or not goes_on or turn.kind is not None:
                self._add_turn(turn, locations)
            for item in turn.items:
                if isinstance(item, Note):
                    record = RowRecord() if locations is None else RowRecord(content=item)
                    self._add_row(mark_of(item), record, failed=count_failures(item))
                else:
                    self._add_step(item, locations)

    def add_subagent(self, subagent: str, text: str) -> None:
        """Add a row for a subagent without a known call."""
        record = RowRecord(content=Note(NoteKind.REMARK, text), subagent=subagent)
        self._add_row(RowMark.SUBAGENT, record)

    def attach_result(self, event: entries.ToolResult, location: Location) -> None:
        """Add a late result to the row of its call."""
        row = self.open_calls.pop(event.tool_call_id)
        chunk, inside = divmod(row, CHUNK_ROWS)
        records = unpack_records(self.chunks[chunk]) if chunk < len(self.chunks) else self.last
        record = records[inside]
        locations = tuple(sorted({*record.locations, location}))
        records[inside] = RowRecord(locations, record.turn, record.content, record.subagent)
        if chunk < len(self.chunks):
            self.chunks[chunk] = pack_records(records)
        self.failed[row] += event.is_error or bool(event.denial_reason)
        self.failed_calls += event.is_error

    def to_outline(self) -> ThreadOutline:
        """Return the rows added so far."""
        return ThreadOutline(
            bytes(self.marks),
            self.usd.tobytes(),
            self.tokens.tobytes(),
            self.failed.tobytes(),
            (*self.chunks, pack_records(self.last)) if self.last else tuple(self.chunks),
            tuple(self.prompts),
            dict(sorted(self.files.items())),
            bytes(self.contents),
        )

    def _add_turn(self, turn: Turn, locations: Mapping[str, Location] | None) -> None:
        is_typed = turn.kind in {entries.PromptKind.HUMAN, entries.PromptKind.COMMAND}
        if is_typed:
            self.human_prompts[len(self.marks)] = one_line(turn.text, PROMPT_WIDTH_MAX)
        title = clean_title(turn.text)[:TITLE_CHARS_MAX]
        if turn.kind is entries.PromptKind.HUMAN and not is_local_command(turn.text):
            self.has_prompt = True
            self.title = self.title or title
        self.command = title if turn.kind is entries.PromptKind.COMMAND else ""
        if self.first_turn is None:
            self.first_turn = turn.text
        if self.started_ms is None:
            self.started_ms = turn.at_ms
        self.turns += turn.kind is not None
        self.last_prompt = (turn.at_ms, turn.text)
        if len(self.prompts) < PROMPTS_MAX:
            kind = turn.kind.value if turn.kind else "before the first prompt"
            self.prompts.append(one_line((is_typed and turn.text) or kind, PROMPT_WIDTH))
        is_located = locations is not None and turn.uuid in locations
        record_at = (locations[turn.uuid],) if locations is not None and is_located else ()
        prompt_blocks = () if record_at or locations is None else turn.prompt
        header = TurnHeader(turn.kind, turn.at_ms, turn.is_rewound, turn.uuid, prompt_blocks)
        self._add_row(RowMark.TURN, RowRecord(record_at, header))

    def _add_step(self, step: Step, locations: Mapping[str, Location] | None) -> None:
        row = len(self.marks)
        self.title = self.title or self.command
        self.usage += step.usage
        self.models.add(step.model)
        self.has_lower_bounds |= step.is_lower_bound
        self.unknown_steps += is_unknown(step.usage, step.cost)
        self.calls += len(step.tool_calls)
        self.failed_calls += sum(call.is_error for call in step.tool_calls)
        self.files.update((path, row) for path in changed_files(step))
        unanswered = [call for call in step.tool_calls if call.result is None]
        self.open_calls.update((call.id, row) for call in unanswered)
        self.open_edits.update(call.id for call in unanswered if files_of_call(call))
        self.subagent_calls.update(find_subagent_calls(step.tool_calls, row))
        if step.cost_usd is not None:
            self.sources.add(step.cost_source)
        if step.at_ms is not None:
            early, late = self.step_times or (step.at_ms, step.at_ms)
            self.step_times = (min(early, step.at_ms), max(late, step.at_ms))
        usd = math.nan if step.cost_usd is None else step.cost_usd
        record = RowRecord() if locations is None else _step_record(step, locations)
        if record.content is step:  # its number is that in its turn, though the turn goes on
            number = self.marks.count(RowMark.STEP, self.marks.rfind(RowMark.TURN) + 1) + 1
            record = RowRecord(content=replace(step, number=number))
        self._add_row(RowMark.STEP, record, usd, step.usage.total_tokens, count_failures(step))
        self.contents[row] = _contents_of(step)

    def _add_row(
        self, mark: RowMark, record: RowRecord, usd: float = 0.0, tokens: int = 0, failed: int = 0
    ) -> None:
        self.marks.append(mark)
        self.contents.append(0)
        self.usd.append(usd)
        self.tokens.append(tokens)
        self.failed.append(min(failed, FAILED_MAX))
        self.last.append(record)
        if len(self.last) == CHUNK_ROWS:
            self.chunks.append(pack_records(self.last))
            self.last = []


def _contents_of(step: Step) -> int:
    """Return the bits of what a step holds."""
    bits = 0
    for call in step.tool_calls:
        bits |= CONTENT_BITS[_CONTENT_NAMES[tool_kind(call.name)]]
    has_text = any(isinstance(block, entries.Text) and block.text.strip() for block in step.content)
    return bits | CONTENT_BITS["answers"] if has_text else bits


def _step_record(step: Step, locations: Mapping[str, Location]) -> RowRecord:
    if not all(uuid in locations for uuid in step.record_uuids):
        return RowRecord(content=step)
    names = [
        *step.record_uuids,
        *(f"{kind}:{call.id}" for call in step.tool_calls for kind in ("result", "rewrite")),
    ]
    return RowRecord(tuple(sorted({locations[name] for name in names if name in locations})))


def _copy_value(value: Any) -> Any:
    match value:
        case array() | bytearray() | list():
            return value[:]
        case dict() | set():
            return type(value)(value)
        case _:
            return value
