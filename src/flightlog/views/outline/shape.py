"""A session's shape without its words: which rows there are, what each took, and where its records lie.

Small enough to keep for 50,000 steps: a row costs a few dozen bytes, packed in chunks that are
opened when somebody looks. The words stay in the recording and are read from the places told here.
"""

import enum
from array import array
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from flightlog.model.events import Block, PromptKind
from flightlog.model.session import Note, Session, Step
from flightlog.model.usage import Cost
from flightlog.views.summary import SessionSummary
from flightlog.views.timeline import BARS_MAX, Bar

CHUNK_ROWS = 20
PROMPTS_MAX = 500


class Mark(enum.IntEnum):
    """What a row is; the marks of a thread are its ids, since rows are counted within their turn."""

    TURN = ord("T")
    STEP = ord("S")
    NOTE = ord("N")
    COMPACTION = ord("C")
    LANE = ord("L")


class TurnHead(Struct, frozen=True, array_like=True):
    """What a turn is besides its words; `prompt` only where no record can be read again."""

    kind: PromptKind | None
    at_ms: int | None
    rewound: bool = False
    uuid: str = ""
    prompt: tuple[Block, ...] = ()


class Line(Struct, frozen=True, array_like=True):
    """One row: the places of its records (file, offset, length), or what it says where that is not one record."""

    places: tuple[tuple[int, int, int], ...] = ()
    turn: TurnHead | None = None
    said: Step | Note | None = None
    lane: str = ""


class Thread(Struct, frozen=True):
    """The rows of one thread: a mark, dollars (or not a number), tokens and failures for each, and packed lines."""

    marks: bytes = b""
    usd: bytes = b""
    tokens: bytes = b""
    failed: bytes = b""
    chunks: tuple[bytes, ...] = ()
    prompts: tuple[str, ...] = ()
    files: dict[str, int] = {}

    @property
    def total(self) -> int:
        """How many rows there are."""
        return len(self.marks)

    def lines(self, first: int, last: int) -> list[Line]:
        """The lines of some rows."""
        begin = first // CHUNK_ROWS
        opened = [line for chunk in self.chunks[begin : -(-last // CHUNK_ROWS)] for line in unpacked(chunk)]
        return opened[first - begin * CHUNK_ROWS : last - begin * CHUNK_ROWS]

    def id_at(self, row: int) -> str:
        """The id of a row: `turn`, `turn.step`, `turn.nN` or `lN`."""
        turn = self.marks.count(Mark.TURN, 0, row)
        begin = max(self.marks.rfind(Mark.TURN, 0, row), 0)
        return self._id(row, turn, self.marks.count(Mark.STEP, begin, row), _notes(self.marks, begin, row))

    def firsts(self) -> list[str]:
        """The id of each chunk's first row, counted in one pass."""
        ids, turn, begin, steps, notes = [], 0, 0, 0, 0
        for start in range(0, self.total, CHUNK_ROWS):
            turns = self.marks.count(Mark.TURN, begin, start)
            if turns:
                turn, steps, notes, begin = turn + turns, 0, 0, self.marks.rfind(Mark.TURN, begin, start)
            steps += self.marks.count(Mark.STEP, begin, start)
            notes += _notes(self.marks, begin, start)
            begin = start
            ids.append(self._id(start, turn, steps, notes))
        return ids

    def _id(self, row: int, turn: int, steps: int, notes: int) -> str:
        """The id of a row after so many turns, and steps and notes of the last one."""
        match self.marks[row]:
            case Mark.TURN:
                return str(turn + 1)
            case Mark.STEP:
                return f"{turn}.{steps + 1}"
            case Mark.LANE:
                return f"l{self.marks.count(Mark.LANE, 0, row + 1)}"
            case _:
                return f"{turn}.n{notes + 1}"

    def row_of(self, written: str) -> int | None:
        """The row that has this id."""
        if written[:1] == "l":
            return _nth(self.marks, bytes([Mark.LANE]), 0, _number(written[1:]))
        turn, _, rest = written.partition(".")
        begin = _nth(self.marks, bytes([Mark.TURN]), 0, _number(turn))
        if begin is None or not rest:
            return begin
        end = self.marks.find(Mark.TURN, begin + 1)
        inside = self.marks[begin : end if end >= 0 else len(self.marks)].replace(b"C", b"N")
        of = bytes([Mark.NOTE if rest[0] == "n" else Mark.STEP])
        place = _nth(inside, of, 0, _number(rest.removeprefix("n")))
        return None if place is None else begin + place

    def bars(self, bars_max: int = BARS_MAX) -> list[Bar]:
        """Sum rows up into at most `bars_max` bars of equal length."""
        usd, tokens, failed = array("d", self.usd), array("Q", self.tokens), array("H", self.failed)
        size = max(-(-self.total // bars_max), 1)
        return [
            Bar(
                first,
                min(size, self.total - first),
                sum(each for each in usd[first : first + size] if each == each),  # noqa: PLR0124 - not a number
                sum(tokens[first : first + size]),
                sum(failed[first : first + size]),
                Mark.COMPACTION in self.marks[first : first + size],
                self.marks.count(Mark.TURN, first, first + size),
            )
            for first in range(0, self.total, size)
        ]


class LaneHead(Struct, frozen=True):
    """A subagent without its thread."""

    id: str
    agent_type: str
    description: str
    call_id: str
    warmup: bool
    rows: int
    steps: int
    cost: Cost
    begin_ms: int | None
    end_ms: int | None
    begun_ms: int = 0


class Outline(Struct, frozen=True):
    """A whole session; `session` holds what is true of all of it and no turns, `threads` the rest, by lane."""

    session: Session
    told: SessionSummary
    files: tuple[str, ...]
    lanes: tuple[LaneHead, ...]
    threads: dict[str, Thread]

    def rows_by_place(self) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
        """Yield which row, of which thread, each record belongs to."""
        for name, thread in self.threads.items():
            for row, line in enumerate(thread.lines(0, thread.total)):
                yield from (((self.files[file], offset), (name, row)) for file, offset, _ in line.places)


def packed(lines: list[Line]) -> bytes:
    """Pack the lines of one chunk."""
    return _encode(lines)


def unpacked(chunk: bytes) -> list[Line]:
    """Open a chunk."""
    return _decode(chunk)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Line]).decode


def _notes(marks: bytes, begin: int, end: int) -> int:
    return marks.count(Mark.NOTE, begin, end) + marks.count(Mark.COMPACTION, begin, end)


def _nth(marks: bytes, of: bytes, begin: int, number: int) -> int | None:
    """The place of the n-th mark of a kind."""
    place = begin - 1
    for _ in range(number):
        place = marks.find(of, place + 1)
        if place < 0:
            return None
    return place if number else None


def _number(written: str) -> int:
    return int(written) if written.isdecimal() and written.isascii() and len(written) < 9 else 0
