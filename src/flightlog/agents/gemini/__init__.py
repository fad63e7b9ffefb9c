"""The only code that knows Gemini CLI; exports AGENT."""

from flightlog.agents import Agent
from flightlog.agents.gemini.files import AGENT_NAME, find_sessions

AGENT = Agent(AGENT_NAME, find_sessions)
