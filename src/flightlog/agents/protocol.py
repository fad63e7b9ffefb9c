"""Agent, Driver, HookSettings, Dialect.

A driver starts one program and returns its records. Callers give it the environment, time limits
and working directory; no driver reads them from the machine.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from flightlog.model.exchange import is_loopback
from flightlog.sources.protocol import FileListing, Source

if TYPE_CHECKING:
    from flightlog.agents.dialects.anthropic_messages import AssistantMessage
    from flightlog.agents.process import AgentProcess
    from flightlog.model.usage import Usage


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


class Dialect(Protocol):
    """Decoders of a model API; a module can implement it."""

    def decode_response(self, data: bytes) -> "AssistantMessage":
        """Decode a response body."""

    def decode_usage(self, value: Any) -> "Usage":
        """Return the tokens that a response reports."""


class Agent(Protocol):
    """One coding agent: the reader of its sessions, and the parts that it may lack."""

    @property
    def name(self) -> str:
        """The agent's name in recordings, and its directory below `sessions/`."""

    @property
    def source(self) -> Source:
        """The reader of its session files."""

    def find(self, dirs: Sequence[str]) -> FileListing:
        """List the session files below the agent's own directories."""

    def driver(self, program: Path) -> "Driver | None":
        """Return a driver of the client at `program`, or None for an agent that is only read."""

    def hooks(self) -> "HookSettings | None":
        """Return the agent's hook settings, or None if it has no hooks."""

    def find_plugin(self, config_dir: Path) -> str:
        """Return the command that removes our plugin from the client; "" if it is not enabled."""

    def dialect(self) -> "Dialect | None":
        """Return the decoders of the API that the agent calls, or None if it is not captured."""
