"""Runtime, Clock, ConfigValue, Job, JobExecutor: what the composition root hands down.

Nothing is read here. `app.open_runtime` builds the real runtime, tests build their own.

A job is the name of a work function, a key and bytes; its result is bytes. Jobs with the same
key have the same result, so a job may run again after a worker died. `app.jobs` has the executors.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from concurrent.futures import Future


class Job(Struct, frozen=True):
    """One job. `shared` are bytes that many jobs have in common; they are sent once."""

    key: str
    work: str
    payload: bytes
    shared: bytes = b""


class JobError(Exception):
    """No executor could run the job; the message says why."""


class JobExecutor(Protocol):
    """Runs jobs."""

    async def submit(self, job: Job) -> bytes:
        """Run one job and return its result."""


class Clock(Struct, frozen=True):
    """The time, and how to wait."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]

    def now_s(self) -> float:
        """Return the time in seconds since 1970."""
        return self.now_ms() / 1000

    def timestamp(self) -> str:
        """Return the time as journals write it: UTC, with milliseconds."""
        now = datetime.fromtimestamp(self.now_ms() / 1000, tz=UTC)
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ConfigValue(Struct, frozen=True):
    """A setting's value and where it comes from."""

    name: str
    value: bool | int | str
    origin: str


class JobExecutors(Struct, frozen=True):
    """Opens executors for a number of concurrent jobs."""

    is_local: bool
    open: Callable[[int], AbstractAsyncContextManager[JobExecutor]]
    # For callers without an event loop: each job returns a future.
    open_in_thread: "Callable[[int], AbstractContextManager[Callable[[Job], Future[bytes]]]]"


class Runtime(Struct, frozen=True):
    """The machine as features see it. `home` is the person's, `data_dir` flightlog's own directory.

    Directories are plain text, because a usage report does not import pathlib. `read_config`
    returns the settings in force in a directory; it reads them on demand, so that a command that
    needs none works with a broken file. `notify` shows one line to the person watching.
    `settings_file` is the user's own file, which need not exist.
    """

    environ: Mapping[str, str]
    home: str
    data_dir: str
    cwd: str
    clock: Clock
    zone: tzinfo
    new_id: Callable[[], str]
    read_config: Callable[[str], Mapping[str, ConfigValue]]
    notify: Callable[[str], None]
    jobs: JobExecutors | None = None
    settings_file: str = ""

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """The settings in force in the current directory."""
        return self.read_config(self.cwd)

    @property
    def program_path(self) -> str:
        """The search path for programs: `PATH`, or the usual directories."""
        return self.environ.get("PATH", "/bin:/usr/bin")
