"""Sessions and branches carried out by another process, on any machine that sees the run's directory.

A job names the run, what of it, and which attempt is meant: carried out twice, as when a worker dies,
it marks what was in flight and tries once more, and what has come to an end is not run again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.lab.runner import agent_setup, run
from flightlog.lab.runner.context import RunContext, RunEnvironment, RunWorkTree
from flightlog.lab.runner.session import run_session
from flightlog.lab.store import PlannedSession, RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Job
from flightlog.store.files import process_tag
from flightlog.store.locks import exclusive_lock

SESSION = "session"


class SessionJob(Struct, frozen=True):
    """One session of a run, and its attempt."""

    run: str
    session: str
    attempt: int
    budget_usd: float | None = None


def jobs_of(stage: RunContext, wave: Sequence[PlannedSession]) -> list[Job]:
    """The sessions of a wave as jobs; what is left of the budget is shared out among them."""
    left = stage.purse.remaining_usd
    share = None if left is None else left / len(wave)
    jobs = []
    for each in wave:
        attempt = len(stage.book.state.attempts.get(each.name, [])) + 1
        asked = SessionJob(str(stage.book.path), each.name, attempt, share)
        key = f"flightlog-{SESSION}-{stage.setting.runtime.new_id()}-{each.name}-{attempt}"
        jobs.append(Job(key, SESSION, msgspec.json.encode(asked)))
    return jobs


def execute_session_job(payload: bytes, setting: RunEnvironment) -> bytes:
    """Carry one session out and return why it stopped."""
    asked = msgspec.json.decode(payload, type=SessionJob)
    path = Path(asked.run)
    if not path.is_dir():
        raise NotFound(
            f"this machine does not see the run: {path}", hint="keep runs where all machines see them, at the same path"
        )
    book = RunStore(path, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
    with exclusive_lock(book.scratch_dir / f"{asked.session}.lock", who=f"process {process_tag()}"):
        book.reload()
        last = book.state.last_attempt(asked.session)
        if last is not None and last.ended is not None and last.number >= asked.attempt:
            return last.stop_reason.encode()
        ground = RunWorkTree(
            book, Path(book.config.work_dir), (setting.home, setting.runtime.program_path), setting.runtime.clock.now_s
        )
        stage = RunContext(book, ground, setting, agent_setup.select_driver(book.config, setting), asked.budget_usd)
        if last is not None and last.ended is None:
            run.mark_interrupted(stage, last)
        planned = next(each for each in book.planned_sessions() if each.name == asked.session)
        with run.scripted_model(book.config) as upstream:
            return run_session(stage, run.prepare_start(stage, planned, private=True), upstream).encode()
