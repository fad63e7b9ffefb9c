"""The only code that knows Qwen Code; exports AGENT."""

from flightlog.agents.qwen.files import AGENT_NAME, find_sessions
from flightlog.agents.session_files import ReadOnlyAgent

AGENT = ReadOnlyAgent(AGENT_NAME, find_sessions)
