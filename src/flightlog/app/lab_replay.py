"""Wiring of replay: which branches are made, how they are named, and several of them at once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from flightlog.app import lab
from flightlog.app.lab_collect import as_run
from flightlog.lab.book import Book
from flightlog.lab.replaying.branch import Asked, carry_on, prepare
from flightlog.lab.replaying.source import Source
from flightlog.lab.running.stage import RunEnvironment, Tell
from flightlog.model.errors import NotFound
from flightlog.model.jobs import Job
from flightlog.model.runtime import JobExecutors, Runtime


def source(runtime: Runtime, runs_dir: Path, run: str, session: int, replicate: int) -> Source:
    """Open the session of a run to go back into, or any recorded session whose files were saved."""
    try:
        book = lab.open_book(runtime, runs_dir, run)
    except NotFound as no_run:
        try:
            book = as_run(runtime, run, runs_dir)
        except NotFound:
            raise no_run from None
    return Source(book, session, replicate, runtime.program_path)


def replayed(runtime: Runtime, found: Source, turn: int, asked: Asked, tell: Tell) -> list[Book]:
    """Make the branches and carry them out, several at once in rooms of their own, here or elsewhere."""
    point = found.from_the_start(turn) if asked.cursor else found.point(turn)
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S%fZ")
    setting = lab.prepare_run(runtime, tell)
    paths = [
        found.book.path.with_name(
            f"replay_{found.book.name}_s{point.session.index:02d}_t{turn:02d}_r{number:02d}_{stamp}"
        )
        for number in range(1, asked.count + 1)
    ]
    # All are on record before the first one runs: one that never began can be taken up too.
    books = [prepare(found.book, point, asked, (path, number), setting) for number, path in enumerate(paths, 1)]
    if runtime.jobs is not None and not runtime.jobs.is_local:
        return _elsewhere(runtime, books, runtime.jobs)
    if len(books) == 1:
        return [carry_on(books[0], setting, again=False)]
    with ThreadPoolExecutor(min(found.book.config.max_parallel, len(books)), thread_name_prefix="branch") as pool:
        try:
            return list(pool.map(lambda book: _one(book, setting), books))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _elsewhere(runtime: Runtime, books: list[Book], executors: JobExecutors) -> list[Book]:
    """Branches as jobs: each machine sees the runs directory, and a branch is known by its own."""
    with executors.open_in_thread(lab.JOBS_AT_ONCE) as submit:
        jobs = [Job(f"flightlog-replay-{book.name}", "replay", str(book.path).encode()) for book in books]
        for future in [submit(job) for job in jobs]:
            future.result()
    return [lab.open_book(runtime, book.path.parent, str(book.path)) for book in books]


def _one(book: Book, setting: RunEnvironment) -> Book:
    return carry_on(book, setting, again=False)
