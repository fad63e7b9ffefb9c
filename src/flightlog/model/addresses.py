"""SESSION@subagent#turn.step: parse, format, safe ids; trace links and the provider protocol.

Knows nothing of files: it only says which names are safe to use.

`SESSION`, `SESSION#turn`, `SESSION#turn.step`, and `SESSION@lane#turn.step` inside a
subagent. The session may be shortened to any unique beginning.

A room offers what it holds as links and knows nothing of other rooms; `app.tracing` joins them.
A kind that is new takes one line in `KINDS` and one offer.
"""

import re
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.model.session import Session

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_FORM = re.compile(
    r"(?P<session>[^#@]*)(?:@(?P<lane>[^#@]+))?(?:#(?P<turn>[1-9]\d{0,8})(?:\.(?P<step>[1-9]\d{0,8}))?)?", re.ASCII
)
# kind: what its addresses look like
KINDS = {
    "session": "SESSION",
    "turn": "SESSION#turn",
    "step": "SESSION#turn.step",
    "request": "RUN/session_01/request_003 or the id the API gave it",
    "sample": "RUN/session_01/request_003/sample_01",
    "hunk": "SESSION#turn.step:FILE:LINE",
    "commit": "HASH",
    "row": "id of a dataset row",
    "task": "LOOP/TASK",
    "run": "RUN/session_01",
    "finding": "id of a finding",
    "issue": "id of an issue",
}


def is_safe(name: str) -> bool:
    """Say whether `name` can be a file name and a word on the command line."""
    return _SAFE.fullmatch(name) is not None


def check_id(name: str) -> str:
    """Return `name`, or refuse it: no separators, no control characters, at most 128 characters."""
    if not is_safe(name):
        raise Invalid(
            f"not a usable id: {name[:60]!r}",
            hint="an id is letters, digits, '.', '_' and '-'; see them: flightlog session list",
        )
    return name


class Address(Struct, frozen=True):
    """A place in a session; 0 means the whole."""

    session: str
    turn: int = 0
    step: int = 0
    lane: str = ""

    def __str__(self) -> str:
        """Write the address as a person would type it."""
        lane = f"@{self.lane}" if self.lane else ""
        turn = f"#{self.turn}" if self.turn else ""
        step = f".{self.step}" if self.step else ""
        return f"{self.session}{lane}{turn}{step}"


def parse_address(written: str) -> Address:
    """Read an address, refusing anything that could be a path or act on a terminal."""
    match = _FORM.fullmatch(written)
    if match is None:
        raise Invalid(
            f"not an address: {written[:60]!r}",
            hint="write SESSION, SESSION#turn or SESSION#turn.step; see the sessions: flightlog session list",
        )
    lane = match["lane"]
    return Address(
        check_id(match["session"]), int(match["turn"] or 0), int(match["step"] or 0), check_id(lane) if lane else ""
    )


class TraceLink(Struct, frozen=True):
    """One thing: its kind and address, where in sessions it stands, and what else it names outright."""

    kind: str
    address: str
    title: str = ""
    at: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()


class LinkProvider(Protocol):
    """What a room can say about its own things."""

    def find_links(self, written: str) -> Iterable[TraceLink]:
        """Yield the things whose address begins with `written`; their places may be whole sessions."""

    def links_for_session(self, session: Session) -> Iterable[TraceLink]:
        """Yield the things that stand in `session`, each with its exact places."""


# How near two things are, the nearest first.
HERE, SAME_TURN, SAME_SESSION, SAME_COMMIT = "here", "same turn", "same session", "same commit"
NEARNESS = (HERE, SAME_TURN, SAME_SESSION, SAME_COMMIT)


def relation_between(one: Address, other: Address) -> str:
    """Say how near two places are; nothing when they are in different sessions."""
    if one.session != other.session:
        return ""
    if _contains_address(one, other) or _contains_address(other, one):
        return HERE
    return SAME_TURN if (one.lane, one.turn) == (other.lane, other.turn) else SAME_SESSION


def _contains_address(outer: Address, inner: Address) -> bool:
    if not outer.turn and not outer.lane:
        return True
    same_turn = (outer.lane, outer.turn) == (inner.lane, inner.turn)
    return same_turn and outer.step in {0, inner.step}
