"""The only code that knows Claude Code; exports AGENT."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.claude_code import files

if TYPE_CHECKING:
    from flightlog.agents.claude_code.source import ClaudeCodeSource
    from flightlog.agents.protocol import Driver


class ClaudeCodeAgent(Struct, frozen=True):
    """Claude Code as the registry knows it."""

    name: str = files.AGENT

    @property
    def source(self) -> "ClaudeCodeSource":
        """The reader of its transcripts."""
        from flightlog.agents.claude_code.source import ClaudeCodeSource  # noqa: PLC0415 - a report scans bytes only

        return ClaudeCodeSource()

    def driver(self, program: Path) -> "Driver":
        """Return the driver of the client at `program`."""
        from flightlog.agents.claude_code.driver import ClaudeCode  # noqa: PLC0415 - readers start nothing

        return ClaudeCode(program)


AGENT = ClaudeCodeAgent()
