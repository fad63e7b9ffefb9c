"""What an agent package exports as `AGENT`."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flightlog.sources.protocol import Source

if TYPE_CHECKING:
    from flightlog.agents.driver import Driver


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
