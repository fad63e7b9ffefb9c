"""What went wrong in a session, told from its journal, so that somebody can report it. Reads, never writes."""

from collections.abc import Iterator
from pathlib import Path

from flightlog.loop import events as e
from flightlog.loop.look.session import JOURNAL, Told, events
from flightlog.model.damage import Damage, Incident
from flightlog.store.lines import read_together

ROOM = "loop"


def incidents(directory: Path) -> Iterator[Incident]:
    """Yield breaker trips, failed gates and an end in error, each with the number of its event."""
    for told in events(directory):
        if (what := _wrong(told.event)) is not None:
            yield Incident(what[0], int(told.at * 1000), ROOM, what[1], (_address(directory, told),))
    damage = [item for item in read_together(directory / JOURNAL) if isinstance(item, Damage)]
    for each in damage:
        evidence = (f"{directory.name}/{JOURNAL}:{each.offset}",)
        yield Incident("damaged journal", 0, ROOM, f"{each.length} bytes cannot be read: {each.why}", evidence)


def _wrong(event: e.Event) -> tuple[str, str] | None:
    match event:
        case e.BreakerMoved(after="open"):
            return "breaker trip", f"the breaker opened: {event.condition}; {event.action or 'no action'}"
        case e.GateChecked(passed=False):
            return "failed gate", f"quality gate {event.name}: {event.value} does not pass"
        case e.SessionEnded(status="error"):
            return "failed session", f"the session ended in error: {event.why}"
        case _:
            return None


def _address(directory: Path, told: Told) -> str:
    return f"{directory.name}/{JOURNAL}#{told.seq}"
