"""Damage found while reading, as a value: counted and shown, never raised.

One damaged line must not hide the 4,999 sound ones around it.
"""

import re
from typing import Literal

from msgspec import DecodeError, Struct
from msgspec.structs import force_setattr

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding foreign bytes may end in: no JSON, no text, or nested deeper than anybody follows."""


class Damage(Struct, frozen=True, order=True):
    """A span of a file that could not be read as records."""

    path: str
    offset: int
    length: int
    why: str


IncidentKind = Literal[
    "breaker trip", "changed", "corrupt state", "damage", "damaged journal", "damaged recording", "failed command",
    "failed gate", "failed run", "failed session", "generation", "id", "ignored", "link", "room cannot be read",
    "schema", "secret", "session health", "size",
]  # fmt: skip
IncidentRoom = Literal["dataset", "lab", "live", "loop", "retro", "store"]
IncidentCount = Literal["bytes", "exit code", "issues", "spans"]
# A path, a session id or a line of a journal. 160 characters hold the longest shard name; a sentence has spaces.
_PLACE = re.compile(r"[A-Za-z0-9._~@:#/+-]{1,160}")


class Incident(Struct, frozen=True):
    """Something a room found wrong: a kind, counts and places. No field can hold text of a file or conversation.

    Incidents become drafts, and drafts become public. A place that does not look like one is replaced by its digest.
    """

    kind: IncidentKind
    at_ms: int
    room: IncidentRoom
    evidence: tuple[str, ...] = ()
    counts: dict[IncidentCount, int] = {}

    def __post_init__(self) -> None:
        """Replace evidence that may be text."""
        force_setattr(
            self, "evidence", tuple(each if _PLACE.fullmatch(each) else _digest(each) for each in self.evidence)
        )


def _digest(text: str) -> str:
    import hashlib  # noqa: PLC0415 - rarely needed, and hooks import this module

    return f"place-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
