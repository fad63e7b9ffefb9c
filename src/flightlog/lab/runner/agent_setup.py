"""How an agent is asked for one session: its driver, its arguments, its environment.

Claude Code gets a configuration directory of its own where a key or a scripted model makes the
person's login unnecessary. As root it refuses to bypass permissions, so the allowed tools are
named instead, and the run says so.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from flightlog import __version__
from flightlog.agents.claude_code.driver import (
    QUIET,
    ClaudeCode,
    SessionOptions,
    clean_environment,
    find,
    session_arguments,
)
from flightlog.agents.process import CommandDriver, scripted_driver
from flightlog.agents.protocol import Driver
from flightlog.lab.config import RunConfig, SessionConfig
from flightlog.lab.runner.context import RunEnvironment
from flightlog.model.errors import Invalid

AS_ROOT = "root may not bypass permissions: the allowed tools are named and edits accepted instead"
UPSTREAMS = {"anthropic": "https://api.anthropic.com", "openrouter": "https://openrouter.ai/api"}
_CLOUDS = {"bedrock": "CLAUDE_CODE_USE_BEDROCK", "vertex": "CLAUDE_CODE_USE_VERTEX"}
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
# What a person sets on purpose and no surrounding agent leaves behind.
_KEPT = ("ANTHROPIC_VERTEX_", "ANTHROPIC_BEDROCK_", "CLAUDE_CODE_MAX_RETRIES")


class PermissionMode(Struct, frozen=True):
    """The mode an agent runs in, and why it is not the one that was asked for."""

    mode: str
    note: str = ""


def select_driver(config: RunConfig, setting: RunEnvironment) -> Driver:
    """Find the agent a configuration names."""
    match config.engine:
        case "scripted":
            return scripted_driver(config.model, __version__)
        case "command":
            return CommandDriver(config.command, model=config.model)
        case _:
            return ClaudeCode(find(setting.environ.get("FLIGHTLOG_CLAUDE", ""), setting.runtime.program_path))


def choose_permission(config: RunConfig, *, is_root: bool) -> PermissionMode:
    """Say which permission mode the agent gets."""
    if config.engine == "claude_code" and config.permission_mode == "bypassPermissions" and is_root:
        return PermissionMode("acceptEdits", AS_ROOT)
    return PermissionMode(config.permission_mode)


def is_captured(config: RunConfig) -> bool:
    """Whether requests can be captured: a signed cloud request cannot be passed on by somebody else."""
    return config.capture_api_requests and config.provider not in _CLOUDS


def agent_credentials(config: RunConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The credentials a run may use, as the agent wants them named."""
    if config.provider == "openrouter":
        key = environ.get("OPENROUTER_API_KEY", "")
        return {"ANTHROPIC_AUTH_TOKEN": key} if key else {}
    return {name: environ[name] for name in _KEYS if environ.get(name)}


def resolve_upstream(config: RunConfig, environ: Mapping[str, str]) -> str:
    """Return the address a run's requests go to: its own, else the environment's, else the provider's.

    A key that is set beside `ANTHROPIC_BASE_URL` belongs to that address, so another one is refused.
    """
    given = environ.get("ANTHROPIC_BASE_URL", "") if config.provider == "anthropic" else ""
    if (
        config.base_url
        and given
        and _url_origin(config.base_url) != _url_origin(given)
        and agent_credentials(config, environ)
    ):
        raise Invalid(
            f"the key in the environment belongs to {given[:100]}, and the run sends to {config.base_url[:100]}",
            hint="unset ANTHROPIC_BASE_URL, and set the key of the run's address",
        )
    address = config.base_url or given or UPSTREAMS.get(config.provider, "")
    if address and not address.startswith(("https://", "http://")):
        raise Invalid(f"not an address of an API: {address[:80]!r}", hint="it begins with https://")
    return address


def _url_origin(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def agent_environment(config: RunConfig, setting: RunEnvironment, scratch: Path, base_url: str) -> dict[str, str]:
    """The whole environment of one agent."""
    own = clean_environment(setting.environ)
    own |= {name: value for name, value in setting.environ.items() if name.startswith(_KEPT)}
    own |= agent_credentials(config, setting.environ) | {"CLAUDE_CODE_TMPDIR": str(scratch / "tmp")}
    if config.provider in _CLOUDS:
        own[_CLOUDS[config.provider]] = "1"
    if base_url:
        own["ANTHROPIC_BASE_URL"] = base_url
    if config.scenario is not None and not agent_credentials(config, setting.environ):
        own["ANTHROPIC_API_KEY"] = "no-key-is-needed-by-a-scripted-model"
    if has_own_config_dir(config, setting.environ):
        own["CLAUDE_CONFIG_DIR"] = str(config_dir(scratch))
    elif "CLAUDE_CONFIG_DIR" in setting.environ:
        own["CLAUDE_CONFIG_DIR"] = setting.environ["CLAUDE_CONFIG_DIR"]
    return own | QUIET


def has_own_config_dir(config: RunConfig, environ: Mapping[str, str]) -> bool:
    """Whether the agent needs nothing of the person's own configuration."""
    return config.scenario is not None or config.provider in _CLOUDS or bool(agent_credentials(config, environ))


def config_dir(scratch: Path) -> Path:
    """The configuration directory the agents of a run share."""
    return scratch / "config"


def agent_arguments(
    config: RunConfig, session: SessionConfig, mode: str, *, budget_usd: float | None, resumes: bool
) -> list[str]:
    """The words after an agent's name."""
    if config.engine != "claude_code":
        turns = str(session.max_turns or config.max_turns)
        return ["--max-turns", turns] if config.engine == "scripted" else []
    options = SessionOptions(
        config.model,
        session.max_turns or config.max_turns,
        mode,
        (*config.allowed_tools, *(["Agent"] if config.agents and "Agent" not in config.allowed_tools else [])),
        budget_usd,
        session.system_prompt or config.system_prompt or "",
        {agent.name: _subagent_definition(agent) for agent in config.agents},
        config.load_project_settings,
    )
    return session_arguments(options, resumes=resumes)


def _subagent_definition(agent: Any) -> dict[str, Any]:
    said = {"description": agent.description, "prompt": agent.prompt}
    said |= {"tools": list(agent.tools)} if agent.tools is not None else {}
    return said | ({"model": agent.model} if agent.model else {})
