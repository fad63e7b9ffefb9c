"""The only code that knows Codex; exports AGENT."""

from flightlog.agents import Agent
from flightlog.agents.codex.files import AGENT_NAME, find_rollouts

AGENT = Agent(AGENT_NAME, find_rollouts, has_hooks=True)
