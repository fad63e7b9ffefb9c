"""The only code that knows Claude Code; exports AGENT, and the names by which the client is configured."""

from collections.abc import Iterable

from flightlog.agents import Agent
from flightlog.agents.claude_code.files import AGENT_NAME, find_all_transcripts

AGENT = Agent(AGENT_NAME, find_all_transcripts, reader="source", has_hooks=True)

CONFIG_DIR = "CLAUDE_CONFIG_DIR"
TMP_DIR = "CLAUDE_CODE_TMPDIR"
MAX_RETRIES = "CLAUDE_CODE_MAX_RETRIES"
# The client sets these for the programs that it starts.
SESSION_ID = "CLAUDE_CODE_SESSION_ID"
PROJECT_DIR = "CLAUDE_PROJECT_DIR"
PLUGIN_ROOT = "CLAUDE_PLUGIN_ROOT"
CLOUD_SWITCHES = {"bedrock": "CLAUDE_CODE_USE_BEDROCK", "vertex": "CLAUDE_CODE_USE_VERTEX"}
PROJECT_SETTINGS = ".claude/settings.json"


def allow_tools(names: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments by which a session may use these tools; () for none."""
    tools = ",".join(names)
    return ("--allowedTools", tools) if tools else ()


def use_settings(text: str) -> tuple[str, ...]:
    """Return the arguments that add settings to those of the client's files."""
    return ("--settings", text)
