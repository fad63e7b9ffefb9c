"""Wiring of the loop: what it takes from this machine, and the doors through which faces use it."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.app.loop_look import found, root
from flightlog.app.privacy import redactor
from flightlog.loop.core.state import State
from flightlog.loop.events import Event, QuestionAsked
from flightlog.loop.look.calibration import table
from flightlog.loop.look.report import write_report
from flightlog.loop.look.saying import said
from flightlog.loop.look.session import look
from flightlog.loop.plan.load import digest, load
from flightlog.loop.plan.schema import Budgets, Config, Plan
from flightlog.loop.run import session
from flightlog.loop.run.book import JOURNAL
from flightlog.loop.run.control import send
from flightlog.loop.run.machine import LoopOptions
from flightlog.loop.run.where import find, sessions
from flightlog.loop.run.world import Request
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.privacy.redact import Redactor
from flightlog.privacy.trust import ConsentTarget, consent_needed, open_trust
from flightlog.sources.claude_code.discover import find_config_dirs, session_files
from flightlog.sources.claude_code.kept import keep
from flightlog.store.files import contained_in_project, create, find_project

Ask = Callable[[QuestionAsked, float], str | None]


class Talk(NamedTuple):
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


def start(
    runtime: Runtime, plan: Path, where: str = "", *, autonomous: bool = False, config: dict[str, object] | None = None
) -> tuple[Path, bool]:
    """Begin a session, or find the one `where` names; say whether it began before."""
    told, data = load(plan)
    top = contained_in_project(runtime, root(runtime))
    settings = _config(told.config, config or {})
    taught = table(sessions(top)) if top.is_dir() else ()
    given = where if "/" not in where and not _exists(top, where) else ""
    about = session.Beginning(told, data, Path(runtime.cwd), given, autonomous, settings, calibration=taught)
    if "/" in where and not Path(where).resolve().is_relative_to(find_project(Path(runtime.cwd)).resolve()):
        raise Invalid(f"outside the project: {where[:100]}", hint="name a directory in it, or run it there")
    remember_plan(runtime, data, about.project)
    if not where or given:
        return session.begin(top, about, runtime, redactor(runtime)), False
    return _at(runtime, Path(where) if "/" in where else find(top, where), about, plan.name)


def start_at(
    runtime: Runtime, plan: Path, directory: Path, *, autonomous: bool, config: dict[str, object]
) -> tuple[Path, bool]:
    """Begin a session in exactly this directory, or find the one that began there."""
    told, data = load(plan)
    beside = directory.parent
    taught = table(sessions(beside)) if beside.is_dir() else ()
    settings = _config(told.config, config)
    about = session.Beginning(told, data, Path(runtime.cwd), "", autonomous, settings, calibration=taught)
    remember_plan(runtime, data, about.project)
    return _at(runtime, directory, about, plan.name)


def _at(runtime: Runtime, directory: Path, about: session.Beginning, plan: str) -> tuple[Path, bool]:
    contained_in_project(runtime, directory)
    if not (directory / JOURNAL).exists():
        return session.begin_at(directory, about, runtime, redactor(runtime)), False
    own = session.raw_plan(directory)[1]
    if digest(own) != digest(about.data):
        raise Conflict(
            f"{directory.name} has another plan than {plan}: the plan was changed under the session",
            hint=f"go on with its own plan: flightlog loop resume --session {directory.name}",
        )
    return directory, True


def conduct(runtime: Runtime, directory: Path, talk: Talk = Talk(), *, steal: bool = False, resume: bool = False,  # noqa: B008, PLR0913 - a value
            budgets: Budgets | None = None) -> State:  # fmt: skip
    """Carry a session on in this process, obeying signals; its plan was named here, or allowed."""
    permit_plan(runtime, contained_in_project(runtime, directory))
    cleaner = redactor(runtime)
    with _signals() as interrupted:
        how = session.Conduct(_who(runtime), steal, resume, budgets)
        return session.carry_on(
            directory,
            _options(runtime, cleaner, interrupted, talk.ask, _telling(directory, talk, cleaner)),
            cleaner,
            how,
            write_report,
        )


def request(runtime: Runtime, written: str, wanted: Request) -> bool:
    """Ask the runner of a session for something; return whether there is one."""
    directory = found(runtime, written)
    if not look(directory).runner:
        return False
    send(directory, wanted)
    return True


def more_budget(directory: Path, limits: dict[str, float | None]) -> Budgets | None:
    """The session's budgets with these limits in place of its own."""
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        return None
    now = msgspec.to_builtins(look(directory).state.budgets)
    try:
        return msgspec.convert({**now, **given}, Budgets)
    except msgspec.ValidationError as error:
        raise Invalid(f"a limit cannot be used: {error}", hint="flightlog loop resume --help") from error


def write_example(folder: Path) -> list[Path]:
    """Write the example plan and what it needs; what is there already stays."""
    sources = {path.name.removesuffix(".txt"): path for path in sorted(EXAMPLE.iterdir()) if path.is_file()}
    made = [folder / name for name, path in sources.items() if create(folder / name, path.read_bytes())]
    if not made:
        raise Invalid(f"the example is there already: {folder}", hint="name another directory")
    return made


def _telling(directory: Path, talk: Talk, cleaner: Redactor) -> Callable[[Event], None]:
    """Say each event in words; a question is left to the one who asks it at the terminal."""
    tell = talk.tell
    if tell is None:
        return lambda _: None
    names = {task.task_id: task.name for task in session.raw_plan(directory)[0].tasks}

    def told(event: Event) -> None:
        if talk.ask is not None and isinstance(event, QuestionAsked):
            return
        if line := said(event, names, directory.name):
            tell(cleaner.text(line))

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
        keep=lambda session: _keep(runtime, session, config_dir),
        redact=lambda text: cleaner.redact_text(text).map(lambda clean: clean.text),
        interrupted=interrupted,
        ask=ask,
        tell=tell,
    )


def _keep(runtime: Runtime, told: str, config_dir: Path) -> None:
    for path in config_dir.glob(f"projects/*/{told}.jsonl"):
        keep(runtime.data_dir, told, session_files(str(path.parent), told))


def _who(runtime: Runtime) -> str:
    since = datetime.fromtimestamp(runtime.clock.now_s(), tz=UTC)
    return f"process {os.getpid()} on {os.uname().nodename} since {since:%Y-%m-%dT%H:%M:%SZ}"


def _exists(top: Path, where: str) -> bool:
    try:
        return find(top, where).is_dir()
    except NotFound:
        return False


def _config(given: Config, over: dict[str, object]) -> Config | None:
    if not over:
        return None
    try:
        return msgspec.convert({**msgspec.to_builtins(given), **over}, Config)
    except msgspec.ValidationError as error:
        raise Invalid(f"a setting cannot be used: {error}", hint="flightlog loop run --help") from error


@contextmanager
def _signals() -> Iterator[Callable[[], str]]:
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
    state = look(directory).state
    project = (directory / state.project).resolve()
    subject = _plan_subject(data, project)
    # A plan that was changed under its session is refused by the session itself.
    trusted = bool(open_trust(runtime).get(subject).digest) or state.plan_digest != digest(data)
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
