"""What a run needs from the machine, given once: time, ids, programs, environment, and somebody to tell."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.agents.namespace import Means

Tell = Callable[[str, str, float], None]  # session, words (none: it got an answer), spent by the run so far


class Setting(Struct, frozen=True):
    """The machine as a run sees it. `environ` is the person's own; agents get a part of it."""

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

    @property
    def programs(self) -> str:
        """Where programs are looked for."""
        return self.environ.get("PATH", "")
