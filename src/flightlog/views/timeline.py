"""A thread as rows to scroll through, and as a strip to see it whole.

One row for each prompt, step and note, in order, each with an id that stays its address.
Knows nothing of pages; any face that scrolls can use it.
"""

import enum
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.model.session import Lane, Note, NoteKind, Session, Step, Turn

BARS_MAX = 240


class RowKind(enum.Enum):
    """What a row is."""

    TURN = "turn"
    STEP = "step"
    NOTE = "note"


class Row(Struct, frozen=True):
    """One row; `id` is `turn`, `turn.step` or `turn.nN`, and `lanes` are the subagents it started."""

    id: str
    kind: RowKind
    item: Turn | Step | Note
    lanes: tuple[Lane, ...] = ()

    @property
    def failed(self) -> int:
        """How many things went wrong here."""
        match self.item:
            case Step() as step:
                return sum(call.is_error or bool(call.denied) for call in step.calls) + step.aborted
            case Note() as note:
                return int(note.kind in {NoteKind.API_FAILURE, NoteKind.INTERRUPTION})
            case _:
                return 0

    @property
    def compacted(self) -> bool:
        """Whether the context was compacted here."""
        return isinstance(self.item, Note) and self.item.kind is NoteKind.COMPACTION


class Bar(Struct, frozen=True):
    """One bar of the strip: some rows side by side."""

    first: int
    count: int
    usd: float
    tokens: int
    failed: int
    compacted: bool
    turns: int


def rows(session: Session, lane: Lane | None = None) -> list[Row]:
    """Lay out a thread: the main one, or a subagent's."""
    started: dict[str, Lane] = {each.call_id: each for each in session.lanes if each.call_id}
    turns = lane.turns if lane else session.turns
    laid = [row for turn in turns for row in _turn(turn, started)]
    if lane is None:
        laid += _orphans(session)
    return laid


def strip(laid: Sequence[Row], bars_max: int = BARS_MAX) -> list[Bar]:
    """Sum rows up into at most `bars_max` bars of equal length."""
    size = max(-(-len(laid) // bars_max), 1)
    return [_bar(first, laid[first : first + size]) for first in range(0, len(laid), size)]


def _turn(turn: Turn, started: dict[str, Lane]) -> Iterator[Row]:
    yield Row(f"{turn.number}", RowKind.TURN, turn)
    notes = 0
    for item in turn.items:
        if isinstance(item, Note):
            notes += 1
            yield Row(f"{turn.number}.n{notes}", RowKind.NOTE, item)
        else:
            lanes = tuple(started[call.id] for call in item.calls if call.id in started)
            yield Row(f"{turn.number}.{item.number}", RowKind.STEP, item, lanes)


def _orphans(session: Session) -> Iterator[Row]:
    """Subagents nobody on record called are told at the end."""
    lanes = [lane for lane in session.lanes if not lane.call_id]
    for number, lane in enumerate(lanes, 1):
        kind = "warm-up" if lane.warmup else lane.agent_type or "subagent"
        yield Row(f"l{number}", RowKind.NOTE, Note(NoteKind.REMARK, f"{kind} without a call on record"), (lane,))


def _bar(first: int, part: Sequence[Row]) -> Bar:
    steps = [row.item for row in part if isinstance(row.item, Step)]
    return Bar(
        first,
        len(part),
        sum(step.cost.usd or 0.0 for step in steps),
        sum(step.usage.total for step in steps),
        sum(row.failed for row in part),
        any(row.compacted for row in part),
        sum(row.kind is RowKind.TURN for row in part),
    )
