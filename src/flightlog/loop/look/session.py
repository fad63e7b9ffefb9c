"""Opening a session to look at it: from its checkpoint and what came after, or from all its events.

Nothing is written. The checkpoint is a cache: it counts only if the event it names stands
where it says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import json

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply
from flightlog.loop.core.state import State
from flightlog.loop.core.times import seconds
from flightlog.loop.layout import pages
from flightlog.loop.plan.schema import Plan
from flightlog.loop.run.where import JOURNAL
from flightlog.model.damage import UNREADABLE, Damage
from flightlog.model.errors import NotFound
from flightlog.store.lines import Line, read, read_together
from flightlog.store.locks import holder

if TYPE_CHECKING:
    from flightlog.privacy.redact import Redactor

CHECKPOINT, PLAN, LEASE = "checkpoint.json", "plan.yaml", "runner.lock"


class Told(NamedTuple):
    """One event, with its number and time."""

    seq: int
    at: float
    event: e.Event


class Look(NamedTuple):
    """A session as it stands."""

    directory: Path
    state: State
    runner: str

    def plan(self, redactor: "Redactor") -> Plan:
        """The plan it follows, with clean words; reading it takes a moment."""
        from flightlog.loop.plan.load import parse  # noqa: PLC0415 - `status` does not wait for it
        from flightlog.loop.plan.shown import shown_plan  # noqa: PLC0415 - as above

        return shown_plan(parse((self.directory / PLAN).read_bytes(), PLAN), redactor)

    def metadata(self, redactor: "Redactor") -> dict[str, Any]:
        """What `session-metadata.yaml` shows."""
        return pages.metadata(self.state, self.plan(redactor), self.state.last_at)


class _Checkpoint(msgspec.Struct):
    offset: int
    last: str
    state: State


class _Head(msgspec.Struct):
    id: str
    seq: int
    ts: str


def look(directory: Path) -> Look:
    """Say how a session stands, reading no more than what is new since its last checkpoint."""
    path = directory / JOURNAL
    if not path.is_file():
        raise NotFound(f"no session has begun in {directory.name}", hint="flightlog loop run --plan FILE")
    state, offset = _kept(directory, path)
    decoder = json.Decoder(e.Event)
    skip = offset is not None
    for item in read(path, offset or 0):
        if skip or isinstance(item, Damage):
            skip = False
            continue
        _apply(state, item, decoder)
    return Look(directory, state, holder(directory / LEASE))


def events(directory: Path) -> Iterator[Told]:
    """Every event of a session, in order."""
    heads, decoder = json.Decoder(_Head), json.Decoder(e.Event)
    for item in read_together(directory / JOURNAL):
        if isinstance(item, Damage):
            continue
        try:
            head = heads.decode(item.data)
            yield Told(head.seq, seconds(head.ts), decoder.decode(item.data))
        except (*UNREADABLE, ValueError):
            continue  # an event of a later version


def _apply(state: State, line: Line, decoder: "json.Decoder[e.Event]") -> None:
    try:
        head = json.decode(line.data, type=_Head)
        apply(state, seconds(head.ts), decoder.decode(line.data))
    except (*UNREADABLE, ValueError):
        return  # an event of a later version; `logs` counts it


def _kept(directory: Path, path: Path) -> tuple[State, int | None]:
    try:
        kept = json.decode((directory / CHECKPOINT).read_bytes(), type=_Checkpoint)
        with path.open("rb") as file:
            file.seek(kept.offset)
            if json.decode(file.readline(), type=_Head).id == kept.last:
                return kept.state, kept.offset
    except (OSError, *UNREADABLE):
        pass
    return State(), None
