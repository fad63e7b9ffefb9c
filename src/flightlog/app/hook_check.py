"""What is wrong with the recording of hook events: findings for `doctor`, each with its cure.

Looks and tells; changes nothing. Knows the places `init` writes to and the hook writes to.
"""

import shlex
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.app.hook_events import events_for
from flightlog.app.install import installed, installed_line, is_ours
from flightlog.model.errors import FlightlogError
from flightlog.model.text import counted
from flightlog.sources.hook_log import count_lost_records
from flightlog.store import settings_file

_INIT = "flightlog init"


class Finding(Struct, frozen=True):
    """One thing that is not in order, and the command that puts it right."""

    what: str
    which: str
    fix: str
    is_loss: bool = False


def hook_findings(settings: Path, home: Path, versions: Collection[str], temporary: Path) -> list[Finding]:
    """Look at one settings file and at what the hook left in `home`."""
    return [*_registered(settings, versions), *_home(home), *_lost(home, temporary)]


def is_registered(settings: Path) -> bool:
    """Whether a settings file calls the hook."""
    data = settings_file.read(settings)
    try:
        return bool(data and data.strip() and installed(data.decode("utf-8", "replace")))
    except FlightlogError:
        return False


def _registered(settings: Path, versions: Collection[str]) -> Iterator[Finding]:
    data = settings_file.read(settings)
    try:
        groups = installed(data.decode("utf-8", "replace")) if data and data.strip() else {}
    except FlightlogError as error:
        yield Finding("the agent's settings cannot be read", error.message, f"edit {shlex.quote(str(settings))}")
        return
    if not groups:
        yield Finding("sessions are not recorded as they happen: no hook is registered", str(settings), _INIT)
        return
    missing = [event for event in events_for(versions) if event not in groups]
    if missing:
        yield Finding("the hook misses events this client knows", ", ".join(missing), _INIT)
    commands = {hook["command"] for group in groups.values() for hook in group["hooks"] if is_ours(hook)}
    for command in sorted(commands):
        yield from _points_nowhere(command, ("hook", "nothing is recorded"))


def line_findings(settings: Path) -> list[Finding]:
    """Look at the status line of one settings file; without one of ours there is nothing to find."""
    data = settings_file.read(settings)
    try:
        line = installed_line(data.decode("utf-8", "replace")) if data and data.strip() else None
    except FlightlogError:
        return []
    return list(_points_nowhere(line["command"], ("status line", "it only says its name"))) if line else []


def _points_nowhere(command: str, told: tuple[str, str]) -> Iterator[Finding]:
    (name, consequence), words = told, shlex.split(command)
    python, script = words[0], next(word for word in words if word.endswith(".py"))
    if shutil.which(python) is None:
        yield Finding(f"the {name}'s Python is gone: {consequence}", python, _INIT)
    if not Path(script).exists():
        yield Finding(f"the {name} points to a missing program: {consequence}", script, _INIT)


def _home(home: Path) -> Iterator[Finding]:
    for path in sorted(home.glob("spool/*.part")):
        yield Finding("a very long hook payload was cut off at the hook's time limit", str(path), f"less {path}")


def _lost(home: Path, temporary: Path) -> Iterator[Finding]:
    count = count_lost_records(home, temporary)
    if count:
        text = f"{counted(count, 'hook event')} could not be written down"
        yield Finding(text, str(home / "lost"), "flightlog doctor --fix", is_loss=True)
