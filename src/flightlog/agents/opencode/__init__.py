"""The only code that knows OpenCode; exports AGENT."""

from flightlog.agents.opencode.files import AGENT_NAME, find_sessions
from flightlog.agents.opencode.rows import SESSION_PATHS, read_session
from flightlog.agents.session_files import ReadOnlyAgent
from flightlog.store.recordings.reader import register_virtual_files

AGENT = ReadOnlyAgent(AGENT_NAME, find_sessions)
register_virtual_files(SESSION_PATHS, read_session)
