"""A room of its own for one test: a directory, a clock that is moved by hand, a redactor with a known key."""

import itertools
from pathlib import Path

from flightlog.privacy.redact import Redactor
from flightlog.retro import workflow
from flightlog.retro.issues import drafts
from flightlog.retro.room import ROOT, Room

DAY_MS = 86_400_000
NOON_MS = 1_793_966_400_000


class Clock:
    """Time, moved by hand."""

    def __init__(self) -> None:
        self.ms = NOON_MS

    def __call__(self) -> int:
        self.ms += 1000
        return self.ms


def make_room(folder: Path, *known: str) -> Room:
    clock = Clock()
    numbers = itertools.count(1)
    room = Room(folder / ROOT, Redactor(b"k" * 32, known=known), clock, lambda: f"id{next(numbers)}")
    room.prepare()
    return room


def report(room: Room, title: str, description: str = "", severity=None, **more):
    """Put a draft in and return its id."""
    one = drafts.draft(title, description, room.now_ms(), severity, **more)
    room.put_draft(one)
    return one.id


def reported(room: Room, title: str, description: str = "", severity=None, **more):
    """Put a draft in, process it, and return its id."""
    name = report(room, title, description, severity, **more)
    workflow.process(room)
    return name
