"""The only code that knows Copilot CLI; exports AGENT.

Its sessions are `session-state/<id>/events.jsonl`, in old versions `<id>.jsonl`.
"""

import os
from collections.abc import Sequence

from flightlog.agents import Agent
from flightlog.agents.session_files import describe_file, list_entries
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing

AGENT_NAME = "copilot"
WORKSPACE = "workspace.yaml"  # beside the events: directory, git branch and title
_EVENTS = "events.jsonl"


def find_sessions(dirs: Sequence[str]) -> FileListing:
    """List the sessions below configuration directories."""
    damage: list[Damage] = []
    files: list[SessionFile | None] = []
    for config_dir in dirs:
        for entry in list_entries(f"{config_dir}/session-state", damage):
            if entry.name.startswith("."):
                continue  # the client's locks
            if os.path.isdir(entry.path):  # noqa: PTH112 - never raises, unlike that of the entry
                path = f"{entry.path}/{_EVENTS}"
                files.append(describe_file(AGENT_NAME, path, entry.name, damage))
            elif entry.name.endswith(".jsonl"):
                session = entry.name.removesuffix(".jsonl")
                files.append(describe_file(AGENT_NAME, entry.path, session, damage))
    return FileListing(tuple(file for file in files if file), tuple(damage))


def workspace_path(file: SessionFile) -> str:
    """Return the path of the client's notes beside a session's events."""
    return os.path.join(os.path.dirname(file.path), WORKSPACE)  # noqa: PTH118, PTH120 - plain text


AGENT = Agent(AGENT_NAME, find_sessions, remove_plugin="copilot plugin uninstall")
