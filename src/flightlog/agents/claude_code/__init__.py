"""The only code that knows Claude Code; exports AGENT."""

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.claude_code import files
from flightlog.agents.session_files import find_enabled_plugin
from flightlog.sources.protocol import FileListing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flightlog.agents.protocol import Dialect, Driver, HookSettings
    from flightlog.sources.protocol import Source


class ClaudeCodeAgent(Struct, frozen=True):
    """Claude Code as `agents.protocol.Agent` describes it.

    Each part is imported on use: a usage report needs only `files` and `scan`.
    """

    name: str = files.AGENT_NAME

    @property
    def source(self) -> "Source":
        """The reader of its transcripts."""
        from flightlog.agents.claude_code.source import SOURCE  # noqa: PLC0415 - as above

        return SOURCE

    def find(self, dirs: "Sequence[str]") -> FileListing:
        """List the transcripts below configuration directories."""
        listings = [files.find_transcripts(config_dir) for config_dir in dirs]
        return FileListing(
            tuple(file for listing in listings for file in listing.files),
            tuple(damage for listing in listings for damage in listing.damage),
        )

    def driver(self, program: "Path") -> "Driver":
        """Return the driver of the client at `program`."""
        from flightlog.agents.claude_code.driver import ClaudeCode  # noqa: PLC0415 - as above

        return ClaudeCode(program)

    def hooks(self) -> "HookSettings":
        """Return the module that knows hook events and settings files."""
        from flightlog.agents.claude_code import hooks  # noqa: PLC0415 - as above

        return hooks

    def find_plugin(self, config_dir: "Path") -> str:
        """Return the command that removes our plugin from the client; "" if it is not enabled."""
        return find_enabled_plugin(config_dir, "claude plugin uninstall")

    def dialect(self) -> "Dialect":
        """Return the decoders of the Messages API."""
        from flightlog.agents.dialects import anthropic_messages  # noqa: PLC0415 - as above

        return anthropic_messages


AGENT = ClaudeCodeAgent()
