"""Values of a session without its texts: summary, rows, and the locations of their records.

Small enough to keep for 50,000 steps: a row takes a few dozen bytes, packed in chunks that are
opened when they are shown. The texts stay in the recording and are read at the locations.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from flightlog.model.entries import Block, PromptKind, ToolHook
from flightlog.model.session import Note, Session, Step
from flightlog.model.usage import Cost, CostSource, TokensAndCost
from flightlog.views.session.timeline import RowMark

BARS_MAX = 240  # as many as a page can show side by side
CHUNK_ROWS = 20  # rows that are packed and read together: about one screen
# What a step holds, one bit each; a page can show only the rows of one kind.
CONTENT_BITS = {
    "answers": 1,
    "edits": 2,
    "commands": 4,
    "reads": 8,
    "web": 16,
    "subagents": 32,
    "other tools": 64,
}

_OTHER_KINDS = ("failures", "notes")


class TurnCost(Struct, frozen=True):
    """The steps and the cost that followed from one prompt, subagents included."""

    address: str
    prompt: str
    steps: int
    cost_usd: float | None
    cost_source: CostSource
    is_lower_bound: bool = False

    @property
    def cost(self) -> Cost:
        """The amount with its source."""
        return Cost(self.cost_usd, self.cost_source, self.is_lower_bound)


class SessionSummary(TokensAndCost, frozen=True):
    """One line of a list of sessions; an empty one has neither a prompt nor a response."""

    session: str
    agent: str
    title: str
    project: str
    branch: str
    version: str
    started_ms: int | None
    ended_ms: int | None
    turns: int
    steps: int
    tool_calls: int
    failed_tool_calls: int
    subagents: int
    models: tuple[str, ...]
    most_expensive_prompt: TurnCost | None
    compactions: int = 0
    unknown_records: int = 0
    damage_count: int = 0
    modified_ms: int = 0
    unknown_responses: int = 0
    is_empty: bool = False

    @property
    def heading(self) -> str:
        """The title, or what there is instead; clients remove old main threads alone."""
        if self.title or self.turns or not self.steps:
            return self.title or "(no prompt)"
        return "(subagents only)" if self.subagents else "(warm-up only)"


def sort_newest_first(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Return sessions by the time of their last record; those without a time come last.

    The time of a file says nothing: a backup or a copy changes it.
    """
    return sorted(summaries, key=lambda summary: (-(summary.ended_ms or 0), summary.session))


class TurnHeader(Struct, frozen=True, array_like=True):
    """A turn without its items; `prompt` is empty where it can be read from the recording."""

    kind: PromptKind | None
    at_ms: int | None
    is_rewound: bool = False
    uuid: str = ""
    prompt: tuple[Block, ...] = ()


class RowRecord(Struct, frozen=True, array_like=True):
    """One row: the locations (file, offset, length) of its records, or its content."""

    locations: tuple[tuple[int, int, int], ...] = ()
    turn: TurnHeader | None = None
    content: Step | Note | None = None
    subagent: str = ""


class TimelineBar(Struct, frozen=True):
    """Some neighboring rows, summed up."""

    first: int
    count: int
    cost_usd: float
    total_tokens: int
    failure_count: int
    compacted: bool
    turns: int


class ThreadOutline(Struct, frozen=True):
    """The packed rows of one thread: marks, costs (NaN if unknown), tokens, failures, records.

    Ids are not stored: rows are counted within their turn, so the marks give them.
    """

    row_kinds: bytes = b""
    costs_usd: bytes = b""
    token_counts: bytes = b""
    failed_counts: bytes = b""
    chunks: tuple[bytes, ...] = ()
    prompts: tuple[str, ...] = ()
    files: dict[str, int] = {}
    row_contents: bytes = b""

    @property
    def total(self) -> int:
        return len(self.row_kinds)

    def rows_of_kind(self, kind: str) -> Sequence[int]:
        """Return the rows that show some kind of content, or all for an unknown kind."""
        flags = self._flag_rows(kind)
        return range(self.total) if flags is None else [at for at, flag in enumerate(flags) if flag]

    def count_kinds(self) -> dict[str, int]:
        """Return how many rows each kind of content has; kinds without rows are left out."""
        flags = {kind: self._flag_rows(kind) for kind in ("prompts", *CONTENT_BITS, *_OTHER_KINDS)}
        counts = {kind: len(rows) - rows.count(0) for kind, rows in flags.items() if rows}
        return {kind: count for kind, count in counts.items() if count}

    def _flag_rows(self, kind: str) -> bytes | None:
        """Return a byte for each row, not 0 if it is of the kind; None for an unknown kind."""
        if bit := CONTENT_BITS.get(kind):
            return self.row_contents.translate(bytes(value & bit for value in range(256)))
        marks = {"prompts": b"T", "notes": b"NCL"}.get(kind)
        if marks is not None:
            return self.row_kinds.translate(bytes(value in marks for value in range(256)))
        if kind == "failures":
            return bytes(min(count, 1) for count in array("H", self.failed_counts))
        return None

    def read_records(self, first: int, last: int) -> list[RowRecord]:
        """Return the records of the rows from `first` up to, but without, `last`."""
        begin = first // CHUNK_ROWS
        chunks = self.chunks[begin : -(-last // CHUNK_ROWS)]
        records = [record for chunk in chunks for record in unpack_records(chunk)]
        return records[first - begin * CHUNK_ROWS : last - begin * CHUNK_ROWS]

    def id_at(self, row: int) -> str:
        """Return the id of a row: `turn`, `turn.step`, `turn.nN` or `lN`."""
        turn = self.row_kinds.count(RowMark.TURN, 0, row)
        begin = max(self.row_kinds.rfind(RowMark.TURN, 0, row), 0)
        match self.row_kinds[row]:
            case RowMark.TURN:
                return str(turn + 1)
            case RowMark.STEP:
                return f"{turn}.{self.row_kinds.count(RowMark.STEP, begin, row) + 1}"
            case RowMark.SUBAGENT:
                return f"l{self.row_kinds.count(RowMark.SUBAGENT, 0, row + 1)}"
            case _:
                return f"{turn}.n{_count_notes(self.row_kinds, begin, row) + 1}"

    def find_row(self, row_id: str) -> int | None:
        """Return the row that has this id, if there is one."""
        if row_id[:1] == "l":
            return _find_nth(self.row_kinds, RowMark.SUBAGENT, _parse_number(row_id[1:]))
        turn, _, rest = row_id.partition(".")
        begin = _find_nth(self.row_kinds, RowMark.TURN, _parse_number(turn))
        if begin is None or not rest:
            return begin
        end = self.row_kinds.find(RowMark.TURN, begin + 1)
        stop = end if end >= 0 else len(self.row_kinds)
        inside = self.row_kinds[begin:stop].replace(b"C", b"N")
        mark = RowMark.NOTE if rest[0] == "n" else RowMark.STEP
        row = _find_nth(inside, mark, _parse_number(rest.removeprefix("n")))
        return None if row is None else begin + row

    def sum_bars(
        self, bars_max: int = BARS_MAX, rows: Sequence[int] | None = None
    ) -> list[TimelineBar]:
        """Return at most `bars_max` bars of equal length; an unknown cost is NaN and left out.

        With `rows`, only those count.
        """
        usd, tokens = array("d", self.costs_usd), array("Q", self.token_counts)
        failed = array("H", self.failed_counts)
        marks = self.row_kinds
        if rows is not None:
            usd = array("d", [usd[row] for row in rows])
            tokens = array("Q", [tokens[row] for row in rows])
            failed = array("H", [failed[row] for row in rows])
            marks = bytes(marks[row] for row in rows)
        size = max(-(-len(marks) // bars_max), 1)
        starts, total = range(0, len(marks), size), len(marks)
        parts = [slice(first, min(first + size, total)) for first in starts]
        return [
            TimelineBar(
                part.start,
                part.stop - part.start,
                sum(cost for cost in usd[part] if not math.isnan(cost)),
                sum(tokens[part]),
                sum(failed[part]),
                RowMark.COMPACTION in marks[part],
                marks[part].count(RowMark.TURN),
            )
            for part in parts
        ]


class SubagentSummary(Struct, frozen=True):
    """A subagent without its thread; times are those of its first and last step."""

    id: str
    agent_type: str
    description: str
    tool_call_id: str
    is_side_call: bool
    rows: int
    steps: int
    cost: Cost
    started_ms: int | None
    ended_ms: int | None


class SessionOutline(Struct, frozen=True):
    """A session without its texts: a header without turns, and threads by id, "" the main one.

    A running prompt, which only the hook log has, is the last row of the main thread.
    """

    session: Session
    summary: SessionSummary
    files: tuple[str, ...]
    subagents: tuple[SubagentSummary, ...]
    threads: dict[str, ThreadOutline]
    tool_hooks: dict[str, ToolHook] = {}
    is_prompt_running: bool = False

    def rows_by_location(self) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
        """Yield path and offset of each record with the thread and the row it belongs to."""
        for name, thread in self.threads.items():
            # Chunk by chunk: the records of 50,000 steps take 50 MB.
            records = (record for chunk in thread.chunks for record in unpack_records(chunk))
            for row, record in enumerate(records):
                for file, offset, _ in record.locations:
                    yield (self.files[file], offset), (name, row)


pack_records = msgspec.msgpack.Encoder().encode
unpack_records = msgspec.msgpack.Decoder(list[RowRecord]).decode


def _count_notes(marks: bytes, begin: int, end: int) -> int:
    return marks.count(RowMark.NOTE, begin, end) + marks.count(RowMark.COMPACTION, begin, end)


def _find_nth(marks: bytes, mark: RowMark, number: int) -> int | None:
    row = -1
    for _ in range(number):
        row = marks.find(mark, row + 1)
        if row < 0:
            return None
    return row if number else None


def _parse_number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 9 else 0
