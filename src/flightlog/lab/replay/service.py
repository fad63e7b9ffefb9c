"""Wiring of replay: which branches are made, how they are named, and several of them at once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from flightlog.lab import service
from flightlog.lab.collect import make_run_from_session
from flightlog.lab.replay.branch import ReplayOptions, continue_any_run, prepare_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.runner.context import RunEnvironment, Tell
from flightlog.lab.store import RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Job, JobExecutors, Runtime


def open_replay_source(runtime: Runtime, runs_dir: Path, run: str, session: int, replicate: int) -> ReplaySource:
    """Open the session of a run to go back into, or any recorded session whose files were saved."""
    try:
        book = service.open_run(runtime, runs_dir, run)
    except NotFound as no_run:
        try:
            book = make_run_from_session(runtime, run, runs_dir)
        except NotFound:
            raise no_run from None
    return ReplaySource(book, session, replicate, runtime.program_path)


def replay_session(
    runtime: Runtime, found: ReplaySource, turn: int, asked: ReplayOptions, tell: Tell
) -> list[RunStore]:
    """Make the branches and carry them out, several at once in rooms of their own, here or elsewhere."""
    point = found.build_cursor_point(turn) if asked.cursor else found.build_branch_point(turn)
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S%fZ")
    setting = service.prepare_run(runtime, tell)
    paths = [
        found.book.path.with_name(
            f"replay_{found.book.name}_s{point.session.index:02d}_t{turn:02d}_r{number:02d}_{stamp}"
        )
        for number in range(1, asked.count + 1)
    ]
    # All are on record before the first one runs: one that never began can be taken up too.
    books = [prepare_branch(found.book, point, asked, (path, number), setting) for number, path in enumerate(paths, 1)]
    if runtime.jobs is not None and not runtime.jobs.is_local:
        return _run_branches_remotely(runtime, books, runtime.jobs)
    if len(books) == 1:
        return [continue_any_run(books[0], setting, again=False)]
    with ThreadPoolExecutor(min(found.book.config.max_parallel, len(books)), thread_name_prefix="branch") as pool:
        try:
            return list(pool.map(lambda book: _run_branch(book, setting), books))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_branches_remotely(runtime: Runtime, books: list[RunStore], executors: JobExecutors) -> list[RunStore]:
    """Branches as jobs: each machine sees the runs directory, and a branch is known by its own."""
    with executors.open_in_thread(service.JOBS_AT_ONCE) as submit:
        jobs = [Job(f"flightlog-replay-{book.name}", "replay", str(book.path).encode()) for book in books]
        for future in [submit(job) for job in jobs]:
            future.result()
    return [service.open_run(runtime, book.path.parent, str(book.path)) for book in books]


def _run_branch(book: RunStore, setting: RunEnvironment) -> RunStore:
    return continue_any_run(book, setting, again=False)
