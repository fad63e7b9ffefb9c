"""The only code that knows Pi; exports AGENT.

Its sessions are `agent/sessions/--<directory>--/<time>_<session>.jsonl`.
"""

import os
from collections.abc import Sequence

from flightlog.agents import Agent
from flightlog.agents.session_files import describe_file, list_entries
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing

AGENT_NAME = "pi"


def find_sessions(dirs: Sequence[str]) -> FileListing:
    """List the sessions below Pi's own directories."""
    damage: list[Damage] = []
    files: list[SessionFile | None] = []
    for pi_dir in dirs:
        for project in list_entries(f"{pi_dir}/agent/sessions", damage):
            # Versions before the directories of projects wrote the files here.
            is_folder = os.path.isdir(project.path)  # noqa: PTH112 - never raises
            for entry in list_entries(project.path, damage) if is_folder else [project]:
                name = entry.name.removesuffix(".jsonl")
                if name != entry.name:
                    session = name.partition("_")[2] or name
                    files.append(describe_file(AGENT_NAME, entry.path, session, damage))
    return FileListing(tuple(file for file in files if file), tuple(damage))


AGENT = Agent(AGENT_NAME, find_sessions)
