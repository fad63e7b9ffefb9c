"""Agent, Driver, RunningAgent, Dialect.

A driver starts one program and reports what it said. It decides nothing: environment, time
limits and the place to work in are given, and no driver reads them from the machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from flightlog.model.exchange import is_loopback
from flightlog.sources.protocol import Source

if TYPE_CHECKING:
    from flightlog.agents.process import AgentProcess

_LOOPBACK = "127.0.0.1,localhost,::1"


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's environment in which a model on this machine is reached directly.

    A client that is given `HTTP_PROXY` sends even loopback requests there, its key in plain text.
    """
    if not is_loopback(environment.get("ANTHROPIC_BASE_URL", "")):
        return dict(environment)
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    exempt = f"{exempt},{_LOOPBACK}" if exempt else _LOOPBACK
    return {**environment, "NO_PROXY": exempt, "no_proxy": exempt}


class AgentPrompt(Struct, frozen=True):
    """One prompt for one agent: a new session, or more of an old one.

    `before` are words put before the agent's command, as `agents.namespace` makes them. `read_only`
    takes away the tools that write or run; a program whose tools are not known needs a sandbox instead.
    """

    prompt: str
    cwd: Path
    environment: Mapping[str, str]
    session: str = ""
    resume: str = ""
    fork: bool = False
    arguments: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    read_only: bool = False


class AgentOutcome(Struct, frozen=True):
    """How a run ended: `session` is empty when the agent never said it; `plain` is what it said besides records."""

    exit_code: int
    session: str
    records: tuple[dict[str, Any], ...]
    stderr: str = ""
    timed_out: bool = False
    plain: str = ""


class Driver(Protocol):
    """How one kind of agent is driven."""

    @property
    def agent(self) -> str:
        """The agent's name, as recordings are filed."""

    def version(self, environment: Mapping[str, str]) -> str:
        """The program's version, or nothing when it does not say."""

    def start(self, ask: AgentPrompt) -> "AgentProcess":
        """Start a run and return at once."""


class Agent(Protocol):
    """One coding agent: how its sessions are read, and how it is started where it can be."""

    @property
    def name(self) -> str:
        """The agent's name in recordings, and its directory below `sessions/`."""

    @property
    def source(self) -> Source:
        """The reader of its session files."""

    def driver(self, program: Path) -> "Driver | None":
        """Return a driver of the client at `program`, or None for an agent that is only read."""
