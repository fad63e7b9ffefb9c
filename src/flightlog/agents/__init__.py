"""The registry of agents; it imports an agent's package on first use."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flightlog.model.errors import NotFound

if TYPE_CHECKING:
    from flightlog.agents.protocol import Agent
    from flightlog.sources.protocol import Source


# Recordings that ship with the package, as a configuration directory of Claude Code.
SAMPLES = Path(__file__).parent / "scripted" / "recordings"
# A package `claude_code` exports the agent "claude-code".
_PACKAGES = ("claude_code",)


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents."""
    return tuple(package.replace("_", "-") for package in _PACKAGES)


def find_agent(name: str) -> "Agent":
    """Return the agent of that name, or raise `NotFound`."""
    if name not in agent_names():
        raise NotFound(f"no such agent: {name!r}", hint=f"one of: {', '.join(agent_names())}")
    package = import_module(f"{__name__}.{name.replace('-', '_')}")
    return cast("Agent", package.AGENT)


def source_of(name: str) -> "Source":
    """Return the reader of that agent's session files."""
    return find_agent(name).source
