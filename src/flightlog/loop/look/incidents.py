"""What went wrong in a session, told from its journal, so that somebody can report it. Reads, never writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flightlog.loop import events as e
from flightlog.loop.look.session import iter_events
from flightlog.loop.run.where import JOURNAL
from flightlog.model.damage import Damage, Incident, IncidentKind
from flightlog.store.lines import read_together

ROOM: Final = "loop"


def find_incidents(directory: Path) -> Iterator[Incident]:
    """Yield breaker trips, failed gates and an end in error, each with the number of its event."""
    for told in iter_events(directory):
        if (kind := _incident_kind(told.event)) is not None:
            yield Incident(kind, int(told.at * 1000), ROOM, (f"{directory.name}/{JOURNAL}#{told.seq}",))
    damage = [item for item in read_together(directory / JOURNAL) if isinstance(item, Damage)]
    for each in damage:
        evidence = (f"{directory.name}/{JOURNAL}:{each.offset}",)
        yield Incident("damaged journal", 0, ROOM, evidence, {"bytes": each.length})


def _incident_kind(event: e.Event) -> IncidentKind | None:
    match event:
        case e.BreakerChanged(after="open"):
            return "breaker trip"
        case e.GateChecked(passed=False):
            return "failed gate"
        case e.LoopEnded(status="error"):
            return "failed session"
        case _:
            return None
