"""x."""

from collections.abc import Iterator
from pathlib import Path
from msgspec import Struct
from flightlog.model.damage import Damage


class Line(Struct, frozen=True):
    """x."""

    offset: int
    data: bytes


def read(path: str, start: int = 0) -> Iterator[Line | Damage]:
    """x."""
    pos = start
    for raw in Path(path).read_bytes()[start:].split(b"\n"):
        if raw.strip():
            yield Line(pos, raw)
        pos += len(raw) + 1
