"""The only code that knows OpenCode; exports AGENT."""

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents.opencode import files, rows
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.reader import register_virtual_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flightlog.agents.protocol import Dialect, Driver, HookSettings
    from flightlog.sources.protocol import Source


class OpenCodeAgent(Struct, frozen=True):
    """OpenCode as `agents.protocol.Agent` describes it."""

    name: str = files.AGENT_NAME

    @property
    def source(self) -> "Source":
        """The reader of its sessions."""
        from flightlog.agents.opencode.decode import SOURCE  # noqa: PLC0415 - listing needs none

        return SOURCE

    def find(self, dirs: "Sequence[str]") -> FileListing:
        """List the sessions in the databases and the old files below `dirs`."""
        listings = [files.find_sessions(folder) for folder in dirs]
        return FileListing(
            tuple(file for listing in listings for file in listing.files),
            tuple(damage for listing in listings for damage in listing.damage),
        )

    def driver(self, program: "Path") -> "Driver | None":
        """Return None: its sessions are only read."""
        del program
        return None

    def hooks(self) -> "HookSettings | None":
        """Return None: its hooks are plugins that run inside the client."""
        return None

    def dialect(self) -> "Dialect | None":
        """Return None: it calls many providers, each in their own dialect."""
        return None


AGENT = OpenCodeAgent()
register_virtual_files(rows.SESSION_PATHS, rows.read_session)
