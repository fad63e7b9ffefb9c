"""Adding rows to an outline: turns go in, marks, figures and places come out.

A turn may come in pieces; a result that arrives after its step was put away is put in its row.
"""

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flightlog.model.events import Entry, InputRewritten, Prompted, PromptKind, Replied, ToolReturned
from flightlog.model.session import TITLE_WIDTH, Note, NoteKind, Step, ToolCall, Turn
from flightlog.model.text import one_line
from flightlog.model.usage import CostSource, Usage
from flightlog.views.changes import changed_file, changed_files
from flightlog.views.outline.shape import CHUNK_ROWS, PROMPTS_MAX, Line, Mark, Thread, TurnHead, packed, unpacked
from flightlog.views.timeline import Row, RowKind

FAILED_MAX = 60_000
PROMPT_WIDTH = 90
PROMPT_WIDTH_MAX = 100
_STARTING = {"prompt", "subagent_type"}


class Start(NamedTuple):
    """A call that may have started a subagent: its row, and what it asked for."""

    row: int
    prompt: str | None
    agent_type: str
    description: str


Places = dict[str, tuple[int, int, int]]


def remember(places: Places, entry: Entry, file: int) -> None:
    """Note where a record stands, by what it will be looked for."""
    place = (file, entry.offset, entry.length)
    match entry.event:
        case Replied() | Prompted() if entry.uuid:
            places[entry.uuid] = place
        case ToolReturned() as event:
            places.setdefault(f"result:{event.call_id}", place)
        case InputRewritten() as event:
            places[f"rewrite:{event.call_id}"] = place
        case _:
            pass


class Rows:
    """The rows of one thread, growing."""

    def __init__(self) -> None:
        """Begin with none."""
        self.marks = bytearray()
        self.usd, self.tokens, self.failed = array("d"), array("Q"), array("H")
        self.chunks: list[bytes] = []
        self.last: list[Line] = []
        self.prompts: list[str] = []
        self.files: dict[str, int] = {}
        self.usage = Usage()
        self.sources: set[CostSource] = set()
        self.models: set[str] = set()
        self.calls = self.failed_calls = self.turns = 0
        self.titles: dict[PromptKind, str] = {}
        self.first_words: str | None = None
        self.begin_ms: int | None = None
        self.times: tuple[int, int] | None = None
        self.asking: dict[int, str] = {}  # what a person asked for, by row
        self.starts: dict[str, Start] = {}  # calls that may have started a subagent
        self.open: dict[str, int] = {}  # calls without a result, by row
        self.writing: set[str] = set()  # those of them that change a file if they succeed

    def twin(self) -> "Rows":
        """The same rows, to grow on their own."""
        twin = Rows()
        for name, value in vars(self).items():
            setattr(twin, name, _twin(value))
        return twin

    def add(self, turns: Iterable[Turn], places: Mapping[str, tuple[int, int, int]], *, goes_on: bool) -> None:
        """Add turns; with `goes_on` the first one without a prompt is more of the turn before."""
        for number, turn in enumerate(turns):
            if number or not goes_on or turn.kind is not None:
                self._turn(turn, places)
            for item in turn.items:
                if isinstance(item, Note):
                    mark = Mark.COMPACTION if item.kind is NoteKind.COMPACTION else Mark.NOTE
                    self._row(mark, Line(said=item), failed=Row("", RowKind.NOTE, item).failed)
                else:
                    self._step(item, places)

    def orphan(self, lane: str, said: str) -> None:
        """Add a subagent nobody called."""
        self._row(Mark.LANE, Line(said=Note(NoteKind.REMARK, said), lane=lane))

    def answer(self, row: int, event: ToolReturned, place: tuple[int, int, int]) -> None:
        """Put a late result in the row of its call."""
        chunk, inside = divmod(row, CHUNK_ROWS)
        lines = unpacked(self.chunks[chunk]) if chunk < len(self.chunks) else self.last
        line = lines[inside]
        lines[inside] = Line(tuple(sorted({*line.places, place})), line.turn, line.said, line.lane)
        if chunk < len(self.chunks):
            self.chunks[chunk] = packed(lines)
        self.failed[row] += event.is_error or bool(event.denied)
        self.failed_calls += event.is_error
        self.open.pop(event.call_id)

    def value(self) -> Thread:
        """The rows as they stand."""
        chunks = (*self.chunks, packed(self.last)) if self.last else tuple(self.chunks)
        figures = (self.usd.tobytes(), self.tokens.tobytes(), self.failed.tobytes())
        return Thread(bytes(self.marks), *figures, chunks, tuple(self.prompts), dict(sorted(self.files.items())))

    def _turn(self, turn: Turn, places: Mapping[str, tuple[int, int, int]]) -> None:
        if turn.kind in {PromptKind.HUMAN, PromptKind.COMMAND}:
            assert turn.kind is not None
            self.titles.setdefault(turn.kind, one_line(turn.text, TITLE_WIDTH))
            self.asking[len(self.marks)] = one_line(turn.text, PROMPT_WIDTH_MAX)
        if self.first_words is None:
            self.first_words = turn.text
        if self.begin_ms is None:
            self.begin_ms = turn.at_ms
        self.turns += turn.kind is not None
        if len(self.prompts) < PROMPTS_MAX:
            said = (turn.text or turn.kind.value) if turn.kind else "before the first prompt"
            self.prompts.append(one_line(said, PROMPT_WIDTH))
        found = (places[turn.uuid],) if turn.uuid in places else ()
        head = TurnHead(turn.kind, turn.at_ms, turn.rewound, turn.uuid, () if found else turn.prompt)
        self._row(Mark.TURN, Line(found, head))

    def _step(self, step: Step, places: Mapping[str, tuple[int, int, int]]) -> None:
        row = len(self.marks)
        self.usage += step.usage
        self.models.add(step.model)
        self.calls += len(step.calls)
        self.failed_calls += sum(call.is_error for call in step.calls)
        self.files.update((path, row) for path in changed_files(step))
        unanswered = [call for call in step.calls if call.result is None]
        self.open.update((call.id, row) for call in unanswered)
        self.writing.update(call.id for call in unanswered if changed_file(call))
        self.starts.update((call.id, _start(row, call)) for call in step.calls if _STARTING & call.input.keys())
        if step.cost.usd is not None:
            self.sources.add(step.cost.source)
        if step.at_ms is not None:
            early, late = self.times or (step.at_ms, step.at_ms)
            self.times = (min(early, step.at_ms), max(late, step.at_ms))
        usd = math.nan if step.cost.usd is None else step.cost.usd
        failed = Row("", RowKind.STEP, step).failed
        self._row(Mark.STEP, _line(step, places), usd, step.usage.total, failed)

    def _row(self, mark: Mark, line: Line, usd: float = 0.0, tokens: int = 0, failed: int = 0) -> None:
        self.marks.append(mark)
        self.usd.append(usd)
        self.tokens.append(tokens)
        self.failed.append(min(failed, FAILED_MAX))
        self.last.append(line)
        if len(self.last) == CHUNK_ROWS:
            self.chunks.append(packed(self.last))
            self.last = []


def _line(step: Step, places: Mapping[str, tuple[int, int, int]]) -> Line:
    if not all(uuid in places for uuid in step.uuids):
        return Line(said=step)
    names = [*step.uuids, *(name for call in step.calls for name in _names(call))]
    return Line(tuple(sorted({places[name] for name in names if name in places})))


def _start(row: int, call: ToolCall) -> Start:
    given = call.input
    prompt = given.get("prompt")
    said = (str(given.get(name) or "") for name in ("subagent_type", "description"))
    return Start(row, prompt if isinstance(prompt, str) else None, *said)


def _names(call: ToolCall) -> tuple[str, str]:
    return f"result:{call.id}", f"rewrite:{call.id}"


def _twin(value: Any) -> Any:
    match value:
        case array() | bytearray() | list():
            return value[:]
        case dict() | set():
            return type(value)(value)
        case _:
            return value
