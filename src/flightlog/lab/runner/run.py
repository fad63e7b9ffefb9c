"""A whole run: begun, carried out, taken up again after any end.

Sessions that wait for nothing run together, each in a room of its own, the others one after the
other. What is on record as ended is never run again by itself; what was in flight when the process
died is marked, and run again only when asked. The pages are written after each wave.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from flightlog import __version__
from flightlog.agents.capture.proxy import Rewrite
from flightlog.agents.process import end_process_tree
from flightlog.agents.protocol import Driver
from flightlog.agents.sandbox import IsolationMode
from flightlog.agents.scripted.server import serve_scenario
from flightlog.lab.config import RunConfig
from flightlog.lab.events import (
    BaselineSaved,
    ReplicatesAdded,
    RunEnded,
    RunResumed,
    RunSessionEnded,
    RunSessionSkipped,
    RunStarted,
    WorkTreeRestored,
)
from flightlog.lab.runner import agent_setup
from flightlog.lab.runner.commands import run_commands
from flightlog.lab.runner.context import Elsewhere, RunContext, RunEnvironment, RunWorkTree
from flightlog.lab.runner.publish import publish_run, publish_session
from flightlog.lab.runner.session import ResumePoint, SessionStart, collect_output, last_tree, run_session
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import ATTEMPTS, LOCK, PlannedSession, RunStore, create_run, final_session, ready_sessions
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.directories import remove_tree, set_aside
from flightlog.store.files import is_running, process_tag
from flightlog.store.locks import exclusive_lock

BASELINE = "baseline"
# The sessions that follow would fail the same way; they stay pending, for another day.
_STOPS_ALL = frozenset({"auth_error", "rate_limited", "budget_exhausted", "interrupted"})
_TRUSTED = frozenset({"completed", "max_turns"})
_LOOK_S = 0.2


class Branching(Protocol):
    """What a replay adds to a run: its own tree, and the way into its first session."""

    def restored_work_tree(self, book: RunStore, setting: RunEnvironment) -> AbstractContextManager[Path]:
        """Lay the files out and say where, for as long as the run is at work."""

    def resume_point(self, stage: RunContext, attempt: int) -> ResumePoint:
        """Bring the agent to the branch point."""

    def rewriter_for_followers(self, stage: RunContext) -> Rewrite:
        """What is made of the requests of sessions that go on from it."""

    def remove_placed_transcripts(self, stage: RunContext) -> None:
        """Take back what was put into the agent's own store."""


def start_run(path: Path, config: RunConfig, setting: RunEnvironment) -> RunStore:
    """Make a run and carry it out."""
    agent_setup.select_driver(config, setting)  # an agent that cannot be found is said before anything is made
    setting.permit(config, path, "")
    book = create_run(
        path, config, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id, remember=setting.remember
    )
    return continue_run(book, setting, again=False)


def add_replicates(
    book: RunStore, index: int, count: int, setting: RunEnvironment, budget_usd: float | None
) -> RunStore:
    """Run `count` more sessions that start where session `index` did; what the run left stays as it is."""
    ran = [each for each in book.planned_sessions() if each.index == index and not each.added]
    if not ran:
        raise NotFound(f"{book.name} has no session {index}", hint=f"it has sessions 1 to {len(book.config.sessions)}")
    first = book.state.last_attempt(ran[0].name)
    if first is None or first.ended is None:
        raise NotFound(
            f"{ran[0].name} of {book.name} did not come to an end yet", hint=f"flightlog lab run --resume {book.name}"
        )
    if setting.means is IsolationMode.NONE or not book.config.track_changes:
        raise Invalid(
            "the session cannot be run again in files of its own here",
            hint="that needs mount namespaces, and a run with track_changes",
        )
    agent_setup.select_driver(book.config, setting)
    setting.permit(book.config, book.path, book.config_digest)
    book.append(ReplicatesAdded(index, count), durable=True)
    return continue_run(book, setting, again=False, more_usd=budget_usd)


def continue_run(
    book: RunStore,
    setting: RunEnvironment,
    *,
    again: bool,
    branching: Branching | None = None,
    more_usd: float | None = None,
) -> RunStore:
    """Carry a run out from where it stands; `again` runs what was interrupted or failed once more.

    `more_usd` is what may be spent from here on, in place of the run's own budget.
    """
    setting.permit(book.config, book.path, book.config_digest)
    with ExitStack() as held:
        held.enter_context(exclusive_lock(book.path / LOCK, who=f"process {process_tag()}"))
        config = book.config
        driver = agent_setup.select_driver(config, setting)
        if book.state.started is None:
            book.append(_run_started_event(book, setting, driver), durable=True)
        book.append(RunResumed(process_tag()), durable=True)
        tree = held.enter_context(branching.restored_work_tree(book, setting)) if branching else None
        ground = RunWorkTree(
            book, Path(config.work_dir), (setting.home, setting.runtime.program_path), setting.runtime.clock.now_s, tree
        )
        stage = RunContext(book, ground, setting, driver, more_usd)
        for attempt in book.state.in_flight:
            mark_interrupted(stage, attempt)
        with scripted_model(config) as upstream:
            try:
                _prepare_baseline(stage)
                _run_sessions(stage, upstream, again=again, branching=branching)
            except KeyboardInterrupt:
                stage.stop_all("interrupted")
                raise
            finally:
                if branching:
                    branching.remove_placed_transcripts(stage)
                _finish_run(stage)
    return book


def _run_started_event(book: RunStore, setting: RunEnvironment, driver: Driver) -> RunStarted:
    config = book.config
    permission = agent_setup.choose_permission(config, is_root=os.geteuid() == 0)
    note = ""
    if setting.means is IsolationMode.NONE:
        note = "no mount namespace is to be had here: sessions run one after the other"
    elif not config.track_changes:
        note = "changes are not tracked: sessions run one after the other, in the directory as they find it"
    version = driver.version(setting.environ)
    names = (book.name, __version__, driver.agent, version, permission.mode, permission.note)
    return RunStarted(*names, setting.means.value, note)


def _prepare_baseline(stage: RunContext) -> None:
    book = stage.book
    if book.state.baseline is None:
        run_commands(stage, "pre", book.config.pre_run_commands)
        stage.ground.write_memory_file()
        saved = stage.ground.ensure_baseline(BASELINE)
        notes = [f"{each.path}: {each.why}" for each in saved.left_out] if saved else []
        notes += [f"{each}: a repository inside, taken as plain files" for each in saved.nested] if saved else []
        book.append(BaselineSaved(saved.name if saved else "", tuple(notes)), durable=True)


def mark_interrupted(stage: RunContext, attempt: SessionAttempt) -> None:
    """Put on record that a session was in flight when its process died, with everything it left."""
    if attempt.process and is_running(attempt.process):
        end_process_tree(int(attempt.process.partition("-")[0]))
    collect_output(stage, attempt.session, attempt.session_id)
    trees = stage.ground.reopen_copy(attempt.session) if attempt.private else stage.ground.main
    late = f"_left_{stage.book.state.taken}"
    tree = last_tree(stage, attempt.session, attempt.number, trees, late) or attempt.tree
    why = "the process that ran it died"
    stage.book.append(RunSessionEnded(attempt.session, attempt.number, "interrupted", tree, error=why), durable=True)
    publish_session(stage, attempt.session)


def _run_sessions(stage: RunContext, upstream: str, *, again: bool, branching: Branching | None) -> None:
    """Run wave after wave until nothing is ready."""
    planned = stage.book.planned_sessions()
    left = {each.name for each in planned if _is_left(stage, each, again=again)}
    # Sessions that were added later work in files of their own: the directory is no longer the run's.
    stage.is_apart = bool(left) and all(each.added for each in planned if each.name in left)
    while left and not stage.stop_reason:
        if stage.purse.is_empty:
            stage.stop_all("budget_exhausted")
            return
        wave = ready_sessions(planned, [each.name for each in planned if each.name not in left], left)
        assert wave, "a plan has no circle"
        left -= {each.name for each in wave}
        _run_wave(stage, [each for each in wave if _may_start(stage, each)], upstream, branching)


def _is_left(stage: RunContext, planned: PlannedSession, *, again: bool) -> bool:
    last = stage.book.state.last_attempt(planned.name)
    if last is None:
        return True
    return again and last.stop_reason not in _TRUSTED


def _may_start(stage: RunContext, planned: PlannedSession) -> bool:
    """A conversation is gone on from only where it came to an end of its own."""
    if planned.added and stage.setting.means is IsolationMode.NONE:
        stage.book.append(RunSessionSkipped(planned.name, "no mount namespace is to be had here"))
        return False
    if not planned.parent:
        return True
    parent = stage.book.state.last_attempt(planned.parent)
    if parent is not None and parent.stop_reason in _TRUSTED:
        return True
    why = f"{planned.parent}, which it goes on from, {parent.stop_reason if parent else 'did not run'}"
    stage.book.append(RunSessionSkipped(planned.name, why))
    return False


def _run_wave(stage: RunContext, wave: Sequence[PlannedSession], upstream: str, branching: Branching | None) -> None:
    config, means = stage.book.config, stage.setting.means
    may = means is not IsolationMode.NONE and config.track_changes
    together = (len(wave) > 1 and may and config.max_parallel > 1) or any(each.added for each in wave)
    if not together:
        for planned in wave:
            if not stage.stop_reason:
                start = _apply_branch(stage, prepare_start(stage, planned, private=False), branching)
                _stop_if_fatal(stage, run_session(stage, start, upstream))
                publish_session(stage, planned.name)
        publish_run(stage)
        return

    def played(start: SessionStart) -> str:
        return _stop_if_fatal(stage, run_session(stage, start, upstream))

    if stage.setting.elsewhere is not None and branching is None:
        _submit_wave(stage, wave, stage.setting.elsewhere)
        return
    with ThreadPoolExecutor(min(config.max_parallel, len(wave)), thread_name_prefix="session") as pool:
        # Copies are made of a directory nobody works in: those at work are in copies of their own.
        _await_all(
            stage,
            [
                pool.submit(played, _apply_branch(stage, prepare_start(stage, each, private=True), branching))
                for each in wave
            ],
        )
    _publish_wave(stage, wave)


def _submit_wave(stage: RunContext, wave: Sequence[PlannedSession], submit: Elsewhere) -> None:
    """Have the sessions carried out by other processes, which write into the run's directory."""
    from flightlog.lab.runner.session_job import jobs_of  # noqa: PLC0415 - it carries out what is defined here

    futures = [submit(job) for job in jobs_of(stage, wave)]
    try:
        _await_all(stage, futures)
    finally:
        spent = stage.purse.spent_usd
        stage.book.reload()
        stage.purse.charge(stage.book.state.spent_usd - spent)
    for future in futures:
        _stop_if_fatal(stage, future.result().decode())
    _publish_wave(stage, wave)


def _publish_wave(stage: RunContext, wave: Sequence[PlannedSession]) -> None:
    """Lay out what the sessions of a wave left."""
    for planned in wave:
        publish_session(stage, planned.name)
        remove_tree(stage.ground.copy_of(planned.name))
    publish_run(stage)


def _await_all(stage: RunContext, futures: "Sequence[Future[Any]]") -> None:
    """Wait for all; whoever interrupts stops all first."""
    try:
        while wait(futures, timeout=_LOOK_S).not_done:
            pass
    except KeyboardInterrupt:
        stage.stop_all("interrupted")
        wait(futures)
        raise
    for future in futures:
        future.result()


def _stop_if_fatal(stage: RunContext, reason: str) -> str:
    own = reason == "budget_exhausted" and not stage.purse.is_empty  # a session's own limit, not the run's
    if reason in _STOPS_ALL and not own:
        stage.stop_all(reason)
    return reason


def prepare_start(stage: RunContext, planned: PlannedSession, *, private: bool) -> SessionStart:
    """Where a session begins: its files laid out, what an earlier attempt left set aside."""
    state = stage.book.state
    before = state.attempts.get(planned.name, [])
    attempt = len(before) + 1
    folder = stage.book.path / planned.name
    if before and folder.exists():
        set_aside(folder, stage.book.path / ATTEMPTS / f"{planned.name}_a{attempt - 1}")
    of = state.last_attempt(planned.tree_of) if planned.tree_of else None
    tree = of.ended.tree if of and of.ended else (state.baseline.tree if state.baseline else "")
    parent = state.last_attempt(planned.parent) if planned.parent else None
    if private:
        return SessionStart(planned, attempt, tree, stage.ground.copy_for_session(planned.name, tree), private, parent)
    stage.ground.restore_tree(tree, f"_before_{planned.name.removeprefix('session_')}_{attempt}_{state.taken}")
    return SessionStart(planned, attempt, tree, stage.ground.main, private, parent)


def _apply_branch(stage: RunContext, start: SessionStart, branching: Branching | None) -> SessionStart:
    """In a replay: the way into the first session, and the recorded context in those that go on from it."""
    if branching is None:
        return start
    if start.planned.index == 1:
        return replace(start, way=branching.resume_point(stage, start.attempt))
    return replace(start, rewrite=branching.rewriter_for_followers(stage) if start.parent is not None else None)


def _finish_run(stage: RunContext) -> None:
    """Leave the work directory as the run left it, or as it was; say that the run is over; lay out the pages."""
    book = stage.book
    state = book.state
    done = [each for each in book.planned_sessions() if (last := state.last_attempt(each.name)) and last.ended]
    last = state.last_attempt(final_session(done).name) if done else None
    tree = last.ended.tree if last and last.ended else (state.baseline.tree if state.baseline else "")
    settled = state.baseline.tree if book.config.revert_work_dir and state.baseline else tree
    if not stage.is_apart:
        stage.ground.restore_tree(settled, f"_before_end_{state.taken}")
        book.append(WorkTreeRestored(settled))
    try:
        if not stage.is_apart:
            run_commands(stage, "post", book.config.post_run_commands)
    finally:
        whole = all((one := state.last_attempt(each.name)) and one.ended for each in book.planned_sessions())
        reason = stage.stop_reason or ("completed" if whole else "incomplete")
        book.append(RunEnded(reason, tree), durable=True)
        publish_run(stage)
        remove_tree(book.scratch_dir)


@contextmanager
def scripted_model(config: RunConfig) -> Iterator[str]:
    """The scripted model where the configuration has one; its address is the upstream."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(serve_scenario(config.scenario, keep=False)).url if config.scenario is not None else ""
        )
