"""What the sessions of a run share while it is carried out, and the way to stop them all."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.driver import Driver
from flightlog.agents.namespace import IsolationMode
from flightlog.agents.process import AgentProcess
from flightlog.lab.book import RunStore
from flightlog.lab.config import RunConfig
from flightlog.lab.running.ground import RunWorkTree
from flightlog.lab.running.purse import Budget
from flightlog.model.jobs import Job
from flightlog.model.runtime import Runtime

Tell = Callable[[str, str, float], None]  # session, words (none: it got an answer), spent by the run so far
Elsewhere = Callable[[Job], "Future[bytes]"]


class RunEnvironment(Struct, frozen=True):
    """What a run takes from outside. `environ` is the person's own; agents get a part of it.

    `permit` is asked before a run starts, continues or is branched from, with its configuration, its
    directory and the digest of its `config.yaml` (none for a run that is to be created): it raises
    ConsentNeeded for what a person has not allowed. `remember` records such a digest as the person's own.
    `elsewhere` carries sessions that can run together out on other machines.
    """

    runtime: Runtime
    tell: Tell
    permit: Callable[[RunConfig, Path, str], None]
    remember: Callable[[str], None]
    means: IsolationMode
    leash: tuple[str, ...]
    elsewhere: Elsewhere | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        """The person's environment."""
        return self.runtime.environ

    @property
    def home(self) -> Path:
        """The person's home directory."""
        return Path(self.runtime.home)


class RunContext:
    """A run on its way: its book, its ground, its purse, its agents at work."""

    def __init__(
        self,
        book: RunStore,
        ground: RunWorkTree,
        setting: RunEnvironment,
        driver: Driver,
        more_usd: float | None = None,
    ) -> None:
        """Begin with what earlier attempts spent; `more_usd` may be spent on top, whatever the run's budget is."""
        self.book = book
        self.ground = ground
        self.setting = setting
        self.driver = driver
        spent = book.state.spent_usd
        self.purse = Budget(book.config.max_budget_usd if more_usd is None else spent + more_usd, spent)
        self.is_apart = False
        self.mode = book.state.started.permission_mode if book.state.started else book.config.permission_mode
        self.stop_reason = ""
        self._at_work: dict[str, AgentProcess] = {}
        self._lock = threading.Lock()

    def stop_all(self, reason: str) -> None:
        """Let no more sessions begin, and end those at work."""
        with self._lock:
            self.stop_reason = self.stop_reason or reason
            at_work = list(self._at_work.values())
        for each in at_work:
            each.stop()

    def agent_records(self, session: str) -> Sequence[dict[str, Any]]:
        """What the agent of a session has said so far."""
        with self._lock:
            running = self._at_work.get(session)
        return running.records() if running is not None else ()

    @contextmanager
    def track_agent(self, session: str, running: AgentProcess) -> Iterator[None]:
        """Know an agent while it works, so that it can be stopped."""
        with self._lock:
            self._at_work[session] = running
            late = bool(self.stop_reason)
        try:
            if late:
                running.stop()
            yield
        finally:
            with self._lock:
                del self._at_work[session]
            running.stop()
