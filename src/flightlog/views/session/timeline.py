"""The rows of a thread, and the part of a session that an address names.

There is one row for each prompt, step and note, in order; its id is the end of its address.
"""

import enum
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec import Struct

from flightlog.model.addresses import Address
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Note, NoteKind, Session, Step, Subagent, Turn

_FAILURES = frozenset({NoteKind.API_FAILURE, NoteKind.INTERRUPTION})


class RowKind(enum.Enum):
    """What a row is."""

    TURN = "turn"
    STEP = "step"
    NOTE = "note"


class RowMark(enum.IntEnum):
    """What a row is, as one byte; a subagent without a known call has a row of its own."""

    TURN = ord("T")
    STEP = ord("S")
    NOTE = ord("N")
    COMPACTION = ord("C")
    SUBAGENT = ord("L")


class TimelineRow(Struct, frozen=True):
    """One row; `id` is `turn`, `turn.step`, `turn.nN` or `lN`, `subagents` are started subagents."""

    id: str
    kind: RowKind
    item: Turn | Step | Note
    subagents: tuple[Subagent, ...] = ()

    @property
    def failure_count(self) -> int:
        """Return the number of failures in this row."""
        return count_failures(self.item)


def count_failures(item: Turn | Step | Note) -> int:
    """Return how many calls failed or were denied, and whether the item itself is a failure."""
    match item:
        case Step():
            failed = sum(call.is_error or bool(call.denial_reason) for call in item.tool_calls)
            return failed + item.is_aborted
        case Note():
            return int(item.kind in _FAILURES)
        case Turn():
            return 0


def mark_of(item: Turn | Step | Note) -> RowMark:
    """Return the mark of a row that shows `item`."""
    match item:
        case Turn():
            return RowMark.TURN
        case Step():
            return RowMark.STEP
        case Note():
            return RowMark.COMPACTION if item.kind is NoteKind.COMPACTION else RowMark.NOTE


def build_rows(session: Session, subagent_id: Subagent | None = None) -> list[TimelineRow]:
    """Return the rows of the main thread, or of a subagent's."""
    started = group_by_call(session.subagents)
    turns = subagent_id.turns if subagent_id else session.turns
    rows = [row for turn in turns for row in _turn_rows(turn, started)]
    if subagent_id is None:
        uncalled = (subagent for subagent in session.subagents if not subagent.tool_call_id)
        for number, subagent in enumerate(uncalled, 1):
            note = Note(NoteKind.REMARK, describe_uncalled(subagent))
            rows.append(TimelineRow(f"l{number}", RowKind.NOTE, note, (subagent,)))
    return rows


class _StartedByCall(Protocol):
    @property
    def tool_call_id(self) -> str: ...


StartedT = TypeVar("StartedT", bound=_StartedByCall)


def group_by_call(subagents: Iterable[StartedT]) -> dict[str, list[StartedT]]:
    """Return the subagents that each call started; a workflow starts several."""
    started: dict[str, list[StartedT]] = defaultdict(list)
    for subagent in subagents:
        if subagent.tool_call_id:
            started[subagent.tool_call_id].append(subagent)
    return dict(started)


def describe_uncalled(subagent: Subagent) -> str:
    """Return the text of the row for a subagent without a known call."""
    return f"{subagent.agent_type or 'subagent'} without a call on record"


def _turn_rows(turn: Turn, started: dict[str, list[Subagent]]) -> Iterator[TimelineRow]:
    yield TimelineRow(f"{turn.number}", RowKind.TURN, turn)
    notes = 0
    for item in turn.items:
        if isinstance(item, Note):
            notes += 1
            yield TimelineRow(f"{turn.number}.n{notes}", RowKind.NOTE, item)
        else:
            names = (call.id for call in item.tool_calls)
            subagents = tuple(one for name in names for one in started.get(name, ()))
            yield TimelineRow(f"{turn.number}.{item.number}", RowKind.STEP, item, subagents)


def iter_turns(session: Session) -> Iterator[tuple[str, Turn]]:
    """Yield every turn with the id of its thread, subagents included."""
    yield from (("", turn) for turn in session.turns)
    yield from ((subagent.id, turn) for subagent in session.subagents for turn in subagent.turns)


def iter_steps(session: Session) -> Iterator[tuple[Address, Step]]:
    """Yield every step with its address, subagents included."""
    for subagent, turn in iter_turns(session):
        for step in turn.steps:
            yield Address(session.id, turn.number, step.number, subagent), step


def all_steps(session: Session) -> Iterator[Step]:
    """Yield every step, subagents included."""
    for _, turn in iter_turns(session):
        yield from turn.steps


def turn_steps(session: Session, turn: Turn) -> Iterator[Step]:
    """Yield the steps of a turn, each followed by those of the subagents it started."""
    subagents = group_by_call(session.subagents)
    waiting = deque(turn.steps)
    while waiting:
        step = waiting.popleft()
        yield step
        started = [agent for call in step.tool_calls for agent in subagents.pop(call.id, ())]
        inner = [step for subagent in started for turn in subagent.turns for step in turn.steps]
        waiting.extendleft(reversed(inner))


def map_addresses(session: Session) -> dict[str, str]:
    """Return the address of the turn or step that each record, by its id, belongs to."""
    addresses: dict[str, str] = {}
    for subagent, turn in iter_turns(session):
        for uuid, step in _turn_records(turn):
            addresses.setdefault(uuid, str(Address(session.id, turn.number, step, subagent)))
    return addresses


def _turn_records(turn: Turn) -> Iterator[tuple[str, int]]:
    if turn.uuid:
        yield turn.uuid, 0
    for step in turn.steps:
        yield from ((uuid, step.number) for uuid in step.record_uuids if uuid)
        yield from ((call.result_uuid, step.number) for call in step.tool_calls if call.result_uuid)


def find_part(session: Session, at: Address) -> Session | Subagent | Turn | Step:
    """Return what the address names; raise `NotFound` if there is no such part."""
    if at.step:
        return find_step(session, at)
    if at.turn:
        return find_turn(session, at)
    return find_lane(session, at) or session


def find_lane(session: Session, at: Address) -> Subagent | None:
    """Return the subagent the address is in; None is the main thread."""
    if not at.subagent:
        return None
    begin = [subagent for subagent in session.subagents if subagent.id.startswith(at.subagent)]
    named = [subagent for subagent in begin if subagent.id == at.subagent] or begin
    if not named:
        hint = f"flightlog session show {session.id}"
        raise NotFound(f"no subagent {at.subagent!r} in {session.id}", hint=hint)
    if len(named) > 1:
        hint = f"write more of it: {', '.join(subagent.id for subagent in named[:5])}"
        raise Invalid(f"{len(named)} subagents begin with {at.subagent!r}", hint=hint)
    return named[0]


def find_turn(session: Session, at: Address) -> Turn:
    """Return the turn the address is in."""
    subagent = find_lane(session, at)
    turns = subagent.turns if subagent else session.turns
    turn = next((turn for turn in turns if turn.number == at.turn), None)
    if turn is None:
        hint = f"flightlog session show {session.id}"
        raise NotFound(f"no turn {at.turn} in {session.id}; it has {len(turns)}", hint=hint)
    return turn


def find_step(session: Session, at: Address) -> Step:
    """Return the step the address names."""
    turn = find_turn(session, at)
    step = next((step for step in turn.steps if step.number == at.step), None)
    if step is None:
        hint = f"flightlog session show '{Address(session.id, at.turn, subagent=at.subagent)}'"
        raise NotFound(f"no step {at.step} in turn {at.turn}; it has {len(turn.steps)}", hint=hint)
    return step
