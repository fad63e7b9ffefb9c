"""List an agent's directories and describe the session files in them; what cannot be read is damage."""

import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile

if TYPE_CHECKING:
    from pathlib import Path


def find_enabled_plugin(config_dir: "Path", command: str) -> str:
    """Return `command` with the name of our plugin if `settings.json` enables it, else ""."""
    try:
        settings = msgspec.json.decode((config_dir / "settings.json").read_bytes())
        names = [name for name, is_on in settings["enabledPlugins"].items() if is_on]
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return ""
    own = next((name for name in names if re.fullmatch(r"flightlog@[\w.-]+", name)), "")
    return f"{command} {own}" if own else ""


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
    return SessionFile(path, session, *state, "", status.st_dev, status.st_ino, agent)


def describe_current(file: SessionFile) -> tuple[SessionFile, ...]:
    """Return the one file of a session as it is now; nothing if it is gone."""
    current = describe_file(file.agent, file.path, file.session, [])
    return (current,) if current else ()
