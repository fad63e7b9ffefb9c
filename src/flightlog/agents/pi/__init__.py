"""The only code that knows Pi; exports AGENT."""

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.pi import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flightlog.sources.protocol import FileListing, Source


class PiAgent(Struct, frozen=True):
    """Pi as `agents.protocol.Agent` describes it; it is only read."""

    name: str = files.AGENT_NAME

    @property
    def source(self) -> "Source":
        """The reader of its session files."""
        from flightlog.agents.pi.decode import SOURCE  # noqa: PLC0415 - not needed to list files

        return SOURCE

    def find(self, dirs: "Sequence[str]") -> "FileListing":
        """List the sessions below its own directories."""
        return files.find_sessions(dirs)

    def driver(self, program: "Path") -> None:
        """Return None: it is not started from here."""

    def hooks(self) -> None:
        """Return None: no hooks are registered."""

    def dialect(self) -> None:
        """Return None: it calls several APIs, and its requests are not captured."""


AGENT = PiAgent()
