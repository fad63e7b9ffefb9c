"""The only code that knows Claude Code; exports AGENT."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.claude_code import files
from flightlog.agents.claude_code.source import ClaudeCodeSource
from flightlog.model.runtime import Runtime

if TYPE_CHECKING:
    from flightlog.agents.protocol import Dialect, Driver, HookSettings


class ClaudeCodeAgent(Struct, frozen=True):
    """Claude Code as `agents.protocol.Agent` describes it; readers load none of its other parts."""

    name: str = files.AGENT_NAME
    source: ClaudeCodeSource = ClaudeCodeSource()

    def roots(self, runtime: Runtime) -> tuple[str, ...]:
        """Return the configuration directories."""
        return tuple(files.find_config_dirs(runtime))

    def driver(self, program: Path) -> "Driver":
        """Return the driver of the client at `program`."""
        from flightlog.agents.claude_code.driver import ClaudeCode  # noqa: PLC0415 - readers start nothing

        return ClaudeCode(program)

    def hooks(self) -> "HookSettings":
        """Return the module that knows hook events and settings files."""
        from flightlog.agents.claude_code import hooks  # noqa: PLC0415 - readers register nothing

        return hooks

    def dialect(self) -> "Dialect":
        """Return the decoders of the Messages API."""
        from flightlog.agents.dialects import anthropic_messages  # noqa: PLC0415 - readers capture nothing

        return anthropic_messages


AGENT = ClaudeCodeAgent()
