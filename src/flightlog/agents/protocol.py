"""Driver and HookSettings.

A driver starts one program and returns its records. Callers give it the environment, time limits
and working directory; no driver reads them from the machine.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from flightlog.model.exchange import is_loopback

if TYPE_CHECKING:
    from flightlog.agents.process import AgentProcess


_LOOPBACK = "127.0.0.1,localhost,::1"


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's environment in which it reaches a model on this machine directly.

    With `HTTP_PROXY` set, a client sends even loopback requests to the proxy, its key in plain text.
    """
    if not is_loopback(environment.get("ANTHROPIC_BASE_URL", "")):
        return dict(environment)
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    exempt = f"{exempt},{_LOOPBACK}" if exempt else _LOOPBACK
    return {**environment, "NO_PROXY": exempt, "no_proxy": exempt}


class AgentPrompt(Struct, frozen=True):
    """One prompt for one agent, in a new session or a resumed one.

    `before` is a prefix of the agent's command, as `agents.sandbox` makes it. `read_only` removes
    the tools that write or run; a program with unknown tools needs a sandbox instead.
    """

    prompt: str
    cwd: Path
    environment: Mapping[str, str]
    session: str = ""
    resume: str = ""
    fork: bool = False
    arguments: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    read_only: bool = False


class AgentOutcome(Struct, frozen=True):
    """The end of a run: `session` may be unknown (""); `plain` is output that is not JSON."""

    exit_code: int
    session: str
    records: tuple[dict[str, Any], ...]
    stderr: str = ""
    timed_out: bool = False
    plain: str = ""


class Driver(Protocol):
    """Starts one kind of agent."""

    @property
    def agent(self) -> str:
        """The agent's name in recordings."""

    def version(self, environment: Mapping[str, str]) -> str:
        """Return the program's version, or "" if unknown."""

    def start(self, prompt: AgentPrompt) -> "AgentProcess":
        """Start a run and return at once."""


class HookSettings(Protocol):
    """The settings in which our hooks are registered; a module can implement it."""

    def events_for(self, versions: Collection[str]) -> tuple[str, ...]:
        """Return the events to register for clients of `versions`."""

    def user_settings(self, config_dir: Path) -> Path:
        """Return the path of a person's settings."""

    def project_settings(self, project: Path) -> Path:
        """Return the path of a project's settings that are this machine's own."""

    def find_plugin(self, config_dir: Path) -> str:
        """Return the command that removes our plugin from the client; "" if it is not enabled."""
