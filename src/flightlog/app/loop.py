"""Wiring of the loop: what it takes from this machine, and the doors through which faces use it."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightlog.agents.claude_code.driver import find as find_claude
from flightlog.app import home
from flightlog.app.consent import permit_plan, remember_plan
from flightlog.app.loop_look import found, root
from flightlog.app.paths import claude_config_dirs, contained, project_of
from flightlog.app.privacy import redactor
from flightlog.loop.core.state import State
from flightlog.loop.events import Event, QuestionAsked
from flightlog.loop.look.calibration import table
from flightlog.loop.look.report import write_report
from flightlog.loop.look.saying import said
from flightlog.loop.look.session import look
from flightlog.loop.plan.load import digest, load
from flightlog.loop.plan.schema import Budgets, Config
from flightlog.loop.run import session
from flightlog.loop.run.book import JOURNAL, Surroundings
from flightlog.loop.run.control import send
from flightlog.loop.run.machine import Outside
from flightlog.loop.run.where import find, sessions
from flightlog.loop.run.world import Request
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.privacy.redact import Redactor
from flightlog.sources.claude_code.discover import session_files
from flightlog.sources.claude_code.kept import keep
from flightlog.store.files import create

Ask = Callable[[QuestionAsked, float], str | None]


class Talk(NamedTuple):
    """How a runner talks with the person who started it: `ask` at a terminal, `tell` a line when something happens."""

    ask: Ask | None = None
    tell: Callable[[str], None] | None = None


EXAMPLE = Path(__file__).parents[1] / "loop" / "example"
_SIGNALS = {signal.SIGINT: "SIGINT", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


def surroundings() -> Surroundings:
    """The clock, ids and the redactor of this person."""
    return Surroundings(time.time, lambda: str(uuid.uuid4()), redactor())


def start(
    plan: Path, where: str = "", *, autonomous: bool = False, config: dict[str, object] | None = None
) -> tuple[Path, bool]:
    """Begin a session, or find the one `where` names; say whether it began before."""
    told, data = load(plan)
    top = contained(root())
    settings = _config(told.config, config or {})
    taught = table(sessions(top)) if top.is_dir() else ()
    given = where if "/" not in where and not _exists(top, where) else ""
    about = session.Beginning(told, data, Path.cwd(), given, autonomous, settings, calibration=taught)
    if "/" in where and not Path(where).resolve().is_relative_to(project_of(Path.cwd()).resolve()):
        raise Invalid(f"outside the project: {where[:100]}", hint="name a directory in it, or run it there")
    remember_plan(data, about.project)
    if not where or given:
        return session.begin(top, about, surroundings()), False
    return _at(Path(where) if "/" in where else find(top, where), about, plan.name)


def start_at(plan: Path, directory: Path, *, autonomous: bool, config: dict[str, object]) -> tuple[Path, bool]:
    """Begin a session in exactly this directory, or find the one that began there."""
    told, data = load(plan)
    beside = directory.parent
    taught = table(sessions(beside)) if beside.is_dir() else ()
    settings = _config(told.config, config)
    about = session.Beginning(told, data, Path.cwd(), "", autonomous, settings, calibration=taught)
    remember_plan(data, about.project)
    return _at(directory, about, plan.name)


def _at(directory: Path, about: session.Beginning, plan: str) -> tuple[Path, bool]:
    contained(directory)
    if not (directory / JOURNAL).exists():
        return session.begin_at(directory, about, surroundings()), False
    own = session.raw_plan(directory)[1]
    if digest(own) != digest(about.data):
        raise Conflict(
            f"{directory.name} has another plan than {plan}: the plan was changed under the session",
            hint=f"go on with its own plan: flightlog loop resume --session {directory.name}",
        )
    return directory, True


def conduct(directory: Path, talk: Talk = Talk(), *, steal: bool = False, resume: bool = False,  # noqa: B008 - a value
            budgets: Budgets | None = None) -> State:  # fmt: skip
    """Carry a session on in this process, obeying signals; its plan was named here, or allowed."""
    permit_plan(contained(directory))
    cleaner = redactor()
    with _signals() as interrupted:
        how = session.Conduct(_who(), steal, resume, budgets)
        return session.carry_on(
            directory,
            outside(cleaner, interrupted, talk.ask, _telling(directory, talk, cleaner)),
            cleaner,
            how,
            write_report,
        )


def request(written: str, what: str, *, why: str = "", question: str = "", answer: str = "") -> bool:
    """Ask the runner of a session for something; say whether there is one."""
    directory = found(written)
    if not look(directory).runner:
        return False
    send(directory, Request(what, question, answer, why))
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


def outside(
    cleaner: Redactor,
    interrupted: Callable[[], str] = lambda: "",
    ask: Ask | None = None,
    tell: Callable[[Event], None] = lambda _: None,
) -> Outside:
    """This machine, as the loop sees it; `cleaner` knows the values of the session."""
    environment = dict(os.environ)
    config_dir = claude_config_dirs(environment)[0]
    return Outside(
        environment=environment,
        python=sys.executable,
        now=time.time,
        monotonic=time.monotonic,
        sleep=time.sleep,
        new_id=lambda: str(uuid.uuid4()),
        claude=lambda: find_claude(environment.get("FLIGHTLOG_CLAUDE", ""), environment.get("PATH", os.defpath)),
        config_dir=config_dir,
        keep=lambda told: _keep(told, config_dir),
        redact=lambda text: cleaner.redact_text(text).map(lambda clean: clean.text),
        interrupted=interrupted,
        ask=ask,
        tell=tell,
    )


def _keep(told: str, config_dir: Path) -> None:
    for path in config_dir.glob(f"projects/*/{told}.jsonl"):
        keep(home(), told, session_files(str(path.parent), told))


def _who() -> str:
    return f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"


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
