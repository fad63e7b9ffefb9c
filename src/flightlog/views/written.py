"""Which lines a session wrote into which files, and which of them stand somewhere else now.

Lines are compared by print, so that a cache of them holds no words. An edit says what a tool was
asked to write; whether it is still there is for the file, or for git, to say. Pure.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from flightlog.model.address import Address
from flightlog.model.session import Session, Step, ToolCall, Turn
from flightlog.views.changes import Change, Sign, change_of, changed_file

_PLACE = re.compile(r"line (\d+)")
_NAMED = re.compile(r"\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\]")
_OUTPUT_CHARS = 20_000


class Edit(Struct, frozen=True):
    """One place of one file that a step wrote to: `lines` are prints of what it added there, in order."""

    at: str
    at_ms: int
    path: str
    line: int
    lines: tuple[str, ...]

    @property
    def address(self) -> str:
        """How it is named."""
        return f"{self.at}:{self.path}:{self.line}"


def prints(lines: Iterable[str]) -> tuple[str, ...]:
    """Reduce lines to what tells them apart; an empty line has none."""
    return tuple(_print(line) for line in lines)


def edits(session: Session) -> tuple[Edit, ...]:
    """Return everything the tools of a session wrote, in order."""
    return tuple(
        edit
        for address, step in steps(session)
        for call in step.calls
        if not call.is_error and not call.denied and changed_file(call)
        for edit in _of(str(address), call, step)
    )


def steps(session: Session) -> Iterator[tuple[Address, Step]]:
    """Yield every step with its address, subagents included."""
    for lane, turn in turns(session):
        for step in turn.steps:
            yield Address(session.id, turn.number, step.number, lane), step


def turns(session: Session) -> Iterator[tuple[str, Turn]]:
    """Yield every turn with its lane."""
    yield from (("", turn) for turn in session.turns)
    yield from ((lane.id, turn) for lane in session.lanes for turn in lane.turns)


def commits_named(session: Session) -> dict[str, str]:
    """Map the commits that tool output names as made to the step that made them."""
    found: dict[str, str] = {}
    for address, step in steps(session):
        for call in step.calls:
            given = (call.ran_input or call.input).get("command")
            if isinstance(given, str) and "commit" in given:
                for name in _NAMED.findall(call.output[:_OUTPUT_CHARS]):
                    found.setdefault(name, str(address))
    return found


def wrote(edit: Edit, lines: Sequence[str], at: int) -> int:
    """How many lines around place `at` of `lines` the edit holds in the same order; 0 when not that one."""
    best = 0
    for place, each in enumerate(edit.lines):
        if each and each == lines[at]:
            best = max(best, 1 + _run(edit.lines, lines, place, at, 1) + _run(edit.lines, lines, place, at, -1))
    return best


def _run(mine: Sequence[str], theirs: Sequence[str], place: int, at: int, way: int) -> int:
    length = 0
    while True:
        one, other = place + way * (length + 1), at + way * (length + 1)
        if not (0 <= one < len(mine) and 0 <= other < len(theirs)) or mine[one] != theirs[other]:
            return length
        length += 1


def _of(at: str, call: ToolCall, step: Step) -> Iterator[Edit]:
    change = change_of(call)
    if change is None:
        return
    at_ms = call.ended_ms or call.started_ms or step.at_ms or 0
    for line, added in _hunks(change):
        yield Edit(at, at_ms, change.path, line, prints(added))


def _hunks(change: Change) -> Iterator[tuple[int, list[str]]]:
    line, added = 1, list[str]()
    for each in change.lines:
        if each.sign is Sign.PLACE:
            if added:
                yield line, added
            said = _PLACE.fullmatch(each.text)
            line, added = int(said[1]) if said else 1, []
        elif each.sign is Sign.ADDED:
            added.append(each.text)
    if added or change.removed:
        yield line, added


def _print(line: str) -> str:
    said = line.strip()
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() if said else ""
