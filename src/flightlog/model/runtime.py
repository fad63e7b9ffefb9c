"""What the composition root hands down: the only way a feature sees clock, environment and directories.

Values and functions given from outside; nothing is read here. `app.open_runtime` builds the real
one, tests build their own.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.model.jobs import Job, JobExecutor

if TYPE_CHECKING:
    from concurrent.futures import Future


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
    """Opens executors of jobs at one place, for a number of jobs at once."""

    is_local: bool
    open: Callable[[int], AbstractAsyncContextManager[JobExecutor]]
    # For callers without an event loop: each job gives a future.
    open_in_thread: "Callable[[int], AbstractContextManager[Callable[[Job], Future[bytes]]]]"


class Runtime(Struct, frozen=True):
    """The machine as features see it. `home` is the person's, `data_dir` flightlog's own directory.

    Directories are plain text: a usage report does not wait for pathlib. `read_config` returns the
    settings in force in a directory; they are read when they are asked for, so that a command that
    needs none works with a broken file. `notify` shows one line to the person watching.
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

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """The settings in force in the current directory."""
        return self.read_config(self.cwd)

    @property
    def program_path(self) -> str:
        """Where programs are looked for: `PATH`, or the usual directories."""
        return self.environ.get("PATH", "/bin:/usr/bin")
