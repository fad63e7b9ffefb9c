"""Claude Code: the only code that knows its records, files, flags and payloads; exports `AGENT`."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.claude_code.source import ClaudeCodeSource
from flightlog.sources.claude_code import discover

if TYPE_CHECKING:
    from flightlog.agents.driver import Driver


class ClaudeCodeAgent(Struct, frozen=True):
    """Claude Code as the registry knows it."""

    name: str = discover.AGENT
    source: ClaudeCodeSource = ClaudeCodeSource()

    def driver(self, program: Path) -> "Driver":
        """Return the driver of the client at `program`."""
        from flightlog.agents.claude_code.driver import ClaudeCode  # noqa: PLC0415 - readers start nothing

        return ClaudeCode(program)


AGENT = ClaudeCodeAgent()
