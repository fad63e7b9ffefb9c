"""The only code that knows Copilot CLI; exports AGENT."""

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.copilot import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flightlog.sources.protocol import FileListing, Source


class CopilotAgent(Struct, frozen=True):
    """Copilot CLI as `agents.protocol.Agent` describes it; it is only read."""

    name: str = files.AGENT_NAME

    @property
    def source(self) -> "Source":
        """The reader of its events."""
        from flightlog.agents.copilot.decode import SOURCE  # noqa: PLC0415 - not needed to list files

        return SOURCE

    def find(self, dirs: "Sequence[str]") -> "FileListing":
        """List the sessions below configuration directories."""
        return files.find_sessions(dirs)

    def driver(self, program: "Path") -> None:
        """Return None: it is not started from here."""

    def hooks(self) -> None:
        """Return None: no hooks are registered."""

    def dialect(self) -> None:
        """Return None: it calls several APIs, and its requests are not captured."""


AGENT = CopilotAgent()
