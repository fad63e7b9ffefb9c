"""Problems with the recording of hook events, each with the command that fixes it.

Reads the files that `init` and the hook write; changes nothing.
"""

import shlex
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from flightlog.agents import find_agent
from flightlog.agents.claude_code import AGENT
from flightlog.agents.claude_code.hooks import events_for
from flightlog.agents.recordings import find_agent_dirs
from flightlog.live.layout import check_template
from flightlog.model.errors import FlightlogError, Misconfigured
from flightlog.model.runtime import ConfigValue, Runtime
from flightlog.model.text import pluralize
from flightlog.setup.install import (
    find_own_groups,
    find_own_status_line,
    has_other_status_line,
    is_ours,
)
from flightlog.sources.hook_log import count_lost_records
from flightlog.store import json_editor, shared_files

_INIT = "flightlog init"
_OFF_KEY = "disableAllHooks"
_HOOKS_OFF = "the agent runs no hook and no status line, so nothing is recorded"


class HookProblem(Struct, frozen=True):
    """One problem, and the command that fixes it."""

    kind: str
    subject: str
    fix: str
    is_failure: bool = False


def hook_findings(
    settings: Path, home: Path, versions: Collection[str], temporary: Path
) -> list[HookProblem]:
    """Return the problems of one settings file and of what the hook left in `home`."""
    found = [*_check_registration(settings, versions), *_check_spool(home)]
    return [*found, *_check_lost_events(home, temporary)]


def find_plugin(runtime: Runtime, agent: str) -> str:
    """Return the command that removes our plugin from an agent; "" if it is not enabled."""
    dirs, find = find_agent_dirs(runtime).get(agent, ()), find_agent(agent).find_plugin
    return next(filter(None, (find(Path(path)) for path in dirs)), "")


def is_registered(settings: Path) -> bool:
    """Return whether a settings file calls the hook."""
    data = shared_files.read_if_exists(settings)
    try:
        return bool(data and data.strip() and find_own_groups(data.decode("utf-8", "replace")))
    except FlightlogError:
        return False


def describe_registration(settings: Path) -> str:
    """Return which hooks record sessions: that of the settings, the plugin's, or both."""
    if not AGENT.find_plugin(settings.parent):
        return f"registered: {settings}"
    if not is_registered(settings):
        return f"registered by the plugin: {settings}"
    return f"registered: {settings}; the plugin is enabled too, and its hook ends at once"


def list_init_notes(before: bytes | None, *, statusline: bool) -> list[str]:
    """Return what a person should know about the settings to which `init` adds hooks."""
    own = "your own status line is kept; to preview ours: flightlog live statusline"
    off = f"{_HOOKS_OFF}: remove {_OFF_KEY} from the settings"
    notes = [own] if statusline and has_other_status_line(before) else []
    return notes + ([off] if _has_hooks_off(before) else [])


def _has_hooks_off(data: bytes | None) -> bool:
    text = (data or b"").decode("utf-8", "replace")
    return bool(text.strip()) and json_editor.parse_object(text, "").get(_OFF_KEY) is True


def _check_registration(settings: Path, versions: Collection[str]) -> Iterator[HookProblem]:
    data = shared_files.read_if_exists(settings)
    try:
        groups = find_own_groups(data.decode("utf-8", "replace")) if data and data.strip() else {}
    except FlightlogError as error:
        kind = "the agent's settings cannot be read"
        yield HookProblem(kind, error.message, f"edit {shlex.quote(str(settings))}")
        return
    if not groups and AGENT.find_plugin(settings.parent):
        return
    if not groups:
        yield HookProblem(
            "sessions are not recorded live: no hook is registered", str(settings), _INIT
        )
        return
    if _has_hooks_off(data):
        yield HookProblem(_HOOKS_OFF, _OFF_KEY, f"edit {shlex.quote(str(settings))}")
    missing = [event for event in events_for(versions) if event not in groups]
    if missing:
        yield HookProblem(
            "the hook is not registered for all events of this client", ", ".join(missing), _INIT
        )
    commands = {
        hook["command"] for group in groups.values() for hook in group["hooks"] if is_ours(hook)
    }
    commands = {command for command in commands if ".py" in command}  # not a repository's own hook
    for command in sorted(commands):
        yield from _check_command_target(command, "hook", "nothing is recorded")


def status_line_findings(settings: Path, template: ConfigValue) -> list[HookProblem]:
    """Return the problems of our status line in one settings file, and of its template."""
    problems = []
    try:
        check_template(str(template.value), template.origin)
    except Misconfigured as error:
        problems.append(HookProblem("template", error.message, error.hint, is_failure=True))
    data = shared_files.read_if_exists(settings)
    text = data.decode("utf-8", "replace") if data and data.strip() else ""
    with suppress(FlightlogError):
        if line := find_own_status_line(text) if text else None:
            target = (line["command"], "status line", "it shows only its name")
            problems += _check_command_target(*target)
    return problems


def _check_command_target(command: str, name: str, consequence: str) -> Iterator[HookProblem]:
    words = shlex.split(command)
    python, script = words[0], next(word for word in words if word.endswith(".py"))
    if shutil.which(python) is None:
        yield HookProblem(f"the {name}'s Python is missing: {consequence}", python, _INIT)
    if not Path(script).exists():
        yield HookProblem(f"the {name} points to a missing program: {consequence}", script, _INIT)


def _check_spool(home: Path) -> Iterator[HookProblem]:
    for path in sorted(home.glob("spool/*.part")):
        kind = "a very long hook payload was cut off at the hook's time limit"
        yield HookProblem(kind, str(path), f"less {path}")


def _check_lost_events(home: Path, temporary: Path) -> Iterator[HookProblem]:
    count = count_lost_records(home, temporary)
    if count:
        text = f"{pluralize(count, 'hook event')} lost"
        yield HookProblem(text, str(home / "lost"), "flightlog doctor --fix", is_failure=True)
