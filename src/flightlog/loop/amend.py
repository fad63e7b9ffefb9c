"""Changes that a person makes to a session while it does not run.

Redo a task, accept a gate, reset the breaker, restore the files before a task. Each holds the
session's lease, appends an event and brings the output files up to date.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from flightlog.loop import events, service
from flightlog.loop.decide.fold import RESET
from flightlog.loop.directories import LEASE
from flightlog.loop.plan.load import redact_plan
from flightlog.loop.report import write_report
from flightlog.loop.runner.session import plan_target, raw_plan
from flightlog.loop.runner.work_tree import Changes, WorkTreeWatch
from flightlog.loop.state import LoopState
from flightlog.loop.store import LoopStore
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.text import suggest_name
from flightlog.privacy.service import make_redactor
from flightlog.privacy.trust import consent_needed
from flightlog.store.files import contained_in_project
from flightlog.store.locks import Lease


class Rollback(Struct, frozen=True):
    """What a rollback restores: the snapshot, and the tasks whose work it takes back."""

    session: str
    task: str
    snapshot: str
    reopened_tasks: tuple[str, ...]
    changed_files: Changes


def redo_task(runtime: Runtime, name: str, task_id: str) -> None:
    """Have an ended task done again when the session is resumed, under a new key."""
    with _open_store(runtime, name) as (directory, store):
        _require_known(store.state, task_id)
        status = store.state.task_state(task_id).status
        if status in {"pending", "in_progress"}:
            hint = f"flightlog loop resume --session {directory.name}"
            raise Invalid(f"task {task_id} is {status.replace('_', ' ')}, not ended", hint=hint)
        store.append(events.TaskReopened(task_id, "a person wants it"))


def accept_gate(runtime: Runtime, name: str, gate: str) -> None:
    """Let the session continue behind a gate that did not pass."""
    directory = service.find_session(runtime, name)
    known = [item.name for item in raw_plan(directory)[0].quality_gates]
    if gate not in known:
        hint = suggest_name(gate, known, f"one of: {', '.join(known) or 'the plan has none'}")
        raise NotFound(f"no gate is called {gate[:60]!r}", hint=hint)
    with _open_store(runtime, name) as (_, store):
        result = store.state.gates.get(gate)
        if result is not None and (result.passed or result.is_accepted):
            hint = f"flightlog loop status --session {name}"
            raise Invalid("the gate passed, or a person accepted it", hint=hint)
        store.append(events.GateAccepted(gate, "a person accepted it"))


def reset_breaker(runtime: Runtime, name: str) -> None:
    """Close the breaker and forget how often it opened."""
    with _open_store(runtime, name) as (_, store):
        breaker = store.state.breaker
        if breaker.state == "closed" and not breaker.trips:
            raise Invalid("the breaker is closed", hint=f"flightlog loop resume --session {name}")
        store.append(events.BreakerChanged(breaker.state, "closed", breaker.condition, RESET))


def roll_back(runtime: Runtime, name: str, task_id: str, *, restore: bool) -> Rollback:
    """Return what a rollback to the files before a task takes back; with `restore`, do it.

    That task and those after it are to be done again. The files as they are now are saved as a
    snapshot first.
    """
    target = plan_target(runtime, service.find_session(runtime, name))
    if not target.is_trusted:
        raise consent_needed(target, "the session was not started here")
    with _open_store(runtime, name) as (directory, store):
        _require_known(store.state, task_id)
        task = store.state.task_state(task_id)
        if not task.snapshot:
            what = f"there is no snapshot of the files before task {task_id}"
            raise NotFound(what, hint="git status")
        began = task.started_at or 0.0
        # Tasks run one at a time, and one that is done again may have begun before this one.
        tasks = {name: at for name, at in store.state.tasks.items() if at.started_at is not None}
        later = tuple(name for name, at in tasks.items() if (at.ended_at or began) >= began)
        project = (directory / store.state.project).resolve()
        tree = WorkTreeWatch(directory, project, runtime.environ, runtime.clock.now_s)
        current = f"{task_id}-undone-{runtime.new_id()}"
        changes = tree.compare_snapshot(task.snapshot, current, restore=restore)
        for other in later if restore else ():
            why = f"the files before task {task_id} were restored"
            store.append(events.TaskReopened(other, why, is_restored=True))
        return Rollback(directory.name, task_id, task.snapshot, later, changes)


@contextmanager
def _open_store(runtime: Runtime, name: str) -> Iterator[tuple[Path, LoopStore]]:
    """Yield the session's store while no runner has it; write its output files afterwards."""
    directory = service.find_session(runtime, name)
    contained_in_project(runtime, directory)
    try:
        lease = Lease(directory / LEASE, service.runner_name(runtime), steal=False)
    except Conflict as error:
        hint = f"first: flightlog loop pause --session {name}"
        raise Conflict(error.message, hint=hint) from error
    try:
        redactor = make_redactor(runtime)
        plan = redact_plan(raw_plan(directory)[0], redactor)
        store = LoopStore(directory, plan, runtime, redactor, allowed=lease.check_owner)
        yield directory, store
        store.write_output_files()
        write_report(directory, redactor)
        store.close()
    finally:
        lease.release()


def _require_known(state: LoopState, task_id: str) -> None:
    if task_id not in state.names:
        known = list(state.names)
        hint = suggest_name(task_id, known, f"one of: {', '.join(known[:8])}")
        raise NotFound(f"no task is called {task_id[:60]!r}", hint=hint)
