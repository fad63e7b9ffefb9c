"""The only code that knows Claude Code; exports AGENT."""

from flightlog.agents import Agent
from flightlog.agents.claude_code.files import AGENT_NAME, find_all_transcripts

AGENT = Agent(AGENT_NAME, find_all_transcripts, reader="source", has_hooks=True)
