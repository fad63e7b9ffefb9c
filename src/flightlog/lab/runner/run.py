"""Start a run, carry it out, and continue it after any end.

Sessions that depend on nothing run in parallel, each in its own copy of the work directory; the
others run one after the other. A session that ended is not run again unless asked; a session that
was in flight when its process died is recorded as interrupted first. Output files are written
after each wave.

A wave can also be submitted as jobs to machines that see the run's directory. A job names the run,
the session and the attempt: a job that is executed twice, as after the death of a worker, records
the interrupted attempt and tries once more, and does not repeat an attempt that ended.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog import __version__
from flightlog.agents.protocol import Driver
from flightlog.agents.sandbox import IsolationMode
from flightlog.lab import events
from flightlog.lab.config import RunConfig
from flightlog.lab.replay.branch import Branch, remove_placed_transcripts, restored_work_tree
from flightlog.lab.replay.restore import TREE, check_work_dir, private_work_tree
from flightlog.lab.runner import agent_setup
from flightlog.lab.runner.commands import run_commands
from flightlog.lab.runner.context import RunContext, RunEnvironment, RunWorkTree, SubmitJob
from flightlog.lab.runner.publish import publish_run, publish_session
from flightlog.lab.runner.session import (
    SessionStart,
    collect_output,
    kill_agent,
    last_tree,
    run_session,
    scripted_model,
)
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import (
    ATTEMPTS,
    LOCK,
    PlannedSession,
    RunStore,
    find_planned_session,
    ready_sessions,
)
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.runtime import Job
from flightlog.store.directories import remove_tree, set_aside
from flightlog.store.files import process_tag
from flightlog.store.locks import exclusive_lock

BASELINE = "baseline"
SESSION_JOB = "session"
# Later sessions would fail for the same reason, so they stay pending until the run is continued.
_FATAL_REASONS = frozenset({"auth_error", "rate_limited", "budget_exhausted", "interrupted"})
# Only after these may a later session continue the conversation.
_TRUSTED_REASONS = frozenset({"completed", "max_turns"})
_POLL_S = 0.2  # how long Ctrl-C may wait while sessions run in other threads


def start_run(
    path: Path, config: RunConfig, environment: RunEnvironment, text: str = ""
) -> RunStore:
    """Create a run and carry it out; `text` is the configuration as a person wrote it."""
    agent_setup.select_driver(config, environment)  # raises if the agent is missing
    environment.permit(config, path, "")
    # Before the run exists: a corrected configuration can have the same name.
    check_work_dir(path, Path(config.work_dir).resolve(), environment)
    return continue_run(environment.create_run(path, config, text), environment, again=False)


def add_replicates(
    run: RunStore, index: int, count: int, environment: RunEnvironment, budget_usd: float | None
) -> RunStore:
    """Run `count` more sessions that start where session `index` did, each in its own copy."""
    planned = find_planned_session(run, index, replicate=0)
    first = run.state.last_attempt(planned.session_dir)
    if first is None or first.end is None:
        hint = f"flightlog lab run --resume {run.name}"
        raise NotFound(f"{planned.session_dir} of {run.name} has not ended yet", hint=hint)
    if environment.isolation_mode is IsolationMode.NONE or not run.config.track_changes:
        raise Invalid(
            "the session cannot run again in its own copy of the files",
            hint="that needs mount namespaces, and a run with track_changes",
        )
    agent_setup.select_driver(run.config, environment)
    environment.permit(run.config, run.path, run.config_digest)
    run.append(events.ReplicatesAdded(index, count), durable=True)
    return _execute_run(run, environment, None, again=False, more_usd=budget_usd)


def continue_run(run: RunStore, environment: RunEnvironment, *, again: bool) -> RunStore:
    """Run what is left of a run or replay; `again` repeats interrupted and failed sessions."""
    return _execute_run(run, environment, Branch(run) if run.state.branch else None, again=again)


def _execute_run(
    run: RunStore,
    environment: RunEnvironment,
    branch: Branch | None,
    *,
    again: bool,
    more_usd: float | None = None,
) -> RunStore:
    """Carry out what is left of a run; `more_usd` replaces the run's own budget from here on."""
    environment.permit(run.config, run.path, run.config_digest)
    with ExitStack() as stack:
        stack.enter_context(exclusive_lock(run.path / LOCK, who=f"process {process_tag()}"))
        driver = agent_setup.select_driver(run.config, environment)
        if run.state.start is None:
            run.append(_run_started_event(run, environment, driver), durable=True)
        run.append(events.RunResumed(process_tag()), durable=True)
        try:
            working = restored_work_tree if branch else private_work_tree
            tree = stack.enter_context(working(run, environment))
            work_tree = RunWorkTree(run, environment, tree)
        except FlightlogError:
            run.append(events.RunEnded("refused", run.final_tree), durable=True)
            raise
        context = RunContext(run, work_tree, environment, driver, more_usd)
        for attempt in run.state.in_flight:
            _mark_interrupted(context, attempt)
        with scripted_model(run.config) as upstream:
            try:
                _prepare_baseline(context)
                _run_sessions(context, upstream, branch, again=again)
            except KeyboardInterrupt:
                context.stop_all("interrupted")
                raise
            finally:
                if branch:
                    remove_placed_transcripts(context)
                _finish_run(context)
    return run


def _run_started_event(
    run: RunStore, environment: RunEnvironment, driver: Driver
) -> events.RunStarted:
    permission = agent_setup.choose_permission(run.config, is_root=os.geteuid() == 0)
    note = ""
    if environment.isolation_mode is IsolationMode.NONE:
        note = "mount namespaces are not available: sessions run one after the other, in work_dir itself"
    elif not run.config.track_changes:
        note = "changes are not tracked: sessions run one after the other, each in the directory as it is then"
    version = driver.version(environment.environ)
    names = (run.name, __version__, driver.agent, version, permission.mode, permission.note)
    return events.RunStarted(*names, environment.isolation_mode.value, note)


def _prepare_baseline(context: RunContext) -> None:
    run = context.run
    if run.state.baseline is None:
        run_commands(context, "pre", run.config.pre_run_commands)
        context.work_tree.write_memory_file()
        snapshot = context.work_tree.ensure_baseline(BASELINE)
        if snapshot is None:
            run.append(events.BaselineSaved(""), durable=True)
            return
        notes = [f"{omitted.path}: {omitted.reason}" for omitted in snapshot.omitted_files]
        nested = snapshot.nested_repositories
        notes += [f"{path}: a nested repository, saved as plain files" for path in nested]
        run.append(events.BaselineSaved(snapshot.name, tuple(notes)), durable=True)


def _mark_interrupted(context: RunContext, attempt: SessionAttempt) -> None:
    """Record that a session was in flight when its process died, and collect what it left."""
    kill_agent(attempt)
    collect_output(context, attempt.session, attempt.session_id)
    trees = context.work_tree.main
    if attempt.has_private_tree:
        trees = context.work_tree.reopen_copy(attempt.session)
    suffix = f"_left_{context.run.state.takeover_count}"
    tree = context.run.state.found_tree  # what it left in place, before the directory was restored
    if not tree or attempt.has_private_tree:
        tree = last_tree(context, attempt.session, attempt.number, trees, suffix)
    error = "the process that ran it died"
    ended = events.RunSessionEnded(
        attempt.session, attempt.number, "interrupted", tree or attempt.tree, error=error
    )
    context.run.append(ended, durable=True)
    publish_session(context, attempt.session)


def _run_sessions(
    context: RunContext, upstream: str, branch: Branch | None, *, again: bool
) -> None:
    """Run wave after wave until nothing is ready."""
    planned = context.run.planned_sessions()
    left = {session.session_dir for session in planned if _is_left(context, session, again=again)}
    # Added sessions work in their own copies: the directory may hold a person's later work by now.
    context.is_apart = bool(left) and all(
        session.is_added for session in planned if session.session_dir in left
    )
    while left and not context.stop_reason:
        if context.budget.is_empty:
            context.stop_all("budget_exhausted")
            return
        done = [session.session_dir for session in planned if session.session_dir not in left]
        wave = ready_sessions(planned, done, left)
        assert wave, "a plan has no cycle"
        left -= {session.session_dir for session in wave}
        _run_wave(
            context, [session for session in wave if _may_start(context, session)], upstream, branch
        )


def _is_left(context: RunContext, planned: PlannedSession, *, again: bool) -> bool:
    last = context.run.state.last_attempt(planned.session_dir)
    return last is None or (again and last.stop_reason not in _TRUSTED_REASONS)


def _may_start(context: RunContext, planned: PlannedSession) -> bool:
    """Return whether a session can start; record the reason if it cannot."""
    parent = (
        context.run.state.last_attempt(planned.parent_session) if planned.parent_session else None
    )
    if planned.is_added and context.environment.isolation_mode is IsolationMode.NONE:
        why = "mount namespaces are not available"
    elif planned.parent_session and (parent is None or parent.stop_reason not in _TRUSTED_REASONS):
        why = f"{planned.parent_session}, which it continues: {parent.stop_reason if parent else 'did not run'}"
    else:
        return True
    context.run.append(events.RunSessionSkipped(planned.session_dir, why))
    return False


def _run_wave(
    context: RunContext, wave: Sequence[PlannedSession], upstream: str, branch: Branch | None
) -> None:
    config, environment = context.run.config, context.environment
    can_copy = environment.isolation_mode is not IsolationMode.NONE and config.track_changes
    in_parallel = len(wave) > 1 and can_copy and config.max_parallel > 1
    private = in_parallel or any(planned.is_added for planned in wave)

    def prepare(planned: PlannedSession) -> SessionStart:
        start = _prepare_start(context, planned, private=private)
        return branch.session_start(context, start) if branch else start

    def run_prepared(start: SessionStart) -> None:
        _stop_if_fatal(context, run_session(context, start, upstream))

    if private and environment.elsewhere is not None and branch is None:
        _submit_wave(context, wave, environment.elsewhere)
    elif private:
        parallel = min(config.max_parallel, len(wave))
        with ThreadPoolExecutor(parallel, thread_name_prefix="session") as pool:
            # Copying is safe while others run: no session works in the original directory.
            _await_all(context, [pool.submit(run_prepared, prepare(planned)) for planned in wave])
        _remove_copies(context, wave)
    else:
        for planned in wave:
            if not context.stop_reason:
                run_prepared(prepare(planned))
                publish_session(context, planned.session_dir)
    publish_run(context)


def _submit_wave(context: RunContext, wave: Sequence[PlannedSession], submit: SubmitJob) -> None:
    """Have other processes run the sessions; they write into the run's directory."""
    futures = [submit(job) for job in _session_jobs(context, wave)]
    try:
        _await_all(context, futures)
    finally:
        spent = context.budget.spent_usd
        context.run.reload()
        context.budget.charge(context.run.state.spent_usd - spent, is_one_call=False)
    for future in futures:
        _stop_if_fatal(context, future.result().decode())
    _remove_copies(context, wave)


def _remove_copies(context: RunContext, wave: Sequence[PlannedSession]) -> None:
    for planned in wave:
        publish_session(context, planned.session_dir)
        remove_tree(context.work_tree.copy_of(planned.session_dir))


def _await_all(context: RunContext, futures: "Sequence[Future[Any]]") -> None:
    """Wait for all sessions; Ctrl-C stops them first and waits for their end."""
    try:
        while wait(futures, timeout=_POLL_S).not_done:
            pass
    except KeyboardInterrupt:
        context.stop_all("interrupted")
        wait(futures)
        raise
    for future in futures:
        future.result()


def _stop_if_fatal(context: RunContext, reason: str) -> None:
    is_own_limit = reason == "budget_exhausted" and not context.budget.is_empty  # the session's
    if reason in _FATAL_REASONS and not is_own_limit:
        context.stop_all(reason)


def _prepare_start(context: RunContext, planned: PlannedSession, *, private: bool) -> SessionStart:
    """Restore the files of a session and set an earlier attempt aside; return its start."""
    run, state = context.run, context.run.state
    earlier = state.attempts.get(planned.session_dir, [])
    attempt = len(earlier) + 1
    folder = run.path / planned.session_dir
    if earlier and folder.exists():
        set_aside(folder, run.path / ATTEMPTS / f"{planned.session_dir}_a{attempt - 1}")
    previous = state.last_attempt(planned.tree_session) if planned.tree_session else None
    tree = state.baseline.tree if state.baseline else ""
    tree = previous.end.tree if previous and previous.end else tree
    parent = state.last_attempt(planned.parent_session) if planned.parent_session else None
    trees = context.work_tree.main
    if private:
        trees = context.work_tree.copy_for_session(planned.session_dir, tree)
    if not private:
        name = f"_before_{planned.session_dir.removeprefix('session_')}_{attempt}_{state.takeover_count}"
        context.work_tree.restore_tree(tree, name)
    return SessionStart(planned, attempt, tree, trees, private, parent)


def _finish_run(context: RunContext) -> None:
    """Restore the final files, run the last commands, record the end, write output files."""
    run, state = context.run, context.run.state
    tree = run.final_tree
    if not context.is_apart:
        context.work_tree.restore_tree(tree, f"_before_end_{state.takeover_count}")
        run.append(events.WorkTreeRestored(tree))
    try:
        if not context.is_apart:
            run_commands(context, "post", run.config.post_run_commands)
    finally:
        attempts = [state.last_attempt(session.session_dir) for session in run.planned_sessions()]
        ended = [attempt.stop_reason for attempt in attempts if attempt and attempt.end]
        failed = next((reason for reason in ended if reason != "completed"), "")
        whole = len(ended) == len(attempts)
        reason = context.stop_reason or ((failed or "completed") if whole else "incomplete")
        run.append(events.RunEnded(reason, tree), durable=True)
        publish_run(context)
        remove_tree(run.scratch_dir)


class SessionJob(Struct, frozen=True):
    """Payload of a job: one attempt at one session, and its share of the budget."""

    run: str
    session: str
    attempt: int
    budget_usd: float | None = None


def _session_jobs(context: RunContext, wave: Sequence[PlannedSession]) -> Iterator[Job]:
    left = context.budget.remaining_usd
    share = None if left is None else left / len(wave)
    for planned in wave:
        attempt = len(context.run.state.attempts.get(planned.session_dir, [])) + 1
        payload = msgspec.json.encode(
            SessionJob(str(context.run.path), planned.session_dir, attempt, share)
        )
        key = f"flightlog-{SESSION_JOB}-{context.environment.runtime.new_id()}-{planned.session_dir}-{attempt}"
        yield Job(key, SESSION_JOB, payload)


def execute_session_job(payload: bytes, environment: RunEnvironment) -> bytes:
    """Run the session of a job and return why it stopped."""
    job = msgspec.json.decode(payload, type=SessionJob)
    path = Path(job.run)
    if not path.is_dir():
        hint = "keep runs where all machines see them, at the same path"
        raise NotFound(f"this machine does not see the run: {path}", hint=hint)
    run = RunStore(path, now=environment.runtime.clock.timestamp, new_id=environment.runtime.new_id)
    with exclusive_lock(run.scratch_dir / f"{job.session}.lock", who=f"process {process_tag()}"):
        run.reload()
        last = run.state.last_attempt(job.session)
        if last is not None and last.end is not None and last.number >= job.attempt:
            return last.stop_reason.encode()
        driver = agent_setup.select_driver(run.config, environment)
        copy = run.scratch_dir / TREE
        work_tree = RunWorkTree(run, environment, copy if copy.is_dir() else None)
        context = RunContext(run, work_tree, environment, driver, job.budget_usd)
        if last is not None and last.end is None:
            _mark_interrupted(context, last)
        planned = next(plan for plan in run.planned_sessions() if plan.session_dir == job.session)
        with scripted_model(run.config) as upstream:
            return run_session(
                context, _prepare_start(context, planned, private=True), upstream
            ).encode()
