"""Damage found while reading, as a value: counted and shown, never raised.

One damaged line must not hide the 4,999 sound ones around it.
"""

from msgspec import DecodeError, Struct

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding foreign bytes may end in: no JSON, no text, or nested deeper than anybody follows."""


class Damage(Struct, frozen=True, order=True):
    """A span of a file that could not be read as records."""

    path: str
    offset: int
    length: int
    why: str


class Incident(Struct, frozen=True):
    """Something a room found wrong; rooms journal it, retro turns it into a draft."""

    kind: str
    at_ms: int
    room: str
    text: str
    evidence: tuple[str, ...] = ()
