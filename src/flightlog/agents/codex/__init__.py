"""The only code that knows Codex; exports AGENT."""

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.codex import files
from flightlog.sources.protocol import FileListing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flightlog.agents.protocol import Dialect, HookSettings
    from flightlog.sources.protocol import Source


class CodexAgent(Struct, frozen=True):
    """Codex as `agents.protocol.Agent` describes it; each part is imported on use."""

    name: str = files.AGENT_NAME

    @property
    def source(self) -> "Source":
        """The reader of its rollouts."""
        from flightlog.agents.codex.decode import SOURCE  # noqa: PLC0415 - as above

        return SOURCE

    def find(self, dirs: "Sequence[str]") -> FileListing:
        """List the rollouts below its home directories."""
        return files.find_rollouts(dirs)

    def driver(self, program: "Path") -> None:
        """Return None: Codex is read, not started."""
        del program

    def hooks(self) -> "HookSettings":
        """Return the module that knows hook events and settings files."""
        from flightlog.agents.codex import hooks  # noqa: PLC0415 - as above

        return hooks

    def find_plugin(self, config_dir: "Path") -> str:
        """Return the command that removes our plugin from the client; "" if it is not enabled."""
        from flightlog.agents.codex import hooks  # noqa: PLC0415 - as above

        return hooks.find_plugin(config_dir)

    def dialect(self) -> "Dialect | None":
        """Return None: its requests are not captured."""
        return None


AGENT = CodexAgent()
