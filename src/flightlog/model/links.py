"""Links: things that can be traced to each other, each with the places in sessions where it stands.

A room offers what it holds as links and knows nothing of other rooms; `app.tracing` joins them.
A kind that is new takes one line in `KINDS` and one offer.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from flightlog.model.address import Address
from flightlog.model.session import Session

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
