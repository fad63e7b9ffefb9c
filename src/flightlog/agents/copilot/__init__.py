"""The only code that knows Copilot CLI; exports AGENT."""

from flightlog.agents.copilot.files import AGENT_NAME, find_sessions
from flightlog.agents.session_files import ReadOnlyAgent

AGENT = ReadOnlyAgent(AGENT_NAME, find_sessions)
