"""Prepare an agent for a session: its driver, arguments and environment.

Claude Code gets a configuration directory of its own if a key or a scripted model makes the
person's login unnecessary. As root it refuses to bypass permissions, so the allowed tools are
listed instead, and the run records that.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from flightlog import __version__
from flightlog.agents.claude_code import CLOUD_SWITCHES, CONFIG_DIR, MAX_RETRIES, TMP_DIR, driver
from flightlog.agents.process import CommandDriver, scripted_driver
from flightlog.agents.protocol import Driver
from flightlog.lab.config import (
    RunConfig,
    SessionConfig,
    referenced_names,
    referenced_secrets,
    resolve_references,
)
from flightlog.lab.runner.context import RunEnvironment
from flightlog.model.errors import Invalid

AS_ROOT = "root may not bypass permissions: the allowed tools are listed and edits accepted instead"
UPSTREAMS = {"anthropic": "https://api.anthropic.com", "openrouter": "https://openrouter.ai/api"}
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
# Set by a person on purpose; never left behind by a surrounding agent.
_KEPT = ("ANTHROPIC_VERTEX_", "ANTHROPIC_BEDROCK_", MAX_RETRIES)


class PermissionMode(Struct, frozen=True):
    """The mode an agent runs in, and why it is not the configured one."""

    mode: str
    note: str = ""


def select_driver(config: RunConfig, environment: RunEnvironment) -> Driver:
    """Return the driver of the configured agent.

    Raises NotFound if it is not installed, Misconfigured if a variable it refers to is not set.
    """
    referenced_secrets(config, environment.environ)
    match config.engine:
        case "scripted":
            return scripted_driver(config.model, __version__)
        case "command":
            return CommandDriver(config.command, model=config.model)
        case _:
            given = environment.environ.get("FLIGHTLOG_CLAUDE", "")
            return driver.ClaudeCode(driver.find(given, environment.runtime.program_path))


def choose_permission(config: RunConfig, *, is_root: bool) -> PermissionMode:
    if config.engine == "claude_code" and config.permission_mode == "bypassPermissions" and is_root:
        return PermissionMode("acceptEdits", AS_ROOT)
    return PermissionMode(config.permission_mode)


def is_captured(config: RunConfig) -> bool:
    """Return whether requests can be captured: the proxy cannot forward signed cloud requests."""
    return config.capture_api_requests and config.provider not in CLOUD_SWITCHES


def agent_credentials(config: RunConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the credentials a run may use, under the names the agent expects."""
    if config.provider == "openrouter":
        key = environ.get("OPENROUTER_API_KEY", "")
        return {"ANTHROPIC_AUTH_TOKEN": key} if key else {}
    return {name: environ[name] for name in _KEYS if environ.get(name)}


def known_secrets(config: RunConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that the agent gets and no file of the run may hold."""
    return (*agent_credentials(config, environ).values(), *referenced_secrets(config, environ))


def resolve_upstream(config: RunConfig, environ: Mapping[str, str]) -> str:
    """Return the address for requests: the run's, else the environment's, else the provider's.

    A key set together with `ANTHROPIC_BASE_URL` belongs to that address; raises Invalid for another
    one.
    """
    is_own = config.provider == "anthropic"
    environ_address = environ.get("ANTHROPIC_BASE_URL", "") if is_own else ""
    is_other = _url_origin(config.base_url) != _url_origin(environ_address)
    if config.base_url and environ_address and is_other and agent_credentials(config, environ):
        raise Invalid(
            f"the key belongs to {environ_address[:100]}, but the run sends to {config.base_url[:100]}",
            hint="unset ANTHROPIC_BASE_URL, and set the key of the run's address",
        )
    address = config.base_url or environ_address or UPSTREAMS.get(config.provider, "")
    if address and not address.startswith(("https://", "http://")):
        raise Invalid(
            f"not the address of an API: {address[:80]!r}", hint="it starts with https://"
        )
    return address


def _url_origin(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def agent_environment(
    config: RunConfig, environment: RunEnvironment, scratch: Path, base_url: str
) -> dict[str, str]:
    variables = driver.clean_environment(environment.environ)
    variables |= {
        name: value for name, value in environment.environ.items() if name.startswith(_KEPT)
    }
    variables |= agent_credentials(config, environment.environ) | {TMP_DIR: str(scratch / "tmp")}
    if config.provider in CLOUD_SWITCHES:
        variables[CLOUD_SWITCHES[config.provider]] = "1"
    if base_url:
        variables["ANTHROPIC_BASE_URL"] = base_url
    if config.scenario is not None and not agent_credentials(config, environment.environ):
        variables["ANTHROPIC_API_KEY"] = "no-key-is-needed-by-a-scripted-model"
    if has_own_config_dir(config, environment.environ):
        variables[CONFIG_DIR] = str(config_dir(scratch))
    elif CONFIG_DIR in environment.environ:
        variables[CONFIG_DIR] = environment.environ[CONFIG_DIR]
    own = {name: resolve_references(text, environment.environ) for name, text in config.env.items()}
    # The agent itself resolves the references in its configuration of servers.
    passed = {name: environment.environ[name] for name in referenced_names(config.mcp_config)}
    return variables | driver.QUIET | passed | own


def has_own_config_dir(config: RunConfig, environ: Mapping[str, str]) -> bool:
    """Return whether the agent needs nothing from the person's configuration."""
    return (
        config.scenario is not None
        or config.provider in CLOUD_SWITCHES
        or bool(agent_credentials(config, environ))
    )


def config_dir(scratch: Path) -> Path:
    """Return the configuration directory that the agents of a run share."""
    return scratch / "config"


def agent_arguments(
    config: RunConfig, session: SessionConfig, mode: str, *, budget_usd: float | None, resumes: bool
) -> list[str]:
    if config.engine != "claude_code":
        turns = str(session.max_turns or config.max_turns)
        return ["--max-turns", turns] if config.engine == "scripted" else []
    servers = config.mcp_config or ""
    # Clients before 2.1 call the tool `Task`; each client ignores the other name.
    agent_tools = ("Agent", "Task") if config.agents else ()
    options = driver.SessionOptions(
        config.model,
        session.max_turns or config.max_turns,
        mode,
        tuple(dict.fromkeys((*config.allowed_tools, *agent_tools))),
        budget_usd,
        session.system_prompt or config.system_prompt or "",
        {agent.name: _subagent_definition(agent) for agent in config.agents},
        config.load_project_settings,
        config.effort or "",
        servers if isinstance(servers, str) else json.dumps(servers),
    )
    return driver.session_arguments(options, resumes=resumes)


def own_arguments(config: RunConfig, environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of the configuration, with their references resolved."""
    return [resolve_references(word, environ) for word in config.args]


def _subagent_definition(agent: Any) -> dict[str, Any]:
    definition = {"description": agent.description, "prompt": agent.prompt}
    definition |= {"tools": list(agent.tools)} if agent.tools is not None else {}
    return definition | ({"model": agent.model} if agent.model else {})
