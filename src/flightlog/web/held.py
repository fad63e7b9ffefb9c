"""A session as a page shows it: the outline in memory, the words of a screen read when they are drawn.

Rows come out as the fold of the whole session would tell them; only their own records are read.
"""

import functools
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive import Archive
from flightlog.model.errors import NotFound
from flightlog.model.events import Block, Entry, Prompted, Replied, Text, Thinking, ToolReturned, ToolUse, words
from flightlog.model.session import Note, NoteKind, Session, Step, Turn
from flightlog.usage.prices import price
from flightlog.views.outline.shape import CHUNK_ROWS, LaneHead, Line, Mark, Outline, Thread
from flightlog.views.session import fold
from flightlog.views.timeline import Bar, Row, RowKind

FILES_MAX = 1_000
KINDS = {Mark.TURN: RowKind.TURN, Mark.STEP: RowKind.STEP}
GONE = Note(NoteKind.REMARK, "no longer in the recording")


class Shown(Struct, frozen=True):
    """One row, its words included; `lanes` are the subagents it started."""

    id: str
    kind: RowKind
    item: Turn | Step | Note
    lanes: tuple[LaneHead, ...] = ()

    @property
    def failed(self) -> int:
        """How many things went wrong here."""
        return Row(self.id, self.kind, self.item).failed


class Held:
    """One session as it stood at one moment."""

    def __init__(self, archive: Archive, outline: Outline, version: str = "", title: str = "") -> None:
        """Hold an outline; `title` is one that another file gave to the session."""
        self._archive = archive
        self._bars: dict[str, list[Bar]] = {}
        self._firsts: dict[str, list[str]] = {}
        self._files: dict[str, list[tuple[str, str]]] = {}
        self.outline = outline
        self.version = version
        self.session: Session = replace(outline.session, title=title or outline.session.title)

    @property
    def size(self) -> int:
        """About how many bytes this takes."""
        return sum(len(chunk) + 40 for thread in self.outline.threads.values() for chunk in thread.chunks)

    def lane(self, name: str) -> LaneHead:
        """A subagent by its id."""
        found = next((each for each in self.outline.lanes if each.id == name), None)
        if found is None:
            raise NotFound(f"no subagent {name[:40]!r} in this session", hint="flightlog session show")
        return found

    def thread(self, lane: str = "") -> Thread:
        """The rows of a thread."""
        return self.outline.threads[lane]

    def bars(self, lane: str = "") -> list[Bar]:
        """The strip of a thread, added up once."""
        if lane not in self._bars:
            self._bars[lane] = self.thread(lane).bars()
        return self._bars[lane]

    def files(self, lane: str = "") -> list[tuple[str, str]]:
        """Every file a thread changed, with the row that did so last."""
        if lane not in self._files:
            thread = self.thread(lane)
            self._files[lane] = [(path, thread.id_at(row)) for path, row in list(thread.files.items())[:FILES_MAX]]
        return self._files[lane]

    def firsts(self, lane: str = "") -> list[str]:
        """The id of each chunk's first row."""
        if lane not in self._firsts:
            self._firsts[lane] = self.thread(lane).firsts()
        return self._firsts[lane]

    def chunk(self, number: int, lane: str = "") -> list[Shown]:
        """The rows of one chunk."""
        total = self.thread(lane).total
        return self.shown(range(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, total)), lane)

    def shown(self, rows: Sequence[int], lane: str = "") -> list[Shown]:
        """Some rows, read from the recording."""
        thread = self.thread(lane)
        lines = [thread.lines(row, row + 1)[0] for row in rows] if not _is_run(rows) else _run(thread, rows)
        read = _Read(self._archive.records_at(sorted({place for line in lines for place in self._places(line)})))
        return [self._shown(thread, row, line, read) for row, line in zip(rows, lines, strict=True)]

    @functools.cached_property
    def rows_by_place(self) -> dict[tuple[str, int], tuple[str, int]]:
        """Which row, of which thread, a record belongs to."""
        return dict(self.outline.rows_by_place())

    def _places(self, line: Line) -> list[tuple[str, int, int]]:
        return [(self.outline.files[file], offset, length) for file, offset, length in line.places]

    def _shown(self, thread: Thread, row: int, line: Line, read: "_Read") -> Shown:
        name, mark = thread.id_at(row), thread.marks[row]
        item: Turn | Step | Note
        if mark == Mark.TURN:
            item = _turn(int(name), line, read)
        elif line.said is not None:
            item = line.said
        else:
            found = read.step(self._places(line))
            item = replace(found, number=int(name.partition(".")[2])) if found else GONE
        if isinstance(item, Note):
            mark = Mark.NOTE if mark == Mark.STEP else mark
        return Shown(name, KINDS.get(Mark(mark), RowKind.NOTE), item, self._lanes(item, line))

    def _lanes(self, item: Turn | Step | Note, line: Line) -> tuple[LaneHead, ...]:
        if line.lane:
            return (self.lane(line.lane),)
        calls = [call.id for call in item.calls] if isinstance(item, Step) else []
        return tuple(self._started[call] for call in calls if call in self._started)

    @functools.cached_property
    def _started(self) -> dict[str, LaneHead]:
        return {lane.call_id: lane for lane in self.outline.lanes if lane.call_id}


def _is_run(rows: Sequence[int]) -> bool:
    return isinstance(rows, range) and rows.step == 1


def _run(thread: Thread, rows: Sequence[int]) -> list[Line]:
    return thread.lines(rows[0], rows[-1] + 1) if rows else []


def _turn(number: int, line: Line, read: "_Read") -> Turn:
    head = line.turn
    assert head is not None, "a turn has a head"
    prompt = read.prompts.get(head.uuid, head.prompt) if line.places else head.prompt
    return Turn(number, head.kind, prompt, head.at_ms, (), rewound=head.rewound, uuid=head.uuid)


class _Read:
    """Records read again, as the steps and prompts they make."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # Read as one thread: which lane they are of is already known.
        read = [replace(entry, lane="") for entry in entries]
        told = fold("", "", price, read)
        self._steps = {uuid: step for step in told.steps for uuid in step.uuids}
        self._uuids = {(each.path, each.offset): each.uuid for each in read if isinstance(each.event, Replied)}
        self.prompts = {turn.uuid: turn.prompt for turn in told.turns}

    def step(self, places: Iterable[tuple[str, int, int]]) -> Step | None:
        """The step made of these records."""
        uuids = (self._uuids.get((path, offset)) for path, offset, _ in places)
        return next((self._steps[uuid] for uuid in uuids if uuid in self._steps), None)


def text_of(entry: Entry) -> str:
    """The words of a record that a page shows, for finding."""
    match entry.event:
        case Prompted() as event:
            return words(event.content)
        case ToolReturned() as event:
            return words(event.content)
        case Replied() as event:
            return "\n".join(_text(block) for block in event.content)
        case _:
            return ""


def _text(block: Block) -> str:
    match block:
        case Text() | Thinking():
            return block.text
        case ToolUse():
            return f"{block.name} " + " ".join(str(value) for value in block.input.values())
        case _:
            return ""
