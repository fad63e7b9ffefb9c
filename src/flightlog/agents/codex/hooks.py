"""Codex's hook events and settings. This module is the `HookSettings` of the agent.

Codex reads `hooks.json` in its home and in a project's `.codex`, in the form of Claude Code's
settings. It runs a hook only after a person has trusted it, and asks for that when it starts.
"""

import shlex
import tomllib
from collections.abc import Collection
from pathlib import Path

_FILE = "hooks.json"
# All events of 0.166; an older client ignores the names it does not know (tried with 0.140).
_EVENTS = tuple(
    "SessionStart UserPromptSubmit PreToolUse PermissionRequest PostToolUse PreCompact PostCompact "
    "SubagentStart SubagentStop Stop SessionEnd".split()
)


def events_for(versions: Collection[str]) -> tuple[str, ...]:
    """Return the events to register, the same for all versions."""
    del versions
    return _EVENTS


def find_plugin(config_dir: Path) -> str:
    """Return the command that removes our plugin from the client; "" if it is not enabled."""
    try:
        plugins = tomllib.loads((config_dir / "config.toml").read_text()).get("plugins", {})
    except (OSError, ValueError, RecursionError):
        return ""
    named = [name for name in plugins if name.startswith("flightlog@")]
    is_on = named and isinstance(plugins[named[0]], dict) and plugins[named[0]].get("enabled", True)
    return f"codex plugin remove {shlex.quote(named[0])}" if is_on else ""


def user_settings(config_dir: Path) -> Path:
    """Return the path of a person's hooks."""
    return config_dir / _FILE


def project_settings(project: Path) -> Path:
    """Return the path of a project's hooks."""
    return project / ".codex" / _FILE
