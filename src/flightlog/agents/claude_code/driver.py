"""Find Claude Code, build its environment and arguments, run `-p` sessions.

The client would inherit keys, hooks and a surrounding session, so every caller passes its whole
environment.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.claude_code import CONFIG_DIR, allow_tools
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.stream import read_session_id
from flightlog.agents.process import AgentProcess
from flightlog.agents.protocol import AgentPrompt, without_proxy
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime

VERSION_TIMEOUT_S = 20
EVERY_TOOL = "default"  # the client's own word for all of its tools
# With these a headless client has the tools of an interactive one, such as AskUserQuestion. No
# person answers, so a question fails as any tool may.
INTERACTIVE = ("--permission-prompt-tool", "stdio")
# Stops the traffic that a client causes on its own: updates, telemetry, error reports.
QUIET = dict.fromkeys(
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC DISABLE_AUTOUPDATER DISABLE_TELEMETRY "
    "DISABLE_ERROR_REPORTING".split(),
    "1",
)
_ARGUMENT_BYTES_MAX = 128 << 10  # MAX_ARG_STRLEN, with the NUL at its end
_FOLDER_CHARS_MAX = 200  # the client cuts longer names and appends a hash
_READING_TOOLS = ("Read", "Grep", "Glob")
_OTHER_TOOLS = tuple("Write Edit MultiEdit NotebookEdit Bash WebFetch WebSearch Task Agent".split())
_AGENT_VARIABLES = re.compile(r"ANTHROPIC_|CLAUDE|AI_AGENT$|OTEL_|IS_SANDBOX$|MCP_|FLIGHTLOG_")


class SessionOptions(Struct, frozen=True):
    """Model, limits, tools and prompt of a headless session; `agents` are definitions by name."""

    model: str
    max_turns: int
    permission_mode: str
    tools: tuple[str, ...]
    budget_usd: float | None = None
    system_prompt: str = ""
    agents: Mapping[str, Mapping[str, Any]] = {}
    project_settings: bool = False
    effort: str = ""
    mcp_config: str = ""


class ClaudeCode(Struct, frozen=True):
    """The Claude Code client at `program`."""

    program: Path

    @property
    def agent(self) -> str:
        """The name recordings are filed under."""
        return AGENT_NAME

    def version(self, environment: Mapping[str, str]) -> str:
        """Return the version that the client prints, or "" if it fails."""
        # `--version` writes to the home directory too, so it gets a temporary one.
        with tempfile.TemporaryDirectory() as home:
            clean = {"PATH": environment.get("PATH", os.defpath), "HOME": home, CONFIG_DIR: home}
            try:
                process = subprocess.run(
                    [str(self.program), "--version"],
                    env=clean | QUIET,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=VERSION_TIMEOUT_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                return ""
        version = re.match(rb"(\d+\.\d+\.\d+)\b", process.stdout)
        return version[1].decode() if version else ""

    def start(self, prompt: AgentPrompt) -> AgentProcess:
        """Start a `-p` session and return at once."""
        command = [*prompt.before, str(self.program), "-p", "--verbose"]
        command += ["--output-format", "stream-json"]
        if prompt.resume:
            command += ["--resume", prompt.resume]
        if prompt.fork:
            command.append("--fork-session")
        if prompt.session:
            command += ["--session-id", prompt.session]
        if prompt.read_only:
            command += allow_tools(_READING_TOOLS)
            command += ["--disallowedTools", ",".join(_OTHER_TOOLS)]
        # The prompt comes last: it may begin with a dash, and options may take several words.
        by_stdin = is_too_long(prompt.prompt)
        command += [*prompt.arguments, *(() if by_stdin else ("--", prompt.prompt))]
        return AgentProcess(
            command,
            cwd=prompt.cwd,
            environment=without_proxy(prompt.environment),
            session_of=read_session_id,
            stdin=prompt.prompt.encode() if by_stdin else b"",
        )


def is_too_long(argument: str) -> bool:
    """Return whether Linux refuses `argument` as one word of a command."""
    return len(argument.encode("utf-8", "replace")) >= _ARGUMENT_BYTES_MAX


def find(given: str, path: str) -> Path:
    """Return the client's program: `given`, else `claude` on the search path `path`."""
    program = shutil.which(given or "claude", path=path)
    if program is None:
        detail = f"no program at {given}" if given else "no `claude` on the path"
        hint = "install it, or name its path: export FLIGHTLOG_CLAUDE=/path/to/claude"
        raise NotFound(f"Claude Code was not found: {detail}", hint=hint)
    return Path(program)


def session_arguments(options: SessionOptions, *, resumes: bool) -> list[str]:
    """Return the client's options for a headless session."""
    allowed = [tool for tool in options.tools if tool != EVERY_TOOL]
    words = ["--model", options.model, "--max-turns", str(options.max_turns)]
    words += ["--permission-mode", options.permission_mode, "--allowedTools", *allowed]
    names = ",".join(dict.fromkeys(tool.partition("(")[0] for tool in options.tools))
    words += ["--tools", EVERY_TOOL if EVERY_TOOL in options.tools else names]
    if options.budget_usd is not None:
        words += ["--max-budget-usd", f"{options.budget_usd:.6f}"]
    if options.system_prompt:
        # By default a resumed conversation keeps the system prompt it began with.
        snapshot = ["--system-prompt-snapshot", "off"] if resumes else []
        words += ["--system-prompt", options.system_prompt, *snapshot]
    if options.agents:
        words += ["--agents", json.dumps(options.agents)]
    if not options.project_settings:
        words += ["--setting-sources", "", "--strict-mcp-config"]
    words += ["--effort", options.effort] if options.effort else []
    words += ["--mcp-config", options.mcp_config] if options.mcp_config else []
    return words


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the keys, session and settings of a surrounding agent."""
    return {name: value for name, value in environ.items() if not _AGENT_VARIABLES.match(name)}


def project_folder(path: str) -> str:
    """Return the client's name for the directory of a project's transcripts; `path` is resolved."""
    # The client is JavaScript: it counts and hashes UTF-16 code units, in 32-bit integers.
    units = path.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    name = "".join(chr(code) if code < 128 and chr(code).isalnum() else "-" for code in codes)
    if len(name) <= _FOLDER_CHARS_MAX:
        return name
    digest = 0
    for code in codes:
        digest = (digest * 31 + code + 2**31) % 2**32 - 2**31
    return f"{name[:_FOLDER_CHARS_MAX]}-{_base36(abs(digest))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def list_client_versions(runtime: Runtime) -> tuple[str, ...]:
    """Return the versions of all clients here, "" for one that does not report it."""
    return tuple(ClaudeCode(program).version(runtime.environ) for program in _list_clients(runtime))


def _list_clients(runtime: Runtime) -> tuple[Path, ...]:
    """Return every Claude Code here: the configured one, or each on the search path."""
    if configured := runtime.environ.get("FLIGHTLOG_CLAUDE", ""):
        return (Path(configured),)
    paths = [Path(folder) / "claude" for folder in runtime.program_path.split(os.pathsep)]
    real = {
        path.resolve(): path
        for path in reversed(paths)
        if os.access(path, os.X_OK) and path.is_file()  # in this order: `is_file` may raise
    }
    return tuple(sorted(real.values()))
