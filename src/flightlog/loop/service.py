"""What the interfaces call: start, run, resume and inspect loop sessions of a project."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
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
from flightlog.loop.events import Event, QuestionAsked
from flightlog.loop.logs import build_log_entry
from flightlog.loop.plan.load import hash_plan, load_plan
from flightlog.loop.plan.schema import Budgets, LoopConfig, Plan
from flightlog.loop.report import write_report
from flightlog.loop.runner import session
from flightlog.loop.runner.control import send_control_request
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.runner.executor import LoopOptions
from flightlog.loop.runner.session import RunMode
from flightlog.loop.state import LoopState
from flightlog.loop.status import describe_event
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import ConsentTarget, consent_needed, open_trust
from flightlog.store.files import contained_in_project, create_file, find_project

__all__ = ["RunMode"]  # for callers of `conduct_session`
Ask = Callable[[QuestionAsked, float], str | None]
_FOLLOW_S = 0.3  # between two looks at a growing log


def loops_dir(runtime: Runtime, project: Path | None = None) -> Path:
    """Return the directory of a project's loop sessions."""
    return (project or Path(runtime.cwd)) / directories.ROOT


def find_session(runtime: Runtime, name: str) -> Path:
    """Find a session of this project."""
    return find_session_dir(loops_dir(runtime), name)


def all_sessions(runtime: Runtime, project: Path | None = None) -> list[Path]:
    """Return every session of a project (by default this one) that has begun."""
    paths = iter_session_dirs(loops_dir(runtime, project))
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
    """The person's terminal: `ask` asks a question there, `tell` prints a line for an event."""

    ask: Ask | None = None
    tell: Callable[[str], None] | None = None


EXAMPLE = Path(__file__).parent / "example"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_session(
    runtime: Runtime,
    plan: Path,
    where: str = "",
    *,
    autonomous: bool = False,
    config: dict[str, object] | None = None,
) -> tuple[Path, bool]:
    """Start a session, or find the one that `where` names; return whether it existed before."""
    root = contained_in_project(runtime, loops_dir(runtime))
    name = where if "/" not in where and not _session_exists(root, where) else ""
    start = _load_start(runtime, plan, root, autonomous=autonomous, config=config or {})
    start = msgspec.structs.replace(start, name=name)
    project = find_project(Path(runtime.cwd)).resolve()
    if "/" in where and not Path(where).resolve().is_relative_to(project):
        hint = "name a directory in it, or run it there"
        raise Invalid(f"outside the project: {where[:100]}", hint=hint)
    _trust_plan(runtime, start)
    if not where or name:
        return session.create_session(root, start, runtime, make_redactor(runtime)), False
    directory = Path(where) if "/" in where else find_session_dir(root, where)
    return _open_at(runtime, directory, start, plan.name)


def start_session_at(
    runtime: Runtime, plan: Path, directory: Path, *, autonomous: bool, config: dict[str, object]
) -> tuple[Path, bool]:
    """Start a session in exactly this directory; return whether one existed there before."""
    start = _load_start(runtime, plan, directory.parent, autonomous=autonomous, config=config)
    _trust_plan(runtime, start)
    return _open_at(runtime, directory, start, plan.name)


def _load_start(
    runtime: Runtime, path: Path, root: Path, *, autonomous: bool, config: dict[str, object]
) -> session.LoopStart:
    plan, data = load_plan(path)
    return session.LoopStart(
        plan,
        data,
        Path(runtime.cwd),
        autonomous=autonomous,
        config=_override_config(plan.config, config),
        calibration=calibration_table(iter_session_dirs(root)) if root.is_dir() else (),
    )


def _trust_plan(runtime: Runtime, start: session.LoopStart) -> None:
    """Record that the person named this plan for work in this project."""
    open_trust(runtime).grant(_plan_subject(start.data, start.project), {})


def _open_at(
    runtime: Runtime, directory: Path, start: session.LoopStart, plan: str
) -> tuple[Path, bool]:
    contained_in_project(runtime, directory)
    if not (directory / JOURNAL).exists():
        return session.create_session_at(directory, start, runtime, make_redactor(runtime)), False
    own = session.raw_plan(directory)[1]
    if hash_plan(own) != hash_plan(start.data):
        raise Conflict(
            f"{directory.name} has another plan than {plan}: the plan was changed under the session",
            hint=f"continue with its own plan: flightlog loop resume --session {directory.name}",
        )
    return directory, True


def conduct_session(
    runtime: Runtime,
    directory: Path,
    terminal: Terminal = Terminal(),  # noqa: B008 - immutable
    *,
    mode: RunMode = RunMode.START,
    budgets: Budgets | None = None,
) -> LoopState:
    """Run a session in this process until it ends or a signal comes.

    Raise ConsentNeeded unless the person named or allowed the session's plan.
    """
    contained_in_project(runtime, directory)
    target = plan_target(runtime, directory)
    if not target.is_trusted:
        name = directory.name[:60]
        raise consent_needed(target, f"the plan of this session was not named here: {name}")
    redactor = make_redactor(runtime)
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
            tell=_event_printer(directory, terminal, redactor),
        )
        runner = session.RunnerOptions(_runner_name(runtime), mode, budgets)
        return session.continue_session(directory, options, redactor, runner, write_report)


def send_request(runtime: Runtime, name: str, request: ControlRequest) -> bool:
    """Send a request to the runner of a session; return whether there is one."""
    directory = find_session(runtime, name)
    if not open_loop_session(directory).runner:
        return False
    send_control_request(directory, request)
    return True


def merge_budgets(directory: Path, limits: dict[str, float | None]) -> Budgets | None:
    """Return the session's budgets with `limits`; None if there are none to change."""
    changes = {name: value for name, value in limits.items() if value is not None}
    if not changes:
        return None
    budgets = msgspec.to_builtins(open_loop_session(directory).state.budgets)
    try:
        return msgspec.convert({**budgets, **changes}, Budgets)
    except msgspec.ValidationError as error:
        hint = "flightlog loop resume --help"
        raise Invalid(f"a limit cannot be used: {error}", hint=hint) from error


def write_example(folder: Path) -> list[Path]:
    """Write the example plan and its module; return the new files. Existing files stay."""
    sources = [path for path in sorted(EXAMPLE.iterdir()) if path.is_file()]
    targets = {folder / path.name.removesuffix(".txt"): path for path in sources}
    new = [target for target, path in targets.items() if create_file(target, path.read_bytes())]
    if not new:
        raise Invalid(f"the example exists already: {folder}", hint="name another directory")
    return new


def _event_printer(
    directory: Path, terminal: Terminal, redactor: Redactor
) -> Callable[[Event], None]:
    """Return a function that prints events, apart from questions that the terminal asks itself."""
    tell = terminal.tell
    if tell is None:
        return lambda _: None
    names = {task.task_id: task.name for task in session.raw_plan(directory)[0].tasks}

    def print_event(event: Event) -> None:
        if terminal.ask is not None and isinstance(event, QuestionAsked):
            return
        if line := describe_event(event, names, directory.name):
            tell(redactor.redact_string(line))

    return print_event


def _runner_name(runtime: Runtime) -> str:
    since = datetime.fromtimestamp(runtime.clock.now_s(), tz=UTC)
    return f"process {os.getpid()} on {os.uname().nodename} since {since:%Y-%m-%dT%H:%M:%SZ}"


def _session_exists(root: Path, name: str) -> bool:
    try:
        return find_session_dir(root, name).is_dir()
    except NotFound:
        return False


def _override_config(config: LoopConfig, changes: dict[str, object]) -> LoopConfig | None:
    if not changes:
        return None
    try:
        return msgspec.convert({**msgspec.to_builtins(config), **changes}, LoopConfig)
    except msgspec.ValidationError as error:
        hint = "flightlog loop run --help"
        raise Invalid(f"a setting cannot be used: {error}", hint=hint) from error


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


def plan_target(runtime: Runtime, directory: Path) -> ConsentTarget:
    """Return what a loop session's plan would run, and whether that is allowed."""
    plan, data = session.raw_plan(directory)
    state = open_loop_session(directory).state
    project = (directory / state.project).resolve()
    subject = _plan_subject(data, project)
    consent = bool(open_trust(runtime).consent_for(subject).digest)
    # The runner itself refuses a plan that was changed under its session.
    trusted = consent or state.plan_digest != hash_plan(data)
    effects = _plan_effects(plan, project)
    return ConsentTarget("session", str(directory.resolve()), subject, effects, trusted)


def _plan_subject(data: bytes, project: Path) -> str:
    whole = data + b"\0" + os.fsencode(project.resolve())
    return f"plan {hashlib.sha256(whole).hexdigest()}"


def _plan_effects(plan: Plan, project: Path) -> dict[str, Any]:
    """Return everything that a plan can run, by name."""
    effects: dict[str, Any] = {"works in": str(project)}
    for task in plan.tasks:
        commands: dict[str, Any] = {
            name: run.command or run.python or [run.agent, *run.arguments, run.prompt]
            for name, run in (("task", task.run), ("delegate", task.delegate))
            if run is not None
        }
        commands |= {"verify": list(task.verify), "diagnose": task.diagnose}
        effects |= {f"{name} {task.task_id}": words for name, words in commands.items() if words}
    return effects
