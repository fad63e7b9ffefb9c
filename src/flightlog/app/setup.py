"""Where `init` stands: the environment, the clients on this machine, the settings to change.

The one part of `init` that reads the environment; the plan itself is made in `app.install`.
"""

import os
import sys
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.driver import ClaudeCode
from flightlog.app import install, jsonedit
from flightlog.app.config import in_force
from flightlog.app.paths import claude_config_dirs, hook_command, project_of, project_settings
from flightlog.app.privacy import guard_git
from flightlog.privacy import guard
from flightlog.store import files, settings_file

LONG_DAYS = 3650
_DEFAULT_DAYS = 30


class Place(Struct, frozen=True):
    """What was asked for: `user` or `project`, and where the person stands."""

    scope: str
    cwd: Path


def change_here(place: Place, *, remove: bool, keep_days: int, inline: bool, statusline: bool = True) -> install.Change:
    """Plan the change for this machine."""
    settings = settings_here(place)
    if remove:
        return install.plan_removal(settings)
    inline = inline or in_force()["hook.inline"].value is True
    python = Path(sys.executable)
    return install.plan(settings, versions_here(), python, keep_days=keep_days, inline=inline, statusline=statusline)


def guard_here(place: Place, *, remove: bool) -> list[Path]:
    """Put the guard before commits and pushes of the project here, or take it out; return the hooks that changed."""
    if not _is_repository(place):
        return []
    if remove:
        return guard.remove_guard(guard_git(place.cwd))
    return guard.install_guard(guard_git(place.cwd), command=hook_command())


def wants_guard(place: Place, *, remove: bool) -> bool:
    """Whether there is a guard to put in, or to take out."""
    if not _is_repository(place):
        return False
    there = len(guard.guards(guard_git(place.cwd)))
    return there > 0 if remove else there < len(guard.HOOKS)


def _is_repository(place: Place) -> bool:
    return place.scope == "project" and any((folder / ".git").exists() for folder in (place.cwd, *place.cwd.parents))


def settings_here(place: Place) -> Path:
    """The settings file: a person's own, or a project's local one, since the hook is on this machine only."""
    if place.scope == "project":
        return files.contained(project_of(place.cwd), project_settings(place.cwd))
    return claude_config_dirs(os.environ)[0] / "settings.json"


def versions_here() -> tuple[str, ...]:
    """The versions of all clients found here, empty for one that does not say."""
    return tuple(ClaudeCode(program).version(os.environ) for program in clients_here())


def clients_here() -> tuple[Path, ...]:
    """Every Claude Code a person here could start: the one named, else each on the search path."""
    given = os.environ.get("FLIGHTLOG_CLAUDE", "")
    if given:
        return (Path(given),)
    found = [Path(folder) / "claude" for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    real = {path.resolve(): path for path in reversed(found) if path.is_file() and os.access(path, os.X_OK)}
    return tuple(sorted(real.values()))


def days_here(place: Place) -> int:
    """How long the agent keeps its transcripts now."""
    settings = settings_here(place)
    data = settings_file.read(settings)
    if data is None or not data.strip():
        return _DEFAULT_DAYS
    days = jsonedit.parsed(data.decode("utf-8", "replace"), str(settings)).get(install.DAYS_KEY)
    return days if isinstance(days, int) else _DEFAULT_DAYS
