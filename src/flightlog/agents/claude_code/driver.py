"""Driving Claude Code: find it, give it a sandbox of its own, run `-p` sessions.

The client inherits a lot when it can (keys, hooks, a surrounding session), so it is always
given its whole environment; `isolated_environment` makes one in which it can reach only `base_url` and
writes only below the directories it is told.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.stream import read_session_id
from flightlog.agents.process import AgentProcess
from flightlog.agents.protocol import AgentPrompt, without_proxy
from flightlog.model.errors import NotFound

VERSION_TIMEOUT_S = 20
_FOLDER_CHARS_MAX = 200
_READING_TOOLS = ("Read", "Grep", "Glob")
_OTHER_TOOLS = ("Write", "Edit", "MultiEdit", "NotebookEdit", "Bash", "WebFetch", "WebSearch", "Task", "Agent")
_LEFT_BEHIND = re.compile(r"ANTHROPIC_|CLAUDE|AI_AGENT$|OTEL_|IS_SANDBOX$|MCP_|FLIGHTLOG_")


class ClientSandbox(Struct, frozen=True):
    """The directories a client may write to, and the model it may reach."""

    home: Path
    temporary: Path
    base_url: str
    key: str
    retries: int = 2


class ClaudeCode(Struct, frozen=True):
    """The Claude Code client at `program`."""

    program: Path

    @property
    def agent(self) -> str:
        """The name recordings are filed under."""
        return AGENT_NAME

    def version(self, environment: Mapping[str, str]) -> str:
        """Ask the client for its version, in a home of its own: it writes there even then."""
        with tempfile.TemporaryDirectory() as home:
            clean = {"PATH": environment.get("PATH", os.defpath), "HOME": home, "CLAUDE_CONFIG_DIR": home}
            quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
            try:
                said = subprocess.run(
                    [str(self.program), "--version"],
                    env=clean | quiet,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=VERSION_TIMEOUT_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                return ""
        found = re.match(rb"(\d+\.\d+\.\d+)\b", said.stdout)
        return found[1].decode() if found else ""

    def start(self, ask: AgentPrompt) -> AgentProcess:
        """Start a `-p` session and return at once."""
        command = [*ask.before, *_command(self.program, ask)]
        environment = without_proxy(ask.environment)
        return AgentProcess(command, cwd=ask.cwd, environment=environment, session_of=read_session_id)


def find(given: str, path: str) -> Path:
    """Find the client: the one that was named, else `claude` on the search path `path`."""
    found = shutil.which(given or "claude", path=path)
    if found is None:
        what = f"no program at {given}" if given else "no `claude` on the path"
        raise NotFound(
            f"Claude Code was not found: {what}",
            hint="install it, or say where it is: export FLIGHTLOG_CLAUDE=/path/to/claude",
        )
    return Path(found)


def isolated_environment(sandbox: ClientSandbox, path: str) -> dict[str, str]:
    """The whole environment of a client that touches nothing outside `sandbox`."""
    return {
        "PATH": path,
        "HOME": str(sandbox.home),
        "TMPDIR": str(sandbox.temporary),
        "CLAUDE_CODE_TMPDIR": str(sandbox.temporary),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": sandbox.base_url,
        "ANTHROPIC_API_KEY": sandbox.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(sandbox.retries),
    }


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a surrounding agent leaves in it: its keys, its session, its settings."""
    return {name: value for name, value in environ.items() if not _LEFT_BEHIND.match(name)}


def project_folder(path: str) -> str:
    """Name the folder of a project's transcripts, as the client does; `path` is the real one."""
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


def _command(program: Path, ask: AgentPrompt) -> list[str]:
    command = [str(program), "-p", "--output-format", "stream-json", "--verbose"]
    if ask.resume:
        command += ["--resume", ask.resume]
    if ask.fork:
        command.append("--fork-session")
    if ask.session:
        command += ["--session-id", ask.session]
    if ask.read_only:
        command += ["--allowedTools", ",".join(_READING_TOOLS), "--disallowedTools", ",".join(_OTHER_TOOLS)]
    # The prompt comes last: it may begin with a dash, and options before it may take several words.
    return [*command, *ask.arguments, "--", ask.prompt]
