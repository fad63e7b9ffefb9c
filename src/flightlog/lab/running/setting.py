"""What a run needs from the machine, given once: time, ids, programs, environment, and somebody to tell."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from msgspec import Struct

from flightlog.agents.namespace import Means
from flightlog.lab.config import RunConfig
from flightlog.model.jobs import Job

Tell = Callable[[str, str, float], None]  # session, words (none: it got an answer), spent by the run so far
Elsewhere = Callable[[Job], "Future[bytes]"]


class Setting(Struct, frozen=True):
    """The machine as a run sees it. `environ` is the person's own; agents get a part of it.

    `permit` is asked before a run starts, continues or is branched from, with its configuration, its
    directory and the digest of its `config.yaml` (none for a run that is to be created): it raises
    ConsentNeeded for what a person has not allowed. `remember` records such a digest as the person's own.
    `elsewhere` carries sessions that can run together out on other machines.
    """

    environ: Mapping[str, str]
    home: Path
    now_s: Callable[[], float]
    now: Callable[[], str]
    new_id: Callable[[], str]
    process: str
    is_root: bool
    means: Means
    leash: tuple[str, ...]
    tell: Tell
    version: str
    permit: Callable[[RunConfig, Path, str], None]
    remember: Callable[[str], None]
    elsewhere: Elsewhere | None = None

    @property
    def programs(self) -> str:
        """Where programs are looked for."""
        return self.environ.get("PATH", "")
