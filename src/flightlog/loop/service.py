"""Start, run, resume, request; terminal and signals."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.agents.claude_code.files import find_config_dirs, find_session_dirs, session_files
from flightlog.agents.recordings import adopt_session_files
from flightlog.loop import directories
from flightlog.loop.analysis import calibration_table
from flightlog.loop.directories import LoopEvent, find_session_dir, iter_events, iter_session_dirs, open_loop_session
from flightlog.loop.events import Event, QuestionAsked
from flightlog.loop.logs import build_log_entry
from flightlog.loop.plan.load import hash_plan, load_plan
from flightlog.loop.plan.schema import Budgets, LoopConfig, Plan
from flightlog.loop.report import write_report
from flightlog.loop.runner import session
from flightlog.loop.runner.control import send_control_request
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.runner.executor import LoopOptions
from flightlog.loop.state import LoopState
from flightlog.loop.status import describe_event
from flightlog.loop.store import JOURNAL
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import ConsentTarget, consent_needed, open_trust
from flightlog.store.files import contained_in_project, create_file, find_project

Ask = Callable[[QuestionAsked, float], str | None]


def loops_dir(runtime: Runtime, project: Path | None = None) -> Path:
    """Where the sessions of a project are."""
    return (project or Path(runtime.cwd)) / directories.ROOT


def find_session(runtime: Runtime, written: str) -> Path:
    """Find a session of this project."""
    return directories.find_session_dir(loops_dir(runtime), written)


def all_sessions(runtime: Runtime, project: Path | None = None) -> list[Path]:
    """Every session of a project, this one by default, that has begun."""
    return [
        path
        for path in directories.iter_session_dirs(loops_dir(runtime, project))
        if (path / directories.JOURNAL).is_file()
    ]


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
    from flightlog.privacy.service import make_redactor  # noqa: PLC0415 - only the log needs it

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


class Terminal(NamedTuple):
    """How a runner talks with the person who started it: `ask` at a terminal, `tell` a line when something happens."""

    ask: Ask | None = None
    tell: Callable[[str], None] | None = None


EXAMPLE = Path(__file__).parents[1] / "loop" / "example"
_SIGNALS = {signal.SIGINT: "SIGINT", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


def remember_plan(runtime: Runtime, data: bytes, project: Path) -> None:
    """Record a plan that the person named as their own, for work in `project`."""
    open_trust(runtime).grant(_plan_subject(data, project), {})


def permit_plan(runtime: Runtime, directory: Path) -> None:
    """Raise ConsentNeeded unless the person named the plan of the loop session in `directory`, or allowed it."""
    target = plan_target(runtime, directory)
    if not target.trusted:
        raise consent_needed(target, f"the plan of this session was not named here: {directory.name[:60]}")


def start_session(
    runtime: Runtime, plan: Path, where: str = "", *, autonomous: bool = False, config: dict[str, object] | None = None
) -> tuple[Path, bool]:
    """Begin a session, or find the one `where` names; say whether it began before."""
    told, data = load_plan(plan)
    top = contained_in_project(runtime, loops_dir(runtime))
    settings = _override_config(told.config, config or {})
    taught = calibration_table(iter_session_dirs(top)) if top.is_dir() else ()
    given = where if "/" not in where and not _session_exists(top, where) else ""
    about = session.LoopStart(told, data, Path(runtime.cwd), given, autonomous, settings, calibration=taught)
    if "/" in where and not Path(where).resolve().is_relative_to(find_project(Path(runtime.cwd)).resolve()):
        raise Invalid(f"outside the project: {where[:100]}", hint="name a directory in it, or run it there")
    remember_plan(runtime, data, about.project)
    if not where or given:
        return session.create_session(top, about, runtime, make_redactor(runtime)), False
    return _open_at(runtime, Path(where) if "/" in where else find_session_dir(top, where), about, plan.name)


def start_session_at(
    runtime: Runtime, plan: Path, directory: Path, *, autonomous: bool, config: dict[str, object]
) -> tuple[Path, bool]:
    """Begin a session in exactly this directory, or find the one that began there."""
    told, data = load_plan(plan)
    beside = directory.parent
    taught = calibration_table(iter_session_dirs(beside)) if beside.is_dir() else ()
    settings = _override_config(told.config, config)
    about = session.LoopStart(told, data, Path(runtime.cwd), "", autonomous, settings, calibration=taught)
    remember_plan(runtime, data, about.project)
    return _open_at(runtime, directory, about, plan.name)


def _open_at(runtime: Runtime, directory: Path, about: session.LoopStart, plan: str) -> tuple[Path, bool]:
    contained_in_project(runtime, directory)
    if not (directory / JOURNAL).exists():
        return session.create_session_at(directory, about, runtime, make_redactor(runtime)), False
    own = session.raw_plan(directory)[1]
    if hash_plan(own) != hash_plan(about.data):
        raise Conflict(
            f"{directory.name} has another plan than {plan}: the plan was changed under the session",
            hint=f"go on with its own plan: flightlog loop resume --session {directory.name}",
        )
    return directory, True


def conduct_session(  # noqa: PLR0913 - what a person may ask for
    runtime: Runtime,
    directory: Path,
    talk: Terminal = Terminal(),  # noqa: B008 - a value
    *,
    steal: bool = False,
    resume: bool = False,
    budgets: Budgets | None = None,
) -> LoopState:
    """Carry a session on in this process, obeying signals; its plan was named here, or allowed."""
    permit_plan(runtime, contained_in_project(runtime, directory))
    cleaner = make_redactor(runtime)
    with _catch_signals() as interrupted:
        how = session.RunnerOptions(_runner_name(runtime), steal, resume, budgets)
        return session.continue_session(
            directory,
            _options(runtime, cleaner, interrupted, talk.ask, _event_printer(directory, talk, cleaner)),
            cleaner,
            how,
            write_report,
        )


def send_request(runtime: Runtime, written: str, wanted: ControlRequest) -> bool:
    """Ask the runner of a session for something; return whether there is one."""
    directory = find_session(runtime, written)
    if not open_loop_session(directory).runner:
        return False
    send_control_request(directory, wanted)
    return True


def merge_budgets(directory: Path, limits: dict[str, float | None]) -> Budgets | None:
    """The session's budgets with these limits in place of its own."""
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        return None
    now = msgspec.to_builtins(open_loop_session(directory).state.budgets)
    try:
        return msgspec.convert({**now, **given}, Budgets)
    except msgspec.ValidationError as error:
        raise Invalid(f"a limit cannot be used: {error}", hint="flightlog loop resume --help") from error


def write_example(folder: Path) -> list[Path]:
    """Write the example plan and what it needs; what is there already stays."""
    sources = {path.name.removesuffix(".txt"): path for path in sorted(EXAMPLE.iterdir()) if path.is_file()}
    made = [folder / name for name, path in sources.items() if create_file(folder / name, path.read_bytes())]
    if not made:
        raise Invalid(f"the example is there already: {folder}", hint="name another directory")
    return made


def _event_printer(directory: Path, talk: Terminal, cleaner: Redactor) -> Callable[[Event], None]:
    """Say each event in words; a question is left to the one who asks it at the terminal."""
    tell = talk.tell
    if tell is None:
        return lambda _: None
    names = {task.task_id: task.name for task in session.raw_plan(directory)[0].tasks}

    def told(event: Event) -> None:
        if talk.ask is not None and isinstance(event, QuestionAsked):
            return
        if line := describe_event(event, names, directory.name):
            tell(cleaner.redact_string(line))

    return told


def _options(
    runtime: Runtime,
    cleaner: Redactor,
    interrupted: Callable[[], str],
    ask: Ask | None,
    tell: Callable[[Event], None],
) -> LoopOptions:
    """Return what a runner works with; `cleaner` knows the values of the session."""
    config_dir = Path(find_config_dirs(runtime)[0])
    return LoopOptions(
        runtime,
        config_dir,
        keep=lambda session: _adopt_session_files(runtime, session, config_dir),
        redact=lambda text: cleaner.redact_text(text).map(lambda clean: clean.text),
        interrupted=interrupted,
        ask=ask,
        tell=tell,
    )


def _adopt_session_files(runtime: Runtime, told: str, config_dir: Path) -> None:
    for folder in find_session_dirs(str(config_dir), told):
        adopt_session_files(runtime.data_dir, told, session_files(folder, told))


def _runner_name(runtime: Runtime) -> str:
    since = datetime.fromtimestamp(runtime.clock.now_s(), tz=UTC)
    return f"process {os.getpid()} on {os.uname().nodename} since {since:%Y-%m-%dT%H:%M:%SZ}"


def _session_exists(top: Path, where: str) -> bool:
    try:
        return find_session_dir(top, where).is_dir()
    except NotFound:
        return False


def _override_config(given: LoopConfig, over: dict[str, object]) -> LoopConfig | None:
    if not over:
        return None
    try:
        return msgspec.convert({**msgspec.to_builtins(given), **over}, LoopConfig)
    except msgspec.ValidationError as error:
        raise Invalid(f"a setting cannot be used: {error}", hint="flightlog loop run --help") from error


@contextmanager
def _catch_signals() -> Iterator[Callable[[], str]]:
    """Remember the first signal that asks us to stop, for as long as the loop runs."""
    got: list[str] = []
    before = {}
    with suppress(ValueError):  # not in the main thread: then somebody else has the signals
        for number, name in _SIGNALS.items():
            before[number] = signal.signal(number, lambda *_, name=name: got.append(name))
    try:
        yield lambda: got[0] if got else ""
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def plan_target(runtime: Runtime, directory: Path) -> ConsentTarget:
    """Return what a loop session's plan would run, and whether that is allowed."""
    plan, data = session.raw_plan(directory)
    state = open_loop_session(directory).state
    project = (directory / state.project).resolve()
    subject = _plan_subject(data, project)
    # A plan that was changed under its session is refused by the session itself.
    trusted = bool(open_trust(runtime).consent_for(subject).digest) or state.plan_digest != hash_plan(data)
    return ConsentTarget("session", str(directory.resolve()), subject, _plan_effects(plan, project), trusted)


def _plan_subject(data: bytes, project: Path) -> str:
    whole = data + b"\0" + os.fsencode(project.resolve())
    return f"plan {hashlib.sha256(whole).hexdigest()}"


def _plan_effects(plan: Plan, project: Path) -> dict[str, Any]:
    """Return what carrying on a plan can run, by name."""
    effects: dict[str, Any] = {"works in": str(project)}
    for task in plan.tasks:
        runs_of = [(name, run) for name, run in (("task", task.run), ("delegate", task.delegate)) if run is not None]
        commands = {name: run.command or run.python or [run.agent, *run.arguments, run.prompt] for name, run in runs_of}
        commands |= {"verify": list(task.verify), "diagnose": task.diagnose}
        effects |= {f"{name} {task.task_id}": words for name, words in commands.items() if words}
    return effects
