"""Replays as the command line and the pages start them: name the branches and run them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from flightlog.lab import service
from flightlog.lab.collect import make_run_from_session
from flightlog.lab.replay.branch import ReplayOptions, prepare_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.runner.context import RunEnvironment, Tell
from flightlog.lab.runner.run import continue_run, execute_session_job
from flightlog.lab.store import RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Job, JobExecutors, Runtime


def open_replay_source(
    runtime: Runtime, runs_dir: Path, name: str, session: int, replicate: int
) -> ReplaySource:
    """Open a session of a run for replay, or any recorded session whose files were saved."""
    try:
        run = service.open_run(runtime, runs_dir, name)
    except NotFound as no_run:
        try:
            run = make_run_from_session(runtime, name, runs_dir)
        except NotFound:
            raise no_run from None
    return ReplaySource(run, session, replicate, runtime.program_path)


def replay_session(
    runtime: Runtime, source: ReplaySource, turn: int, options: ReplayOptions, tell: Tell
) -> list[RunStore]:
    """Create the branches of a replay and run them in parallel, here or as jobs elsewhere."""
    build = source.build_cursor_point if options.uses_cursor else source.build_branch_point
    point = build(turn)
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S%fZ")
    environment = service.prepare_run(runtime, tell)
    base = f"replay_{source.run.name}_s{point.session.session_index:02d}_t{turn:02d}"
    # All branches are on record before the first one runs, so each can be continued.
    runs = []
    for number in range(1, options.count + 1):
        path = source.run.path.with_name(f"{base}_r{number:02d}_{stamp}")
        runs.append(prepare_branch(source.run, point, options, (path, number), environment))
    if runtime.jobs is not None and not runtime.jobs.is_local:
        return _run_branches_remotely(runtime, runs, runtime.jobs)
    if len(runs) == 1:
        return [continue_run(runs[0], environment, again=False)]
    parallel = min(source.run.config.max_parallel, len(runs))
    with ThreadPoolExecutor(parallel, thread_name_prefix="branch") as pool:
        try:
            return list(pool.map(lambda run: continue_run(run, environment, again=False), runs))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_branches_remotely(
    runtime: Runtime, runs: list[RunStore], executors: JobExecutors
) -> list[RunStore]:
    """Run branches as jobs; each machine sees the runs directory and finds a branch by its path."""
    with executors.open_in_thread(service.JOBS_AT_ONCE) as submit:
        jobs = [
            Job(f"flightlog-replay-{run.name}", "replay", str(run.path).encode()) for run in runs
        ]
        for future in [submit(job) for job in jobs]:
            future.result()
    return [service.open_run(runtime, run.path.parent, str(run.path)) for run in runs]


def run_sent_session(runtime: Runtime, payload: bytes) -> bytes:
    """Run the session that another process sent, after it checked consent."""
    return execute_session_job(payload, _prepare_sent_run(runtime))


def continue_sent_branch(runtime: Runtime, path: Path) -> None:
    """Continue the branch that another process sent, unless it has ended."""
    run = service.open_run(runtime, path.parent, str(path))
    if run.state.end is None:
        continue_run(run, _prepare_sent_run(runtime), again=bool(run.state.in_flight))


def _prepare_sent_run(runtime: Runtime) -> RunEnvironment:
    return service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None)
