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
from flightlog.loop.core.fold import apply_event
from flightlog.loop.core.state import LoopState
from flightlog.loop.core.times import parse_utc_time
from flightlog.loop.layout import pages
from flightlog.loop.plan.schema import Plan
from flightlog.loop.run.where import JOURNAL
from flightlog.model.damage import UNREADABLE, Damage
from flightlog.model.errors import NotFound
from flightlog.store.lines import JsonlLine, read_lines, read_together
from flightlog.store.locks import holder_note

if TYPE_CHECKING:
    from flightlog.privacy.redact import Redactor

CHECKPOINT, PLAN, LEASE = "checkpoint.json", "plan.yaml", "runner.lock"


class LoopEvent(NamedTuple):
    """One event, with its number and time."""

    seq: int
    at: float
    event: e.Event


class LoopSession(NamedTuple):
    """A session as it stands."""

    directory: Path
    state: LoopState
    runner: str

    def read_plan(self, redactor: "Redactor") -> Plan:
        """The plan it follows, with clean words; reading it takes a moment."""
        from flightlog.loop.plan.load import parse_plan  # noqa: PLC0415 - `status` does not wait for it
        from flightlog.loop.plan.shown import redact_plan  # noqa: PLC0415 - as above

        return redact_plan(parse_plan((self.directory / PLAN).read_bytes(), PLAN), redactor)

    def build_metadata(self, redactor: "Redactor") -> dict[str, Any]:
        """What `session-metadata.yaml` shows."""
        return pages.build_metadata(self.state, self.read_plan(redactor), self.state.last_at)


class _Checkpoint(msgspec.Struct):
    offset: int
    last: str
    state: LoopState


class _JournalHead(msgspec.Struct):
    id: str
    seq: int
    ts: str


def open_loop_session(directory: Path) -> LoopSession:
    """Say how a session stands, reading no more than what is new since its last checkpoint."""
    path = directory / JOURNAL
    if not path.is_file():
        raise NotFound(f"no session has begun in {directory.name}", hint="flightlog loop run --plan FILE")
    state, offset = _load_checkpoint(directory, path)
    decoder = json.Decoder(e.Event)
    skip = offset is not None
    for item in read_lines(path, offset or 0):
        if skip or isinstance(item, Damage):
            skip = False
            continue
        _apply_line(state, item, decoder)
    return LoopSession(directory, state, holder_note(directory / LEASE))


def iter_events(directory: Path) -> Iterator[LoopEvent]:
    """Every event of a session, in order."""
    heads, decoder = json.Decoder(_JournalHead), json.Decoder(e.Event)
    for item in read_together(directory / JOURNAL):
        if isinstance(item, Damage):
            continue
        try:
            head = heads.decode(item.data)
            yield LoopEvent(head.seq, parse_utc_time(head.ts), decoder.decode(item.data))
        except (*UNREADABLE, ValueError):
            continue  # an event of a later version


def _apply_line(state: LoopState, line: JsonlLine, decoder: "json.Decoder[e.Event]") -> None:
    try:
        head = json.decode(line.data, type=_JournalHead)
        apply_event(state, parse_utc_time(head.ts), decoder.decode(line.data))
    except (*UNREADABLE, ValueError):
        return  # an event of a later version; `logs` counts it


def _load_checkpoint(directory: Path, path: Path) -> tuple[LoopState, int | None]:
    try:
        kept = json.decode((directory / CHECKPOINT).read_bytes(), type=_Checkpoint)
        with path.open("rb") as file:
            file.seek(kept.offset)
            if json.decode(file.readline(), type=_JournalHead).id == kept.last:
                return kept.state, kept.offset
    except (OSError, *UNREADABLE):
        pass
    return LoopState(), None
