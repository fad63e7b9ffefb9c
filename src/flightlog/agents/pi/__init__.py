"""The only code that knows Pi; exports AGENT."""

from flightlog.agents.pi.files import AGENT_NAME, find_sessions
from flightlog.agents.session_files import ReadOnlyAgent

AGENT = ReadOnlyAgent(AGENT_NAME, find_sessions)
