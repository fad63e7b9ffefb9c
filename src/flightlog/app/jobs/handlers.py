"""What jobs can be, by name: functions of bytes that a worker process finds by importing this package.

Each reads the environment of the machine it runs on, the key among it; a job carries none. Sending a
request is done by the worker's own thread; everything else in a process of its own (`__main__`).
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
    """Carry a job out, on a worker."""
    if work == SAMPLE:
        from flightlog.lab.resample.send import run_send_job  # noqa: PLC0415 - a worker imports what it does

        return run_send_job(payload, shared, os.environ)
    if work not in ALONE:
        raise Invalid(
            f"this worker knows no work named {work[:40]!r}",
            hint="install the same flightlog on every worker: pip install 'flightlog[scale]'",
        )
    # It dies with the thread that waits for it, and so with the worker.
    words = [*parent_death_prefix(os.environ.get("PATH", os.defpath)), sys.executable, "-m", "flightlog.app.jobs", work]
    done = subprocess.run(words, input=payload + shared, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")[-2000:]
        message, _, hint = said.partition("\t")
        raise Unavailable(message or f"a job ended with {done.returncode}", hint=hint or "run the command again")
    return done.stdout


def run_session_job(payload: bytes) -> bytes:
    """Carry one session of a run out, in the run's directory."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab import service  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab.runner.run import execute_session_job  # noqa: PLC0415 - as above

    runtime = open_runtime()
    # The process that sent the job has asked for consent, here and below.
    return execute_session_job(payload, service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None))


def run_replay_job(payload: bytes) -> bytes:
    """Carry one branch out; one that was in flight when its worker died is tried once more."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab import service  # noqa: PLC0415 - a worker imports what it does
    from flightlog.lab.runner.run import continue_run  # noqa: PLC0415 - as above

    runtime = open_runtime()
    path = Path(payload.decode())
    book = service.open_run(runtime, path.parent, str(path))
    if book.state.ended is None:
        here = service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None)
        continue_run(book, here, again=bool(book.state.in_flight))
    return b""


def run_archive_job(payload: bytes) -> bytes:
    """Make something of a few sessions of the archive."""
    from flightlog.app.runtime import open_runtime  # noqa: PLC0415 - a worker imports what it does
    from flightlog.archive.bulk_export import run_archive_chunk  # noqa: PLC0415 - as above

    return run_archive_chunk(open_runtime(), payload)


ALONE: dict[str, Work] = {"session": run_session_job, "replay": run_replay_job, "archive": run_archive_job}
