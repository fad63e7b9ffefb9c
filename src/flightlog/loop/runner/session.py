"""A session's life: begun, taken by one runner at a time, carried on, and left in order."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from ruamel.yaml.error import YAMLError

from flightlog.loop import directories, events
from flightlog.loop.directories import session_id
from flightlog.loop.plan.load import hash_plan, parse_plan, redact_plan
from flightlog.loop.plan.schema import Budgets, LoopConfig, Plan
from flightlog.loop.runner.driver import LoopDriver
from flightlog.loop.runner.executor import LoopOptions, TaskExecutor
from flightlog.loop.runner.guardian import MARK, kill_groups, processes_with_marker
from flightlog.loop.state import LoopState
from flightlog.loop.store import JOURNAL, LoopStore
from flightlog.model.errors import Conflict, Invalid, NotFound, Unreadable, read_yaml
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.store.files import create_file
from flightlog.store.locks import Lease

PLAN = "plan.yaml"
LEASE = "runner.lock"
Calibration = tuple[tuple[float, float], ...]


class LoopStart(Struct, frozen=True):
    """How a session is to begin: its plan, its settings, and what earlier sessions taught."""

    plan: Plan
    data: bytes
    project: Path
    name: str = ""
    autonomous: bool = False
    config: LoopConfig | None = None
    budgets: Budgets | None = None
    calibration: Calibration = ()


def create_session(root: Path, told: LoopStart, runtime: Runtime, redactor: Redactor) -> Path:
    """Make the next session below `root`; it appears whole."""
    shown = redact_plan(told.plan, redactor)
    return directories.create_session_dir(
        root,
        redactor.redact_string(told.name) or shown.plan,
        lambda path, name: _fill_directory(path, root, name, told, runtime=runtime, redactor=redactor),
    )


def create_session_at(directory: Path, told: LoopStart, runtime: Runtime, redactor: Redactor) -> Path:
    """Begin a session in exactly this directory, made by hand from the templates or not there yet."""
    if (directory / JOURNAL).exists():
        raise Invalid(f"{directory.name} has begun already", hint=f"flightlog loop resume --session {directory.name}")
    directories.prepare_surroundings(directory)
    _fill_directory(
        directory,
        directory.parent,
        session_id(directory),
        _with_metadata(directory, told),
        runtime=runtime,
        redactor=redactor,
    )
    return directory


def raw_plan(directory: Path) -> tuple[Plan, bytes]:
    """The plan a session began with, from its own copy."""
    try:
        data = (directory / PLAN).read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no session has begun in {directory}", hint="flightlog loop run --plan FILE") from error
    return parse_plan(data, PLAN), data


class RunnerOptions(Struct, frozen=True):
    """How a session is taken up: by whom, whether from another runner, and what runs its tasks."""

    who: str
    steal: bool = False
    go_on: bool = False
    budgets: Budgets | None = None
    machine: type[TaskExecutor] = TaskExecutor


def continue_session(
    directory: Path,
    options: LoopOptions,
    redactor: Redactor,
    how: RunnerOptions,
    finish: Callable[[Path, Redactor], object] = lambda _path, _redactor: None,
) -> LoopState:
    """Carry a session on until it is completed, in error, or rests; `finish` is called before it is let go."""
    plan, data = raw_plan(directory)
    lease = Lease(directory / LEASE, how.who, steal=how.steal)
    try:
        shown = redact_plan(plan, redactor)
        for path in sorted((directory / "reports").glob("*.jsonl")):
            redactor.redact_string(path.read_text("utf-8", "replace"))  # a runner before this one knew the values in it
        book = LoopStore(directory, shown, options.runtime, redactor, allowed=lease.check_owner, tell=options.tell)
        if book.state.status == "completed" and book.state.plan_digest == hash_plan(data):
            # Whoever completed it may have been killed before all was written.
            directories.remove_partial_files(directory)
            book.write_output_files()
            finish(directory, redactor)
        _require_resumable(directory, book.state, data, how)
        end_leftovers(book.state.mark)
        directories.remove_partial_files(directory)
        book.append(events.RunnerAcquired(how.who, book.state.epoch + 1, resumed=book.state.epoch > 0))
        if book.state.status in {"paused", "error"}:
            book.append(events.LoopResumed("a person said so", how.budgets))
        book.write_output_files()
        machine = how.machine(directory, (directory / book.state.project).resolve(), plan, options)
        try:
            LoopDriver(shown, book, machine).run()
        finally:
            machine.close(book.state.mark)
        book.redact_again()
        book.write_output_files()
        finish(directory, redactor)
        book.close()
        return book.state
    finally:
        lease.release()


def end_leftovers(mark: str) -> None:
    """End what a runner that was killed left running; one task must not be at work twice."""
    if mark and processes_with_marker(f"{MARK}={mark}".encode()):
        kill_groups(set(), f"{MARK}={mark}".encode())


def _require_resumable(directory: Path, state: LoopState, data: bytes, how: RunnerOptions) -> None:
    if state.status == "new":
        raise Unreadable(f"the journal of {directory.name} does not say how it began", hint="begin a new session")
    if state.plan_digest != hash_plan(data):
        raise Conflict(
            f"the plan of {directory.name} was changed under the session: it began with {state.plan_digest}",
            hint=f"put {PLAN} back as it was, or begin a new session",
        )
    if state.status == "completed":
        raise Invalid(f"{directory.name} is completed", hint="begin another: flightlog loop run --plan FILE")
    if state.epoch > 0 and not how.go_on:
        raise Invalid(f"{directory.name} has begun already", hint=f"flightlog loop resume --session {directory.name}")


def _fill_directory(  # noqa: PLR0913 - where it goes, what it begins with
    path: Path, root: Path, name: str, told: LoopStart, *, runtime: Runtime, redactor: Redactor
) -> None:
    final = root / path.name.lstrip(".").partition(".")[0] if path.name.startswith(".") else path
    create_file(path / PLAN, told.data)
    plan = redact_plan(told.plan, redactor)
    event = events.LoopStarted(
        session_id=name,
        session_name=told.name or plan.plan,
        plan=plan.plan,
        plan_digest=hash_plan(told.data),
        tasks_total=len(plan.tasks),
        config=told.config or plan.config,
        budgets=told.budgets or plan.budgets,
        autonomous=told.autonomous,
        context=plan.context_variables,
        calibration=told.calibration,
        project=os.path.relpath(told.project.resolve(), final.resolve()),
        mark=runtime.new_id(),
    )
    book = LoopStore(path, plan, runtime, redactor)
    book.append(event)
    book.write_output_files()
    book.close()


def _with_metadata(directory: Path, told: LoopStart) -> LoopStart:
    """What a person wrote into the metadata of a session made by hand is taken over before it begins."""
    path = directory / "session-metadata.yaml"
    if not path.is_file():
        return told
    try:
        written: Any = read_yaml(path.read_text("utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{path.name} cannot be read: {error}", hint="correct it, or remove it") from error
    if not isinstance(written, dict):
        return told
    own = written.get("ralph_runtime_config")
    config = told.config or told.plan.config
    if isinstance(own, dict) and told.config is None:
        known = {name: value for name, value in own.items() if name in LoopConfig.__struct_fields__}
        try:
            config = msgspec.convert({**msgspec.to_builtins(config), **known}, LoopConfig)
        except msgspec.ValidationError as error:
            raise Invalid(f"{path.name}: ralph_runtime_config: {error}", hint="correct it there") from error
    name = written.get("session_name")
    chosen = name if isinstance(name, str) and name != "Brief session name" else ""
    return msgspec.structs.replace(told, config=config, name=told.name or chosen)
