"""A journal's events as an earlier and a later version know them; run as a program, it writes as one of them."""

import itertools
import os
import sys
from pathlib import Path

from msgspec import Struct

from flightlog.store.journal import Journal


class Started(Struct, frozen=True, tag="started", tag_field="kind"):
    text: str


class Ended(Struct, frozen=True, tag="ended", tag_field="kind"):
    code: int = 0


class EndedLater(Struct, frozen=True, tag="ended", tag_field="kind"):
    code: int = 0
    more: str = "only a later version knows this"


class Holding(Struct, frozen=True, tag="holding", tag_field="kind"):
    depth: int = 3


EARLIER = Started | Ended
LATER = Started | EndedLater | Holding


def write(which: str, path: Path, log: Path) -> None:
    """Append for ever, and note each id once it is kept."""
    made = itertools.count()
    name = f"{which}-{os.getpid()}"
    union = EARLIER if which == "earlier" else LATER
    journal = Journal(path, union, now=lambda: "t", new_id=lambda: f"{name}-{next(made)}")
    events = (
        [Started("x" * 700), Ended(1)]
        if which == "earlier"
        else [EndedLater(2), Holding(4), Started("y" * 5000)]
    )
    with log.open("ab", buffering=0) as noted:
        for event in itertools.cycle(events):
            noted.write(journal.append(event).id.encode() + b"\n")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
