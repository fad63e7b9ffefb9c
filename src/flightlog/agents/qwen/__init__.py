"""The only code that knows Qwen Code; exports AGENT.

Its sessions are `projects/<slug>/chats/<session>.jsonl` below `~/.qwen`. A subagent's file is
`projects/<slug>/subagents/<session>/agent-<id>.jsonl`; 0.15 wrote none.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from flightlog.agents import Agent
from flightlog.agents.session_files import describe_file, list_entries
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.adoption import TRANSCRIPT

AGENT_NAME = "qwen"
_SUBAGENT = re.compile(r"(.*)/subagents/(?:([^/]+)/)?agent-([\w.-]+)\.jsonl", re.DOTALL)


def find_sessions(dirs: Sequence[str]) -> FileListing:
    """List the sessions below directories such as `~/.qwen`, in the order of their paths."""
    damage: list[Damage] = []
    files: list[SessionFile] = []
    for folder in dirs:
        for project in list_entries(f"{folder}/projects", damage):
            files += _list_files(f"{project.path}/chats", "", damage)
            for session in list_entries(f"{project.path}/subagents", damage):
                files += _list_files(session.path, session.name, damage)
    return FileListing(tuple(sorted(files, key=lambda file: file.path)), tuple(damage))


def session_files(file: SessionFile) -> tuple[SessionFile, ...]:
    """List the current files of a session, given one of them."""
    main = main_path(file)
    own = describe_file(AGENT_NAME, main, file.session, [])
    folder = f"{main.rsplit('/', 2)[0]}/subagents/{file.session}"
    return (*((own,) if own else ()), *_list_files(folder, file.session, []))


def name_thread(file: SessionFile) -> SessionFile:
    """Return a file with the subagent that its path names."""
    found = _SUBAGENT.fullmatch(file.path)
    return replace(file, subagent=found[3]) if found else file


def main_path(file: SessionFile) -> str:
    """Return the path of the session's own file, among the client's files or in our recording."""
    found = _SUBAGENT.fullmatch(file.path)
    if found is None:
        return file.path
    return f"{found[1]}/chats/{found[2]}.jsonl" if found[2] else f"{found[1]}/{TRANSCRIPT}"


def _list_files(folder: str, session: str, damage: list[Damage]) -> Iterator[SessionFile]:
    """Yield the files of sessions, or those of the subagents of one."""
    for entry in list_entries(folder, damage):
        name = entry.name.removesuffix(".jsonl")
        if name != entry.name:
            file = describe_file(AGENT_NAME, entry.path, session or name, damage)
            if file is not None:
                yield name_thread(file)


AGENT = Agent(AGENT_NAME, find_sessions)
