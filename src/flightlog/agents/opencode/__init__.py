"""The only code that knows OpenCode; exports AGENT."""

from flightlog.agents import Agent
from flightlog.agents.opencode.files import AGENT_NAME, find_sessions
from flightlog.agents.opencode.rows import SESSION_PATHS, read_session
from flightlog.store.recordings.reader import register_virtual_files

AGENT = Agent(AGENT_NAME, find_sessions)
register_virtual_files(SESSION_PATHS, read_session)
