"""Create a loop session, and run it with one runner at a time."""

import hashlib
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from yaml import YAMLError

from flightlog.loop import directories, events
from flightlog.loop.directories import JOURNAL, LEASE, PLAN
from flightlog.loop.plan.load import hash_plan, parse_plan, redact_plan
from flightlog.loop.plan.schema import Budgets, LoopConfig, Plan, select_phase
from flightlog.loop.runner.control import forget_answers
from flightlog.loop.runner.driver import LoopDriver
from flightlog.loop.runner.executor import LoopOptions, TaskExecutor
from flightlog.loop.runner.guardian import MARK, kill_groups, processes_with_marker
from flightlog.loop.state import LoopState
from flightlog.loop.store import LoopStore
from flightlog.model.errors import Conflict, Invalid, NotFound, Unreadable, read_yaml
from flightlog.model.runtime import Runtime
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.trust import ConsentTarget, open_trust
from flightlog.store.files import create_file
from flightlog.store.locks import Lease

Calibration = tuple[tuple[float, float], ...]


class LoopStart(Struct, frozen=True):
    """What a session starts with: plan, settings, calibration from earlier sessions.

    With `phase` it is one phase, with the `context` and `metrics` that other phases reported.
    """

    plan: Plan
    data: bytes
    project: Path
    name: str = ""
    autonomous: bool = False
    config: LoopConfig | None = None
    budgets: Budgets | None = None
    calibration: Calibration = ()
    phase: int | None = None
    context: dict[str, Any] = {}
    metrics: dict[str, float] = {}


def create_session(root: Path, start: LoopStart, runtime: Runtime, redactor: Redactor) -> Path:
    """Create the next session below `root`; its directory is published complete."""

    def fill(path: Path, name: str) -> None:
        final = root / path.name.lstrip(".").partition(".")[0]  # `path` is a staging directory
        _fill_directory(path, final, name, start, runtime=runtime, redactor=redactor)

    plan = redact_plan(select_phase(start.plan, start.phase), redactor)
    title = redactor.redact_string(start.name) or plan.plan
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
    """Return the part of its plan that a session runs, and the whole plan's bytes, not redacted."""
    try:
        data = (directory / PLAN).read_bytes()
    except FileNotFoundError as error:
        hint = "flightlog loop run --plan FILE"
        raise NotFound(f"no session has begun in {directory}", hint=hint) from error
    has_begun = (directory / JOURNAL).is_file()
    phase = directories.open_loop_session(directory).state.phase if has_begun else None
    return select_phase(parse_plan(data, PLAN), phase), data


class RunMode(Enum):
    """Which sessions a runner may take."""

    START = "only one that no runner took before"
    RESUME = "any that no runner holds"
    STEAL = "any, even one that another runner holds"


class RunnerOptions(Struct, frozen=True):
    """Who runs a session, in which mode, with which new limits and executor."""

    who: str
    mode: RunMode = RunMode.START
    resume: events.LoopResumed = events.LoopResumed("a person resumed it")
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
    lease = _take_lease(directory, runner)
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
        project = (directory / store.state.project).resolve()
        # It reads the answer in `question.yaml` before that file is written again.
        executor = runner.executor(directory, project, plan, options)
        _take_session(directory, store, runner)
        store.write_output_files()
        try:
            LoopDriver(shown, store, executor).run()
        finally:
            executor.close(store.state.marker)
        forget_answers(directory, store.state)
        store.redact_again()
        store.write_output_files()
        finish(directory, redactor)
        store.close()
        return store.state
    finally:
        lease.release()


def _take_lease(directory: Path, runner: RunnerOptions) -> Lease:
    try:
        return Lease(directory / LEASE, runner.who, steal=runner.mode is RunMode.STEAL)
    except Conflict as error:  # the lease knows the option, and not which command has it
        hint = f"take over: flightlog loop resume --session {directory.name} --steal"
        raise Conflict(error.message, hint=hint) from error


def _take_session(directory: Path, store: LoopStore, runner: RunnerOptions) -> None:
    """Record this runner, and the new limits of a session that it resumes."""
    epoch = store.state.epoch
    seen_at = directories.read_activity(directory, store.state)[1]
    took = events.RunnerAcquired(runner.who, epoch + 1, is_resumed=epoch > 0, last_alive_at=seen_at)
    store.append(took)
    changes = runner.resume.budgets or runner.resume.max_iterations
    if store.state.status in {"paused", "error"} or changes or runner.resume.allowed_tools:
        store.append(runner.resume)


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
        raise Invalid(f"{name} is completed", hint="start another: flightlog loop run --plan FILE")
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
    plan = redact_plan(select_phase(start.plan, start.phase), redactor)
    event = events.LoopStarted(
        session_id=name,
        session_name=start.name or plan.plan,
        plan=plan.plan,
        plan_digest=hash_plan(start.data),
        tasks_total=len(plan.tasks),
        config=start.config or plan.config,
        budgets=start.budgets or plan.budgets,
        is_autonomous=start.autonomous,
        context={**plan.context_variables, **start.context},
        calibration=start.calibration,
        project=os.path.relpath(start.project.resolve(), final.resolve()),
        marker=runtime.new_id(),
        names={task.task_id: task.name for task in plan.tasks},
        phase=start.phase,
        metrics=start.metrics,
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
        config = override_config(config, own, f"correct `ralph_runtime_config` in {path.name}")
    name = metadata.get("session_name")
    title = name if isinstance(name, str) and name != "Brief session name" else ""
    return msgspec.structs.replace(start, config=config, name=start.name or title)


def override_config(config: LoopConfig, changes: dict[str, Any], hint: str) -> LoopConfig:
    """Return the settings with `changes`; `hint` says where to correct one that cannot be used."""
    try:
        return msgspec.convert({**msgspec.to_builtins(config), **changes}, LoopConfig)
    except msgspec.ValidationError as error:
        raise Invalid(f"a setting cannot be used: {error}", hint=hint) from error


def trust_plan(runtime: Runtime, start: LoopStart) -> None:
    """Record that the person named this plan for work in this project."""
    open_trust(runtime).grant(_plan_subject(start.data, start.project), {})


def plan_target(runtime: Runtime, directory: Path) -> ConsentTarget:
    """Return what a loop session's plan would run, and whether that is allowed."""
    plan, data = raw_plan(directory)
    state = directories.open_loop_session(directory).state
    project = (directory / state.project).resolve()
    subject = _plan_subject(data, project)
    consent = bool(open_trust(runtime).consent_for(subject).digest)
    # The runner itself refuses a plan that was changed under its session.
    trusted = consent or state.plan_digest != hash_plan(data)
    effects = _plan_effects(plan, project)
    if state.allowed_tools:  # by the journal, which may come with a clone
        effects["agents may use"] = state.allowed_tools
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
