"""Trace links from tasks to agent sessions, and incidents of a loop session."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flightlog.loop import events
from flightlog.loop.directories import JOURNAL, ROOT, iter_events, iter_session_dirs, session_id
from flightlog.model.addresses import TraceLink
from flightlog.model.errors import Damage, Incident, IncidentKind
from flightlog.model.session import Session
from flightlog.store.jsonl import read_together

ROOM: Final = "loop"
_RULES = ("error_rate", "no progress", "permission denied", "the same error", "confidence")


class TaskLinks:
    """The tasks of some loop sessions."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """Store the directories; they are read on each query."""
        self._directories = directories

    def find_links(self, address: str) -> Iterator[TraceLink]:
        """Yield the tasks whose address begins with `address`, such as `session-001/T1`."""
        loop, slash, task = address.partition("/")
        for directory in self._directories:
            name = directory.name
            if loop in {name, session_id(directory)} or name.startswith(address):
                full = f"{name}/{task}" if slash else name
                yield from (
                    link for link in _task_links(directory) if link.address.startswith(full)
                )

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the tasks an agent worked on in `session`."""
        for directory in self._directories:
            yield from (
                link for link in _task_links(directory) if session.id in link.session_addresses
            )


def find_agent_sessions(project: str) -> frozenset[str]:
    """Return the ids of the agent sessions that loops of `project` started."""
    paths = [path for path in iter_session_dirs(Path(project) / ROOT) if (path / JOURNAL).is_file()]
    links = (link for path in paths for link in _task_links(path))
    return frozenset(session for link in links for session in link.session_addresses)


def _task_links(directory: Path) -> Iterator[TraceLink]:
    sessions: dict[str, dict[str, None]] = {}
    results: dict[str, str] = {}
    for record in iter_events(directory):
        match record.event:
            case events.AttemptRunStarted() | events.AttemptEnded() as event:
                own = sessions.setdefault(event.task, {})
                if event.agent_session:
                    own[event.agent_session] = None
            case events.TaskEnded() as event:
                results[event.task] = event.result
            case _:
                pass
    for task, names in sessions.items():
        address = f"{directory.name}/{task}"
        yield TraceLink("task", address, results.get(task, "at work"), tuple(names))


def find_incidents(directory: Path) -> Iterator[Incident]:
    """Yield breaker trips, failed gates and an end in error, each with the number of its event."""
    journal, task = f"{directory.name}/{JOURNAL}", ""
    for record in iter_events(directory):
        task = getattr(record.event, "task", task)
        if (kind := _incident_kind(record.event)) is not None:
            subject = "/".join((directory.name, *_incident_subject(record.event, task)))
            at_ms, evidence = int(record.timestamp * 1000), (f"{journal}#{record.seq}",)
            yield Incident(kind, at_ms, ROOM, evidence, subject=subject)
    for line in read_together(directory / JOURNAL):
        if isinstance(line, Damage):
            evidence = (f"{journal}:{line.offset}",)
            yield Incident("damaged journal", 0, ROOM, evidence, {"bytes": line.length})


def _incident_subject(event: events.Event, task: str) -> tuple[str, ...]:
    """Return the parts of what an incident concerns; `task` is the last task before it."""
    match event:
        case events.BreakerChanged(condition=condition):
            # Conditions hold counts, and a plan's own may hold any text.
            rule = next((rule for rule in _RULES if condition.startswith(rule)), "condition")
            return (task, rule.replace(" ", "-"))
        case events.GateChecked(name=name):
            return (name,)
        case _:
            return ()


def _incident_kind(event: events.Event) -> IncidentKind | None:
    match event:
        case events.BreakerChanged(to_state="open"):
            return "breaker trip"
        case events.GateChecked(passed=False):
            return "failed gate"
        case events.LoopEnded(status="error"):
            return "failed session"
        case _:
            return None
