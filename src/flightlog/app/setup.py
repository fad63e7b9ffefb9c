"""Where `init` stands: the environment, the clients on this machine, the settings to change.

The one part of `init` that reads the environment; the plan itself is made in `app.install`.
"""

import os
import shlex
import sys
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.driver import ClaudeCode
from flightlog.app import install, jsonedit
from flightlog.app.hook_events import project_settings
from flightlog.app.privacy import guard_git
from flightlog.model.runtime import Runtime
from flightlog.privacy import guard
from flightlog.sources.claude_code.discover import find_config_dirs
from flightlog.store import files, settings_file

LONG_DAYS = 3650
_DEFAULT_DAYS = 30


class InitRequest(Struct, frozen=True):
    """What was asked for: `user` or `project`, and where the person stands."""

    scope: str
    cwd: Path


def plan_change(  # noqa: PLR0913 - one parameter per choice of a person's
    runtime: Runtime, place: InitRequest, *, remove: bool, keep_days: int, inline: bool, statusline: bool = True
) -> install.SettingsChange:
    """Plan the change for this machine."""
    settings = settings_path(runtime, place)
    if remove:
        return install.plan_removal(settings)
    inline = inline or runtime.config["hook.inline"].value is True
    python = Path(sys.executable)
    return install.plan_install(
        settings, list_client_versions(runtime), python, keep_days=keep_days, inline=inline, statusline=statusline
    )


def change_guard(runtime: Runtime, place: InitRequest, *, remove: bool) -> list[Path]:
    """Put the guard before commits and pushes of the project here, or take it out; return the hooks that changed."""
    if not _is_repository(place):
        return []
    if remove:
        return guard.remove_guard(guard_git(runtime, place.cwd))
    return guard.install_guard(guard_git(runtime, place.cwd), command=hook_command())


def hook_command() -> str:
    """Return how git is to call us: the program beside this Python, else whatever is on the path."""
    beside = Path(sys.executable).with_name("flightlog")
    return shlex.quote(str(beside)) if beside.exists() else "flightlog"


def wants_guard(runtime: Runtime, place: InitRequest, *, remove: bool) -> bool:
    """Whether there is a guard to put in, or to take out."""
    if not _is_repository(place):
        return False
    there = len(guard.list_guard_hooks(guard_git(runtime, place.cwd)))
    return there > 0 if remove else there < len(guard.HOOKS)


def _is_repository(place: InitRequest) -> bool:
    return place.scope == "project" and any((folder / ".git").exists() for folder in (place.cwd, *place.cwd.parents))


def settings_path(runtime: Runtime, place: InitRequest) -> Path:
    """The settings file: a person's own, or a project's local one, since the hook is on this machine only."""
    if place.scope == "project":
        return files.ensure_contained(files.find_project(place.cwd), project_settings(place.cwd))
    return Path(find_config_dirs(runtime)[0]) / "settings.json"


def list_client_versions(runtime: Runtime) -> tuple[str, ...]:
    """The versions of all clients found here, empty for one that does not say."""
    return tuple(ClaudeCode(program).version(runtime.environ) for program in list_clients(runtime))


def list_clients(runtime: Runtime) -> tuple[Path, ...]:
    """Every Claude Code a person here could start: the one named, else each on the search path."""
    given = runtime.environ.get("FLIGHTLOG_CLAUDE", "")
    if given:
        return (Path(given),)
    found = [Path(folder) / "claude" for folder in runtime.program_path.split(os.pathsep)]
    real = {path.resolve(): path for path in reversed(found) if path.is_file() and os.access(path, os.X_OK)}
    return tuple(sorted(real.values()))


def current_keep_days(runtime: Runtime, place: InitRequest) -> int:
    """How long the agent keeps its transcripts now."""
    settings = settings_path(runtime, place)
    data = settings_file.read_if_exists(settings)
    if data is None or not data.strip():
        return _DEFAULT_DAYS
    days = jsonedit.parse_object(data.decode("utf-8", "replace"), str(settings)).get(install.DAYS_KEY)
    return days if isinstance(days, int) else _DEFAULT_DAYS
