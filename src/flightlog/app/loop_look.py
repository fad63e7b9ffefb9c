"""Looking at loop sessions from here: light, because `status` and `monitor` wait for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flightlog.loop.events import QuestionAsked
from flightlog.loop.layout.log import build_log_entry
from flightlog.loop.look.session import LoopEvent, iter_events, open_loop_session
from flightlog.loop.run import where
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime


def loops_dir(runtime: Runtime, project: Path | None = None) -> Path:
    """Where the sessions of a project are."""
    return (project or Path(runtime.cwd)) / where.ROOT


def find_session(runtime: Runtime, written: str) -> Path:
    """Find a session of this project."""
    return where.find_session_dir(loops_dir(runtime), written)


def all_sessions(runtime: Runtime, project: Path | None = None) -> list[Path]:
    """Every session of a project, this one by default, that has begun."""
    return [path for path in where.iter_session_dirs(loops_dir(runtime, project)) if (path / where.JOURNAL).is_file()]


def read_events(directory: Path) -> Iterator[LoopEvent]:
    """Every event of a session."""
    return iter_events(directory)


def open_question(runtime: Runtime, written: str) -> QuestionAsked:
    """The question a session waits for."""
    seen = open_loop_session(find_session(runtime, written))
    if seen.state.question is None:
        raise NotFound(f"{written} waits for no answer", hint=f"flightlog loop status --session {written}")
    return seen.state.question.asked


class LogFilter(NamedTuple):
    """Which events to show."""

    tail: int | None = None
    event: str | None = None
    task: str | None = None


def log_entries(runtime: Runtime, directory: Path, wanted: LogFilter, *, follow: bool) -> Iterator[dict[str, Any]]:
    """The entries of a session's log; with `follow`, as they come, until the session rests."""
    from flightlog.app.privacy import make_redactor  # noqa: PLC0415 - only the log needs it

    names = {task.task_id: task.name for task in open_loop_session(directory).read_plan(make_redactor(runtime)).tasks}

    def fits(each: LoopEvent) -> bool:
        of_task = wanted.task is None or getattr(each.event, "task", None) == wanted.task
        return of_task and (wanted.event is None or wanted.event == f"e{each.seq}")

    shown = [each for each in iter_events(directory) if fits(each)]
    yield from (build_log_entry(each.seq, each.at, each.event, names) for each in shown[-(wanted.tail or len(shown)) :])
    last = shown[-1].seq if shown else 0
    while follow and open_loop_session(directory).runner:
        runtime.clock.sleep(0.3)
        for each in iter_events(directory):
            if each.seq > last and fits(each):
                last = each.seq
                yield build_log_entry(each.seq, each.at, each.event, names)
