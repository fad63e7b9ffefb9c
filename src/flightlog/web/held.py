"""A session in memory with its long texts left in the recording.

The fold is the one everybody uses; only what goes into it is shortened, and remembered by
place. What a page shows is read again from there: 50,000 steps cost tens of megabytes, a
screen of them a few milliseconds.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from flightlog.archive import Archive, Place
from flightlog.model.damage import Damage
from flightlog.model.events import (
    Block,
    Entry,
    Image,
    InputRewritten,
    LaneFacts,
    Prompted,
    Replied,
    Text,
    Thinking,
    ToolReturned,
    ToolUse,
    words,
)
from flightlog.model.session import Lane, Session, Step, Turn
from flightlog.views.prices import price
from flightlog.views.session import SessionFold, fold
from flightlog.views.timeline import Row, rows

Kept = TypeVar("Kept")

SHORT_BYTES = 2_000
KEEP_CHARS = 400
_PROMPT_CHARS = 100_000
_MATCHED = "prompt"  # a subagent is matched to its call by these words


class Held:
    """One session as it stood at one moment."""

    def __init__(self, archive: Archive, session: Session, places: dict[str, Place]) -> None:
        """Hold `session`; `places` says where its records are."""
        self._archive = archive
        self._places = places
        self._laid: dict[str, list[Row]] = {}
        self._kept: dict[str, Any] = {}
        self.session = session
        self.version = ""

    def rows(self, lane: Lane | None = None) -> list[Row]:
        """The rows of a thread, long texts shortened."""
        name = lane.id if lane else ""
        if name not in self._laid:
            self._laid[name] = rows(self.session, lane)
        return self._laid[name]

    def kept(self, name: str, make: Callable[[], Kept]) -> Kept:
        """What was made of this state once, made again for nobody."""
        if name not in self._kept:
            self._kept[name] = make()
        known: Kept = self._kept[name]
        return known

    def full(self, some: Sequence[Row]) -> list[Row]:
        """The same rows with nothing shortened."""
        read = _Read(self._archive.records_at(sorted({place for row in some for place in self._of(row)})))
        return [replace(row, item=read.whole(row.item)) for row in some]

    @functools.cached_property
    def by_place(self) -> dict[tuple[str, int], tuple[str, str]]:
        """Which row, of which lane, a record belongs to."""
        known: dict[tuple[str, int], tuple[str, str]] = {}
        for lane in (None, *self.session.lanes):
            for row in self.rows(lane):
                known.update(((path, offset), (lane.id if lane else "", row.id)) for path, offset, _ in self._of(row))
        return known

    def _of(self, row: Row) -> Iterable[Place]:
        names: list[str] = []
        match row.item:
            case Turn() as turn:
                names = [turn.uuid]
            case Step() as step:
                names = [*step.uuids]
                for call in step.calls:
                    names += [f"result:{call.id}", f"rewrite:{call.id}"]
            case _:
                pass
        return (self._places[name] for name in names if name in self._places)


class Holding:
    """Takes a session's records one by one; gives what is held when asked."""

    def __init__(self, archive: Archive, session: str, agent: str) -> None:
        """Begin with nothing known of `session`."""
        self._archive = archive
        self._fold = SessionFold(session, agent, price)
        self._places: dict[str, Place] = {}

    def add(self, item: Entry | Damage | LaneFacts) -> None:
        """Take one more record into account."""
        match item:
            case Damage():
                self._fold.add_damage(item)
            case LaneFacts():
                self._fold.add_facts(item)
            case Entry():
                self._remember(item)
                self._fold.add(slim(item))

    def value(self) -> Held:
        """Hold the session as far as it is known."""
        return Held(self._archive, self._fold.value(), dict(self._places))

    def _remember(self, entry: Entry) -> None:
        place = (entry.path, entry.offset, entry.length)
        match entry.event:
            case Replied() | Prompted():
                self._places[entry.uuid] = place
            case ToolReturned() as event:
                self._places.setdefault(f"result:{event.call_id}", place)
            case InputRewritten() as event:
                self._places[f"rewrite:{event.call_id}"] = place
            case _:
                pass


def hold(archive: Archive, session: str) -> Held:
    """Read a session and hold it."""
    recording = archive.find(session)
    holding = Holding(archive, recording.session, recording.agent)
    for item in archive.records(recording.session):
        holding.add(item)
    return holding.value()


def slim(entry: Entry) -> Entry:
    """Shorten the long texts of one record."""
    if entry.length <= SHORT_BYTES:
        return entry
    match entry.event:
        case Replied() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, KEEP_CHARS)))
        case ToolReturned() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, KEEP_CHARS), detail=None))
        case Prompted() as said:
            return replace(entry, event=replace(said, content=_slim(said.content, _PROMPT_CHARS)))
        case InputRewritten() as said:
            return replace(entry, event=replace(said, input=_slim_input(said.input)))
        case _:
            return entry


def _slim(content: Iterable[Block], keep: int) -> tuple[Block, ...]:
    return tuple(_slim_block(block, keep) for block in content)


def _slim_block(block: Block, keep: int) -> Block:
    match block:
        case Text() | Thinking() if len(block.text) > keep:
            return replace(block, text=block.text[:keep] + "…")
        case ToolUse():
            return replace(block, input=_slim_input(block.input))
        case Image():
            return replace(block, data="")
        case _:
            return block


def _slim_input(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value if key == _MATCHED else _slim_value(value) for key, value in given.items()}


def _slim_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= KEEP_CHARS else value[:KEEP_CHARS] + "…"
    return "…" if isinstance(value, list | dict) and len(value) > 20 else value


class _Read:
    """Records read again, as the steps and turns they make."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # Read as one thread: which lane they are of is already known.
        told = fold("", "", price, (replace(entry, lane="") for entry in entries))
        self.steps = {step.uuids[0]: step for step in told.steps if step.uuids}
        self.turns = {turn.uuid: turn for turn in told.turns}

    def whole(self, item: Any) -> Any:
        match item:
            case Step() if item.uuids and item.uuids[0] in self.steps:
                read = self.steps[item.uuids[0]]
                return replace(item, content=read.content, calls=read.calls)
            case Turn() if item.uuid in self.turns:
                return replace(item, prompt=self.turns[item.uuid].prompt)
            case _:
                return item


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
