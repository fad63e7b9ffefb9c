"""List an agent's directories and describe the session files in them; what cannot be read is damage."""

import os
import stat
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing

if TYPE_CHECKING:
    from flightlog.sources.protocol import Source


class ReadAgent(Struct, frozen=True):
    """An `agents.protocol.Agent` that is only read: `agents.<name>.decode` has its `SOURCE`."""

    name: str
    list_sessions: Callable[[Sequence[str]], FileListing]

    @property
    def source(self) -> "Source":
        """The reader of its session files; it is imported on use, as a listing does without it."""
        return cast("Source", import_module(f"flightlog.agents.{self.name}.decode").SOURCE)

    def find(self, dirs: Sequence[str]) -> FileListing:
        """List the session files below the agent's own directories."""
        return self.list_sessions(dirs)

    def driver(self, program: Path) -> None:
        """Return None: it is not started."""

    def hooks(self) -> None:
        """Return None: no hooks are registered."""

    def dialect(self) -> None:
        """Return None: its requests are not captured."""


def list_entries(folder: str, damage: list[Damage]) -> list[os.DirEntry[str]]:
    """Return the entries of a directory by name; one that is absent has none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        damage.append(Damage(folder, 0, 0, error.strerror or type(error).__name__))
        return []


def describe_file(agent: str, path: str, session: str, damage: list[Damage]) -> SessionFile | None:
    """Return a session's own file in its current state; None with damage if it cannot be one."""
    if not is_safe(session):
        damage.append(Damage(path, 0, 0, "the file name is not a usable session id"))
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 - hot: thousands of sessions
    except FileNotFoundError:
        return None
    except OSError as error:
        damage.append(Damage(path, 0, 0, error.strerror or type(error).__name__))
        return None
    if not stat.S_ISREG(status.st_mode):
        # Opening a named pipe would block until a writer comes.
        damage.append(Damage(path, 0, 0, "not a file"))
        return None
    state = (status.st_size, status.st_mtime_ns)
    return SessionFile(
        path, session, *state, device=status.st_dev, inode=status.st_ino, agent=agent
    )
