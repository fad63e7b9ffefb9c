"""What the interfaces call: start, run, resume and inspect loop sessions of a project."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.claude_code.files import find_config_dirs, session_files
from flightlog.loop import directories
from flightlog.loop.analysis import calibration_table
from flightlog.loop.directories import (
    JOURNAL,
    LoopEvent,
    find_session_dir,
    iter_events,
    iter_session_dirs,
    open_loop_session,
)
from flightlog.loop.events import Event, LoopResumed, QuestionAsked
from flightlog.loop.logs import build_log_entry
from flightlog.loop.plan.load import hash_plan, load_plan
from flightlog.loop.plan.schema import Budgets, select_phase
from flightlog.loop.report import write_report
from flightlog.loop.runner import session
from flightlog.loop.runner.agent_task import TOOL_RULE, check_agents
from flightlog.loop.runner.control import ANSWER, PersonNotifier, send_control_request
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.runner.executor import LoopOptions
from flightlog.loop.runner.session import RunMode
from flightlog.loop.state import LoopState
from flightlog.loop.status import describe_event
from flightlog.model.errors import Conflict, Invalid, NotFound, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import consent_needed
from flightlog.store.files import contained_in_project, find_project

Ask = Callable[[QuestionAsked, float], str | None]
_FOLLOW_S = 0.3  # between two looks at a growing log
RUNNER_LOG = "runner.log"
_DETACH_S = 30.0  # until a runner in the background has taken its session; a busy machine is slow
# Opens the log itself, private as all files of a session, and leaves the umask of tasks alone.
_DETACHED = '(umask 077; : >>"$0"); exec "$@" >>"$0" 2>&1'


def loops_dir(runtime: Runtime, project: Path | None = None) -> Path:
    """Return the directory of a project's loop sessions."""
    return (project or Path(runtime.cwd)) / directories.ROOT


def find_session(runtime: Runtime, name: str) -> Path:
    """Find a session of this project by number or name, also one that a person put elsewhere."""
    try:
        return find_session_dir(loops_dir(runtime), name)
    except NotFound:
        matches = [
            path
            for path in all_sessions(runtime)
            if name in {path.name, directories.session_id(path), directories.session_slug(path)}
        ]
        if len(matches) == 1:
            return matches[0]
        raise


def all_sessions(runtime: Runtime, project: Path | None = None) -> list[Path]:
    """Return every session of a project (by default this one) that has begun."""
    elsewhere = directories.sessions_elsewhere(runtime.data_dir, project or Path(runtime.cwd))
    paths = [*iter_session_dirs(loops_dir(runtime, project)), *elsewhere]
    return [path for path in paths if (path / JOURNAL).is_file()]


def open_question(runtime: Runtime, name: str) -> QuestionAsked:
    """Return the open question of a session."""
    question = open_loop_session(find_session(runtime, name)).state.question
    if question is None:
        hint = f"flightlog loop status --session {name}"
        raise NotFound(f"{name} has no open question", hint=hint)
    return question.event


class LogFilter(NamedTuple):
    """Which events to show."""

    tail: int | None = None
    event: str | None = None
    task: str | None = None


def log_entries(
    runtime: Runtime, directory: Path, wanted: LogFilter, *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Yield the log entries of a session; with `follow` also new ones, until its runner ends."""
    plan = open_loop_session(directory).read_plan(make_redactor(runtime))
    names = {task.task_id: task.name for task in plan.tasks}

    def matches(record: LoopEvent) -> bool:
        of_task = wanted.task is None or getattr(record.event, "task", None) == wanted.task
        return of_task and (wanted.event is None or wanted.event == f"e{record.seq}")

    records = [record for record in iter_events(directory) if matches(record)]
    for record in records[-(wanted.tail or len(records)) :]:
        yield build_log_entry(*record, names)
    last = records[-1].seq if records else 0
    while follow and open_loop_session(directory).runner:
        runtime.clock.sleep(_FOLLOW_S)
        for record in iter_events(directory):
            if record.seq > last and matches(record):
                last = record.seq
                yield build_log_entry(*record, names)


class Terminal(NamedTuple):
    """How a person is reached: questions, lines for events, the agent's output, a command."""

    ask: Ask | None = None
    tell: Callable[[str], None] | None = None
    live: Callable[[str], None] | None = None
    notify: str = ""


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_session(  # noqa: PLR0913 - one for each option
    runtime: Runtime,
    plan: Path,
    where: str = "",
    *,
    autonomous: bool = False,
    config: dict[str, object] | None = None,
    phase: int | None = None,
) -> tuple[Path, bool]:
    """Start a session, or find the one that `where` names; return whether it existed before."""
    root = contained_in_project(runtime, loops_dir(runtime))
    name = where if "/" not in where and not _session_exists(root, where) else ""
    start = _load_start(runtime, plan, root, autonomous=autonomous, config=config or {})
    start = msgspec.structs.replace(start, name=name, phase=phase)
    if phase is not None:
        start = _with_other_phases(root, start)
    project = find_project(Path(runtime.cwd)).resolve()
    if "/" in where and not Path(where).resolve().is_relative_to(project):
        hint = "name a directory in it, or run it there"
        raise Invalid(f"outside the project: {where[:100]}", hint=hint)
    session.trust_plan(runtime, start)
    if not where or name:
        return session.create_session(root, start, runtime, make_redactor(runtime)), False
    directory = Path(where) if "/" in where else find_session_dir(root, where)
    return _open_at(runtime, directory, start, plan.name, has_settings=bool(config))


def start_session_at(
    runtime: Runtime, plan: Path, directory: Path, *, autonomous: bool, config: dict[str, object]
) -> tuple[Path, bool]:
    """Start a session in exactly this directory; return whether one existed there before."""
    start = _load_start(runtime, plan, directory.parent, autonomous=autonomous, config=config)
    session.trust_plan(runtime, start)
    return _open_at(runtime, directory, start, plan.name, has_settings=bool(config))


def _load_start(
    runtime: Runtime, path: Path, root: Path, *, autonomous: bool, config: dict[str, object]
) -> session.LoopStart:
    plan, data = load_plan(path)
    check_agents(plan, runtime)
    hint = "flightlog loop run --help"
    return session.LoopStart(
        plan,
        data,
        Path(runtime.cwd),
        autonomous=autonomous,
        config=session.override_config(plan.config, config, hint) if config else None,
        calibration=calibration_table(iter_session_dirs(root)) if root.is_dir() else (),
    )


def _with_other_phases(root: Path, start: session.LoopStart) -> session.LoopStart:
    """Add what sessions of other phases of this plan reported; refuse unmet dependencies."""
    own = {task.task_id for task in select_phase(start.plan, start.phase).tasks}
    tasks = [task for task in start.plan.tasks if task.task_id in own]
    needed = {name for task in tasks for name in task.dependencies} - own
    context: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    for path in iter_session_dirs(root) if root.is_dir() else ():
        state = open_loop_session(path).state if (path / JOURNAL).is_file() else LoopState()
        if state.plan_digest == hash_plan(start.data):
            context |= state.context
            metrics |= state.metrics
            needed -= {name for name, task in state.tasks.items() if task.status == "completed"}
    if needed:
        first = min(task.phase for task in start.plan.tasks if task.task_id in needed)
        what = f"phase {start.phase} needs {', '.join(sorted(needed))}, which no session completed"
        raise Invalid(what, hint=f"first run it with: --phase {first}")
    return msgspec.structs.replace(start, context=context, metrics=metrics)


def _open_at(
    runtime: Runtime, directory: Path, start: session.LoopStart, plan: str, *, has_settings: bool
) -> tuple[Path, bool]:
    contained_in_project(runtime, directory)
    if not (directory / JOURNAL).exists():
        path = session.create_session_at(directory, start, runtime, make_redactor(runtime))
        if directory.resolve().parent != loops_dir(runtime).resolve():
            directories.record_elsewhere(runtime.data_dir, Path(runtime.cwd), directory)
        return path, False
    if hash_plan(session.raw_plan(directory)[1]) != hash_plan(start.data):
        raise Conflict(
            f"{directory.name} has another plan than {plan}: the plan was changed under the session",
            hint=f"continue with its own plan: flightlog loop resume --session {directory.name}",
        )
    state = open_loop_session(directory).state
    if (has_settings and start.config != state.config) or start.phase != state.phase:
        hint = f"new limits: flightlog loop resume --session {directory.name} --max-iterations N"
        raise Invalid(f"{directory.name} has begun with other settings, which stay", hint=hint)
    return directory, True


def conduct_session(
    runtime: Runtime,
    directory: Path,
    terminal: Terminal = Terminal(),  # noqa: B008 - immutable
    *,
    mode: RunMode = RunMode.START,
    changes: LoopResumed | None = None,
) -> LoopState:
    """Run a session in this process until it ends or a signal comes.

    Raise ConsentNeeded unless the person named or allowed the session's plan, and another error if
    the plan names an agent that is missing.
    """
    contained_in_project(runtime, directory)
    target = session.plan_target(runtime, directory)
    if not target.is_trusted:
        name = directory.name[:60]
        raise consent_needed(target, f"the plan of this session was not named here: {name}")
    check_agents(session.raw_plan(directory)[0], runtime)
    redactor = make_redactor(runtime)
    notifier = PersonNotifier(runtime, terminal.notify, directory.name)
    config_dir = Path(find_config_dirs(runtime)[0])

    def adopt(agent_session: str) -> None:
        for path in config_dir.glob(f"projects/*/{agent_session}.jsonl"):
            paths = session_files(str(path.parent), agent_session)
            adopt_session_files(runtime.data_dir, agent_session, paths)

    with _catch_signals() as interrupted:
        options = LoopOptions(
            runtime,
            config_dir,
            keep=adopt,
            redact=lambda text: redactor.redact_text(text).map(lambda clean: clean.text),
            interrupted=interrupted,
            ask=terminal.ask,
            tell=_event_printer(directory, terminal, redactor, notifier),
            live=terminal.live,
        )
        resume = changes or LoopResumed("a person resumed it")
        runner = session.RunnerOptions(runner_name(runtime), mode, resume)
        try:
            return session.continue_session(directory, options, redactor, runner, write_report)
        finally:
            notifier.wait()


def send_request(runtime: Runtime, name: str, request: ControlRequest) -> bool:
    """Send a request to the runner of a session; return whether there is one.

    An answer is stored without one too: the next runner reads it.
    """
    directory = find_session(runtime, name)
    is_running = bool(open_loop_session(directory).runner)
    if is_running or request.action == ANSWER:
        send_control_request(directory, request)
    return is_running


def detach_session(runtime: Runtime, directory: Path, options: Sequence[str]) -> int:
    """Resume a session in a process that outlives this terminal; return its process id."""
    epoch = open_loop_session(directory).state.epoch
    words = [sys.executable, "-m", "flightlog", "loop", "resume", "--session", str(directory)]
    log = str(directory / RUNNER_LOG)
    child = subprocess.Popen(
        ["/bin/sh", "-c", _DETACHED, log, *words, *options],
        cwd=runtime.cwd,
        env=dict(runtime.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = runtime.clock.monotonic() + _DETACH_S
    while open_loop_session(directory).state.epoch == epoch:
        if child.poll() is not None or runtime.clock.monotonic() > end:
            text = Path(log).read_text("utf-8", "replace").strip().splitlines()
            raise Unavailable(f"the runner did not start: {' '.join(text[-2:])}", hint=f"see {log}")
        runtime.clock.sleep(0.05)
    return child.pid


def merge_limits(directory: Path, limits: dict[str, Any], allow: Sequence[str]) -> LoopResumed:
    """Return the event that resumes a session with these new limits and allowed tools."""
    if unusable := [name for name in allow if not TOOL_RULE.fullmatch(name)]:
        raise Invalid(f"not a tool: {unusable[0][:60]!r}", hint="for example: --allow Write")
    changes = {name: value or None for name, value in limits.items() if value is not None}
    iterations = changes.pop("max_iterations", None)
    why = "a person resumed it" + (", with other limits" if changes or iterations else "")
    budgets = msgspec.to_builtins(open_loop_session(directory).state.budgets)
    try:
        merged = msgspec.convert({**budgets, **changes}, Budgets) if changes else None
        return LoopResumed(why, merged, iterations, tuple(allow))
    except msgspec.ValidationError as error:
        hint = "flightlog loop resume --help"
        raise Invalid(f"a limit cannot be used: {error}", hint=hint) from error


def _event_printer(
    directory: Path, terminal: Terminal, redactor: Redactor, notifier: PersonNotifier
) -> Callable[[Event], None]:
    """Return a function that prints events, apart from questions that the terminal asks itself."""
    tell = terminal.tell
    if tell is None:
        return notifier.send_event
    names = {task.task_id: task.name for task in session.raw_plan(directory)[0].tasks}

    def print_event(event: Event) -> None:
        notifier.send_event(event)
        if terminal.ask is not None and isinstance(event, QuestionAsked):
            return
        if line := describe_event(event, names, directory.name):
            tell(redactor.redact_string(line))

    return print_event


def runner_name(runtime: Runtime) -> str:
    """Return a note for the lock file about this process."""
    since = datetime.fromtimestamp(runtime.clock.now_s(), tz=UTC)
    return f"process {os.getpid()} on {os.uname().nodename} since {since:%Y-%m-%dT%H:%M:%SZ}"


def _session_exists(root: Path, name: str) -> bool:
    try:
        return find_session_dir(root, name).is_dir()
    except NotFound:
        return False


@contextmanager
def _catch_signals() -> Iterator[Callable[[], str]]:
    """Yield a function that returns the first signal that asked us to stop, or ""."""
    names: list[str] = []
    before = {}
    with suppress(ValueError):  # only the main thread may handle signals
        for number in _SIGNALS:
            before[number] = signal.signal(
                number, lambda got, _: names.append(signal.Signals(got).name)
            )
    try:
        yield lambda: names[0] if names else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
