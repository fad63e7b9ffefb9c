"""What loops offer to a trace: tasks, each with the sessions of the agent that worked on it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flightlog.loop import events as e
from flightlog.loop.look.session import iter_events
from flightlog.loop.run.where import session_id
from flightlog.model.links import TraceLink
from flightlog.model.session import Session


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
            case e.TaskStarted() | e.AttemptEnded():
                known = asked.setdefault(told.event.task, {})
                if told.event.agent_session:
                    known[told.event.agent_session] = None
            case e.TaskEnded():
                ended[told.event.task] = told.event.result
            case _:
                pass
    for task, sessions in asked.items():
        yield TraceLink("task", f"{directory.name}/{task}", ended.get(task, "at work"), tuple(sessions))
