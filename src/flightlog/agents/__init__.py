"""The registry of agents; it imports an agent's package on first use."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec import Struct

from flightlog.model.errors import NotFound
from flightlog.model.session import DEFAULT_AGENT

if TYPE_CHECKING:
    from flightlog.agents.protocol import HookSettings
    from flightlog.sources.protocol import FileListing, Source


COMMON_MEMORY_FILE = "AGENTS.md"
# Recordings that ship with the package, as a configuration directory of Claude Code.
SAMPLES = Path(__file__).parent / "scripted" / "recordings"


class Agent(Struct, frozen=True):
    """One coding agent: its name in recordings, and what lists its session files.

    Its other parts are modules of its package and imported on use: listing files needs neither.
    `reader` is the one with its `SOURCE`; one with hooks has a module `hooks`.
    """

    name: str
    find: "Callable[[Sequence[str]], FileListing]"
    reader: str = "decode"
    has_hooks: bool = False
    remove_plugin: str = ""  # the command of a client that has no hooks but takes plugins

    @property
    def source(self) -> "Source":
        """The reader of its session files."""
        return cast("Source", import_module(f"{_package(self.name)}.{self.reader}").SOURCE)

    def hooks(self) -> "HookSettings | None":
        """Return the settings in which our hooks are registered, or None if it has no hooks."""
        module = import_module(f"{_package(self.name)}.hooks") if self.has_hooks else None
        return cast("HookSettings | None", module)

    def find_plugin(self, config_dir: Path) -> str:
        """Return the command that removes our plugin from the client; "" if it is not enabled."""
        from flightlog.agents.session_files import find_enabled_plugin  # noqa: PLC0415 - as above

        if hooks := self.hooks():
            return hooks.find_plugin(config_dir)
        return find_enabled_plugin(config_dir, self.remove_plugin) if self.remove_plugin else ""


class RegisteredAgent(NamedTuple):
    """An agent, and where it keeps its sessions.

    `variable` names the directory, or the one that `below` is in; without it, `usual` are the
    directories below the person's home. The package `claude_code` exports the agent "claude-code".
    `memory_file` is the file in a project whose text the agent reads at each start.
    """

    name: str
    label: str
    variable: str
    usual: tuple[str, ...]
    below: str = ""
    memory_file: str = COMMON_MEMORY_FILE


REGISTRY = (
    RegisteredAgent(
        *(DEFAULT_AGENT, "Claude Code", "CLAUDE_CONFIG_DIR", (".claude",)), memory_file="CLAUDE.md"
    ),
    RegisteredAgent("codex", "Codex", "CODEX_HOME", (".codex",)),
    RegisteredAgent(
        "opencode", "OpenCode", "XDG_DATA_HOME", (".local/share/opencode",), below="opencode"
    ),
    RegisteredAgent("copilot", "Copilot CLI", "COPILOT_HOME", (".copilot",)),
    RegisteredAgent("gemini", "Gemini CLI", "", (".gemini",), memory_file="GEMINI.md"),
    RegisteredAgent("qwen", "Qwen Code", "", (".qwen",), memory_file="QWEN.md"),
    RegisteredAgent("pi", "Pi", "", (".pi",)),
)


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents."""
    return tuple(agent.name for agent in REGISTRY)


def agent_label(name: str) -> str:
    """Return an agent's name as people write it."""
    return next((agent.label for agent in REGISTRY if agent.name == name), name)


def find_memory_file(name: str) -> str:
    """Return the name of the file in a project whose text the agent reads at each start."""
    return next((agent.memory_file for agent in REGISTRY if agent.name == name), COMMON_MEMORY_FILE)


def find_agent(name: str) -> Agent:
    """Return the agent of that name, or raise `NotFound`."""
    if name not in agent_names():
        raise NotFound(f"no such agent: {name!r}", hint=f"one of: {', '.join(agent_names())}")
    return cast("Agent", import_module(_package(name)).AGENT)


def _package(name: str) -> str:
    return f"{__name__}.{name.replace('-', '_')}"


def source_of(name: str) -> "Source":
    """Return the reader of that agent's session files."""
    return find_agent(name).source
