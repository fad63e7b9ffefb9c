"""A room of its own for one test: a directory, a clock that is moved by hand, a redactor with a known key."""

import itertools
from pathlib import Path

from flightlog.privacy.redactor import Redactor
from flightlog.retro.issues import triage, workflow
from flightlog.retro.store import ROOT, RetroStore

DAY_MS = 86_400_000
NOON_MS = 1_793_966_400_000


class Clock:
    """Time, moved by hand."""

    def __init__(self) -> None:
        self.ms = NOON_MS

    def __call__(self) -> int:
        self.ms += 1000
        return self.ms


def make_room(folder: Path, *known: str) -> RetroStore:
    clock = Clock()
    numbers = itertools.count(1)
    room = RetroStore(
        folder / ROOT, Redactor(b"k" * 32, known=known), clock, lambda: f"id{next(numbers)}"
    )
    room.prepare_directory()
    return room


def report(room: RetroStore, title: str, description: str = "", severity=None, **more):
    """Put a draft in and return its id."""
    one = triage.make_draft(title, description, room.now_ms(), severity, **more)
    room.store_draft(one)
    return one.id


def report_issue(room: RetroStore, title: str, description: str = "", severity=None, **more):
    """Put a draft in, process it, and return its id."""
    name = report(room, title, description, severity, **more)
    workflow.process_drafts(room)
    return name
