"""SESSION@subagent#turn.step: parse, format, safe ids; trace links and the provider protocol.

An address is `SESSION`, `SESSION#turn`, `SESSION#turn.step`, or `SESSION@subagent#turn.step`.
Any unique prefix of the session works.

A feature provides links to its own things and does not know other features; `tracing` joins them.
A new kind needs one line in `KINDS` and one provider.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Protocol

from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.model.session import Session

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_FORM = re.compile(
    r"(?P<session>[^#@]*)(?:@(?P<subagent>[^#@]+))?(?:#(?P<turn>[1-9]\d{0,8})(?:\.(?P<step>[1-9]\d{0,8}))?)?",
    re.ASCII,
)
# The form of an address by kind.
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
    """Return whether `name` can be a file name and a word on the command line."""
    return _SAFE.fullmatch(name) is not None


def check_id(name: str) -> str:
    """Return `name`; raise `Invalid` if it is not safe as a file name."""
    if is_safe(name):
        return name
    hint = "an id is letters, digits, '.', '_' and '-'; see them: flightlog session list"
    raise Invalid(f"not a usable id: {name[:60]!r}", hint=hint)


class Address(Struct, frozen=True):
    """A position in a session; 0 means all turns, or all steps of the turn."""

    session: str
    turn: int = 0
    step: int = 0
    subagent: str = ""

    def __str__(self) -> str:
        """Return the address as a person types it."""
        subagent = f"@{self.subagent}" if self.subagent else ""
        turn = f"#{self.turn}" if self.turn else ""
        step = f".{self.step}" if self.step else ""
        return f"{self.session}{subagent}{turn}{step}"


def parse_address(text: str) -> Address:
    """Return the address in `text`; raise `Invalid` for what could be a path or escape sequence."""
    match = _FORM.fullmatch(text)
    if match is None:
        hint = "write SESSION, SESSION#turn or SESSION#turn.step; see: flightlog session list"
        raise Invalid(f"not an address: {text[:60]!r}", hint=hint)
    subagent = check_id(match["subagent"]) if match["subagent"] else ""
    turn, step = int(match["turn"] or 0), int(match["step"] or 0)
    return Address(check_id(match["session"]), turn, step, subagent)


def unique_prefixes(
    ids: Iterable[str], least: int = 8, among: Iterable[str] = ()
) -> dict[str, str]:
    """Return the shortest beginning of each id that no other one of them, or of `among`, has.

    Ids that begin with their time, as those of Codex, have more than `least` characters in common.
    """
    wanted = sorted(set(ids))
    ordered = sorted(among) or wanted
    names = {}
    for name in wanted:
        before, after = bisect_left(ordered, name), bisect_right(ordered, name)
        near = (*ordered[max(before - 1, 0) : before], *ordered[after : after + 1])
        names[name] = name[: max([least, *(_same_chars(name, other) + 1 for other in near)])]
    return names


def _same_chars(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class TraceLink(Struct, frozen=True):
    """One thing: its kind and address, its addresses in sessions, and other things it names."""

    kind: str
    address: str
    title: str = ""
    session_addresses: tuple[str, ...] = ()
    references: tuple[tuple[str, str], ...] = ()


class LinkProvider(Protocol):
    """Links to the things of one feature."""

    def find_links(self, written: str) -> Iterable[TraceLink]:
        """Yield links whose address begins with `written`; `at` may be whole sessions."""

    def links_for_session(self, session: Session) -> Iterable[TraceLink]:
        """Yield links to what belongs to `session`, each with exact addresses."""


# How near two addresses are, the nearest first.
HERE, SAME_TURN, SAME_SESSION, SAME_COMMIT = "here", "same turn", "same session", "same commit"
NEARNESS = (HERE, SAME_TURN, SAME_SESSION, SAME_COMMIT)


def relation_between(one: Address, other: Address) -> str:
    """Return how near two addresses are; empty if they are in different sessions."""
    if one.session != other.session:
        return ""
    if _contains_address(one, other) or _contains_address(other, one):
        return HERE
    return SAME_TURN if (one.subagent, one.turn) == (other.subagent, other.turn) else SAME_SESSION


def short_address(address: str) -> str:
    """Return an address without its session."""
    starts = [position for position in (address.find("@"), address.find("#")) if position >= 0]
    return address[min(starts, default=0) :]


def _contains_address(outer: Address, inner: Address) -> bool:
    if not outer.turn and not outer.subagent:
        return True
    same_turn = (outer.subagent, outer.turn) == (inner.subagent, inner.turn)
    return same_turn and outer.step in {0, inner.step}
