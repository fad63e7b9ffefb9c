"""Kinds of jobs by name: functions of bytes that a worker process imports.

Each reads the environment of its machine, including the API key; a job carries none. The worker's
thread sends requests; every other job runs in its own process (`__main__`).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from flightlog.agents.sandbox import parent_death_prefix
from flightlog.model.errors import Invalid, Unavailable

Work = Callable[[bytes], bytes]
SAMPLE = "sample"


def carry_out(work: str, payload: bytes, shared: bytes) -> bytes:
    """Run a job on a worker and return its result."""
    if work == SAMPLE:
        from flightlog.lab.resample.send import run_send_job  # noqa: PLC0415 - a worker imports what it does

        return run_send_job(payload, shared, os.environ)
    if work not in ALONE:
        raise Invalid(
            f"this worker does not know the job kind {work[:40]!r}",
            hint="install the same flightlog on every worker: pip install 'flightlog[scale]'",
        )
    # The prefix ends the process with the thread that waits for it, and so with the worker.
    words = [*parent_death_prefix(os.environ.get("PATH", os.defpath)), sys.executable, "-m", "flightlog.app.jobs", work]
    done = subprocess.run(words, input=payload + shared, capture_output=True, check=False)
    if done.returncode:
        message, _, hint = done.stderr.decode("utf-8", "replace")[-2000:].partition("\t")
        problem = message or f"a job failed with exit code {done.returncode}"
        raise Unavailable(problem, hint=hint or "run the command again")
    return done.stdout


def run_session_job(payload: bytes) -> bytes:
    """Run one session of a run, in the run's directory."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab import service  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab.runner.run import execute_session_job  # noqa: PLC0415 - as above

    runtime = open_runtime()
    # The process that sent the job has checked consent, here and below.
    return execute_session_job(payload, service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None))


def run_replay_job(payload: bytes) -> bytes:
    """Continue one branch; retry it if it was in flight when its worker died."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab import service  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab.runner.run import continue_run  # noqa: PLC0415 - as above

    runtime = open_runtime()
    path = Path(payload.decode())
    run = service.open_run(runtime, path.parent, str(path))
    if run.state.ended is None:
        context = service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None)
        continue_run(run, context, again=bool(run.state.in_flight))
    return b""


def run_archive_job(payload: bytes) -> bytes:
    """Export a chunk of the archive's sessions."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.archive.bulk_export import run_archive_chunk  # noqa: PLC0415 - as above

    return run_archive_chunk(open_runtime(), payload)


ALONE: dict[str, Work] = {"session": run_session_job, "replay": run_replay_job, "archive": run_archive_job}
