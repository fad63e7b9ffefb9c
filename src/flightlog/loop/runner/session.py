"""Create a loop session, and run it with one runner at a time."""

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from ruamel.yaml.error import YAMLError

from flightlog.loop import directories, events
from flightlog.loop.directories import JOURNAL, LEASE, PLAN
from flightlog.loop.plan.load import hash_plan, parse_plan, redact_plan
from flightlog.loop.plan.schema import Budgets, LoopConfig, Plan
from flightlog.loop.runner.driver import LoopDriver
from flightlog.loop.runner.executor import LoopOptions, TaskExecutor
from flightlog.loop.runner.guardian import MARK, kill_groups, processes_with_marker
from flightlog.loop.state import LoopState
from flightlog.loop.store import LoopStore
from flightlog.model.errors import Conflict, Invalid, NotFound, Unreadable, read_yaml
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.store.files import create_file
from flightlog.store.locks import Lease

Calibration = tuple[tuple[float, float], ...]


class LoopStart(Struct, frozen=True):
    """What a session starts with: plan, settings, and calibration from earlier sessions."""

    plan: Plan
    data: bytes
    project: Path
    name: str = ""
    autonomous: bool = False
    config: LoopConfig | None = None
    budgets: Budgets | None = None
    calibration: Calibration = ()


def create_session(root: Path, start: LoopStart, runtime: Runtime, redactor: Redactor) -> Path:
    """Create the next session below `root`; its directory is published complete."""

    def fill(path: Path, name: str) -> None:
        final = root / path.name.lstrip(".").partition(".")[0]  # `path` is a staging directory
        _fill_directory(path, final, name, start, runtime=runtime, redactor=redactor)

    title = redactor.redact_string(start.name) or redact_plan(start.plan, redactor).plan
    return directories.create_session_dir(root, title, fill)


def create_session_at(
    directory: Path, start: LoopStart, runtime: Runtime, redactor: Redactor
) -> Path:
    """Start a session in this directory, which is new or was made by hand from the templates."""
    if (directory / JOURNAL).exists():
        raise _begun_already(directory)
    directories.prepare_surroundings(directory)
    start = _with_metadata(directory, start)
    name = directories.session_id(directory)
    _fill_directory(directory, directory, name, start, runtime=runtime, redactor=redactor)
    return directory


def raw_plan(directory: Path) -> tuple[Plan, bytes]:
    """Return the session's own copy of its plan, parsed and as bytes, without redaction."""
    try:
        data = (directory / PLAN).read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"no session has begun in {directory}", hint="flightlog loop run --plan FILE"
        ) from error
    return parse_plan(data, PLAN), data


class RunMode(Enum):
    """Which sessions a runner may take."""

    START = "only one that no runner took before"
    RESUME = "any that no runner holds"
    STEAL = "any, even one that another runner holds"


class RunnerOptions(Struct, frozen=True):
    """Who runs a session, in which mode, with which new budgets and executor."""

    who: str
    mode: RunMode = RunMode.START
    budgets: Budgets | None = None
    executor: type[TaskExecutor] = TaskExecutor


def continue_session(
    directory: Path,
    options: LoopOptions,
    redactor: Redactor,
    runner: RunnerOptions,
    finish: Callable[[Path, Redactor], object] = lambda _path, _redactor: None,
) -> LoopState:
    """Run a session until it is completed, in error or paused; call `finish` before the release."""
    plan, data = raw_plan(directory)
    lease = Lease(directory / LEASE, runner.who, steal=runner.mode is RunMode.STEAL)
    try:
        shown = redact_plan(plan, redactor)
        for path in sorted((directory / "reports").glob("*.jsonl")):
            # An earlier runner recognized the private values in its reports; learn them again.
            redactor.redact_string(path.read_text("utf-8", "replace"))
        store = LoopStore(
            directory,
            shown,
            options.runtime,
            redactor,
            allowed=lease.check_owner,
            tell=options.tell,
        )
        if store.state.status == "completed" and store.state.plan_digest == hash_plan(data):
            # The runner that completed it may have been killed before it wrote everything.
            directories.remove_partial_files(directory)
            store.write_output_files()
            finish(directory, redactor)
        _require_resumable(directory, store.state, data, runner.mode)
        _end_leftovers(store.state.marker)
        directories.remove_partial_files(directory)
        epoch = store.state.epoch
        store.append(events.RunnerAcquired(runner.who, epoch + 1, is_resumed=epoch > 0))
        if store.state.status in {"paused", "error"}:
            store.append(events.LoopResumed("a person resumed it", runner.budgets))
        store.write_output_files()
        project = (directory / store.state.project).resolve()
        executor = runner.executor(directory, project, plan, options)
        try:
            LoopDriver(shown, store, executor).run()
        finally:
            executor.close(store.state.marker)
        store.redact_again()
        store.write_output_files()
        finish(directory, redactor)
        store.close()
        return store.state
    finally:
        lease.release()


def _end_leftovers(mark: str) -> None:
    """Kill the processes of a runner that was killed, so that no task runs twice at a time."""
    marker = f"{MARK}={mark}".encode()
    if mark and processes_with_marker(marker):
        kill_groups(set(), marker)


def _require_resumable(directory: Path, state: LoopState, data: bytes, mode: RunMode) -> None:
    name = directory.name
    if state.status == "new":
        raise Unreadable(f"the journal of {name} has no start event", hint="start a new session")
    if state.plan_digest != hash_plan(data):
        raise Conflict(
            f"the plan of {name} was changed under the session: it began with {state.plan_digest}",
            hint=f"restore {PLAN}, or start a new session",
        )
    if state.status == "completed":
        hint = "start another: flightlog loop run --plan FILE"
        raise Invalid(f"{name} is completed", hint=hint)
    if state.epoch > 0 and mode is RunMode.START:
        raise _begun_already(directory)


def _begun_already(directory: Path) -> Invalid:
    name = directory.name
    return Invalid(f"{name} has begun already", hint=f"flightlog loop resume --session {name}")


def _fill_directory(  # noqa: PLR0913 - two directories, and what the session starts with
    path: Path, final: Path, name: str, start: LoopStart, *, runtime: Runtime, redactor: Redactor
) -> None:
    """Write the first files of a session into `path`, which will be published as `final`."""
    create_file(path / PLAN, start.data)
    plan = redact_plan(start.plan, redactor)
    event = events.LoopStarted(
        session_id=name,
        session_name=start.name or plan.plan,
        plan=plan.plan,
        plan_digest=hash_plan(start.data),
        tasks_total=len(plan.tasks),
        config=start.config or plan.config,
        budgets=start.budgets or plan.budgets,
        is_autonomous=start.autonomous,
        context=plan.context_variables,
        calibration=start.calibration,
        project=os.path.relpath(start.project.resolve(), final.resolve()),
        marker=runtime.new_id(),
    )
    store = LoopStore(path, plan, runtime, redactor)
    store.append(event)
    store.write_output_files()
    store.close()


def _with_metadata(directory: Path, start: LoopStart) -> LoopStart:
    """Apply the name and settings that a person wrote into `session-metadata.yaml`."""
    path = directory / "session-metadata.yaml"
    if not path.is_file():
        return start
    try:
        metadata: Any = read_yaml(path.read_text("utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        hint = "correct it, or remove it"
        raise Invalid(f"{path.name} cannot be read: {error}", hint=hint) from error
    if not isinstance(metadata, dict):
        return start
    settings = metadata.get("ralph_runtime_config")
    config = start.config or start.plan.config
    if isinstance(settings, dict) and start.config is None:
        fields = LoopConfig.__struct_fields__
        own = {name: value for name, value in settings.items() if name in fields}
        try:
            config = msgspec.convert({**msgspec.to_builtins(config), **own}, LoopConfig)
        except msgspec.ValidationError as error:
            message = f"{path.name}: ralph_runtime_config: {error}"
            raise Invalid(message, hint="correct it there") from error
    name = metadata.get("session_name")
    title = name if isinstance(name, str) and name != "Brief session name" else ""
    return msgspec.structs.replace(start, config=config, name=start.name or title)
