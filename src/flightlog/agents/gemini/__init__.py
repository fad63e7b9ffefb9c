"""The only code that knows Gemini CLI; exports AGENT."""

from flightlog.agents.gemini.files import AGENT_NAME, find_sessions
from flightlog.agents.session_files import ReadOnlyAgent

AGENT = ReadOnlyAgent(AGENT_NAME, find_sessions)
