"""Tasks for tracing; incidents."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from flightlog.loop import events
from flightlog.loop.directories import JOURNAL, iter_events, session_id
from flightlog.model.addresses import TraceLink
from flightlog.model.errors import Damage, Incident, IncidentKind
from flightlog.model.session import Session
from flightlog.store.jsonl import read_together

ROOM: Final = "loop"


class TaskLinks:
    """The tasks of some loop sessions."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """Look in these directories of loop sessions, when asked."""
        self._directories = directories

    def find_links(self, written: str) -> Iterator[TraceLink]:
        """Yield the tasks whose address begins with `written`, as `session-001/T1` or with the whole name."""
        loop = written.partition("/")[0]
        for directory in self._directories:
            if loop in {directory.name, session_id(directory)} or directory.name.startswith(written):
                full = written.replace(loop, directory.name, 1) if "/" in written else directory.name
                yield from (link for link in _task_links(directory) if link.address.startswith(full))

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the tasks an agent worked on in `session`."""
        every: Iterable[TraceLink] = (link for directory in self._directories for link in _task_links(directory))
        return (link for link in every if session.id in link.at)


def _task_links(directory: Path) -> Iterator[TraceLink]:
    asked: dict[str, dict[str, None]] = {}
    ended: dict[str, str] = {}
    for told in iter_events(directory):
        match told.event:
            case events.TaskStarted() | events.AttemptEnded():
                known = asked.setdefault(told.event.task, {})
                if told.event.agent_session:
                    known[told.event.agent_session] = None
            case events.TaskEnded():
                ended[told.event.task] = told.event.result
            case _:
                pass
    for task, sessions in asked.items():
        yield TraceLink("task", f"{directory.name}/{task}", ended.get(task, "at work"), tuple(sessions))


def find_incidents(directory: Path) -> Iterator[Incident]:
    """Yield breaker trips, failed gates and an end in error, each with the number of its event."""
    for told in iter_events(directory):
        if (kind := _incident_kind(told.event)) is not None:
            yield Incident(kind, int(told.at * 1000), ROOM, (f"{directory.name}/{JOURNAL}#{told.seq}",))
    damage = [item for item in read_together(directory / JOURNAL) if isinstance(item, Damage)]
    for each in damage:
        evidence = (f"{directory.name}/{JOURNAL}:{each.offset}",)
        yield Incident("damaged journal", 0, ROOM, evidence, {"bytes": each.length})


def _incident_kind(event: events.Event) -> IncidentKind | None:
    match event:
        case events.BreakerChanged(after="open"):
            return "breaker trip"
        case events.GateChecked(passed=False):
            return "failed gate"
        case events.LoopEnded(status="error"):
            return "failed session"
        case _:
            return None
