"""Addresses: how a person names a session, a turn or a step.

`SESSION`, `SESSION#turn`, `SESSION#turn.step`, and `SESSION@lane#turn.step` inside a
subagent. The session may be shortened to any unique beginning.
"""

import re

from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.model.ids import check_id

_FORM = re.compile(
    r"(?P<session>[^#@]*)(?:@(?P<lane>[^#@]+))?(?:#(?P<turn>[1-9]\d{0,8})(?:\.(?P<step>[1-9]\d{0,8}))?)?", re.ASCII
)


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
