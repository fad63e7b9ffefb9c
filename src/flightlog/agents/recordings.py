"""List transcripts: the agents' own files, and our copies of what it deleted or rewrote.

A file that still exists is read in place. Of a deleted file every generation of our copy is read;
of a rewritten file the older generations, which contain what the agent removed.
"""

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from flightlog.agents import REGISTRY, SAMPLES, RegisteredAgent, agent_names, find_agent
from flightlog.agents.claude_code.files import (
    AGENT_NAME,
    SUBAGENTS,
    absolute_path,
    find_config_dirs,
    normalize_path,
    subagent_file_name,
)
from flightlog.model.errors import Damage, Misconfigured, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.model.session import SessionFile
from flightlog.model.text import suggest_name
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.adoption import (
    TRANSCRIPT,
    list_recorded_sessions,
    list_recorded_transcripts,
    session_dir,
)
from flightlog.store.recordings.recording import Recording, generation_path

AgentDirs = Mapping[str, tuple[str, ...]]
"""The directories of each agent, by its name."""
_MORE_DIRS = "FLIGHTLOG_AGENTS_DIRECTORIES"


def reads_samples(runtime: Runtime) -> bool:
    """Return whether the recordings are the samples that ship with the package."""
    return find_config_dirs(runtime) == [str(SAMPLES)]


def find_agent_dirs(runtime: Runtime) -> AgentDirs:
    """Return the directories of each agent that has any: where its variable, its settings or habit say.

    Claude Code always has one, so that a machine without sessions says where they are looked for.
    """
    found = {AGENT_NAME: find_config_dirs(runtime)}
    if reads_samples(runtime):
        return {AGENT_NAME: tuple(found[AGENT_NAME])}
    for agent in REGISTRY:
        found.setdefault(agent.name, []).extend(_find_dirs(agent, runtime))
    for name, path in _read_more_dirs(runtime):
        if os.path.isdir(path):  # noqa: PTH112 - as above
            found[name].append(path)
    return {name: tuple(dict.fromkeys(dirs)) for name, dirs in found.items() if dirs}


def find_missing_dirs(runtime: Runtime) -> list[str]:
    """Return the directories that the setting names and that do not exist."""
    named = (path for _, path in _read_more_dirs(runtime))
    return [path for path in named if not os.path.isdir(path)]  # noqa: PTH112 - as above


def _read_more_dirs(runtime: Runtime) -> Iterator[tuple[str, str]]:
    """Yield the agents and directories of the setting, which only the user's own file may have."""
    origin, text = _MORE_DIRS, runtime.environ.get(_MORE_DIRS)
    if text is None and os.path.isfile(runtime.settings_file):  # noqa: PTH113 - as above
        origin = runtime.settings_file
        folder = os.path.dirname(origin)  # noqa: PTH120 - as above
        setting = runtime.read_config(folder)["agents.directories"]
        text = str(setting.value) if setting.origin == origin else ""
    for part in filter(None, map(str.strip, (text or "").split(","))):
        name, _, given = map(str.strip, part.partition("="))
        path = os.path.expanduser(given)  # noqa: PTH111 - as above
        if name not in agent_names():
            hint = suggest_name(name, list(agent_names()))
            raise Misconfigured(f"no such agent: {name[:40]!r} in {origin}", hint=hint)
        if not path.startswith("/"):
            hint = f"{name}=/an/absolute/path"
            raise Misconfigured(f"not an absolute path: {part[:200]!r} in {origin}", hint=hint)
        yield name, normalize_path(path)


def _find_dirs(agent: RegisteredAgent, runtime: Runtime) -> Iterator[str]:
    if agent.name == AGENT_NAME:
        return  # `find_config_dirs` knows its two usual directories
    variable = runtime.environ.get(agent.variable, "") if agent.variable else ""
    given = [part.strip() for part in variable.split(",") if part.strip()]
    dirs = [f"{absolute_path(agent.variable, part)}/{agent.below}".rstrip("/") for part in given]
    for path in dirs or [f"{runtime.home}/{name}" for name in agent.usual]:
        if os.path.isdir(path):  # noqa: PTH112 - plain text, as paths are here
            yield path


def index_path(runtime: Runtime, dirs: AgentDirs) -> str:
    """Return the path of the index over the sessions in `dirs`.

    Each set of directories has an index of its own: a sync removes the files it does not list.
    """
    if dirs == find_agent_dirs(replace(runtime, environ={})):
        return f"{runtime.data_dir}/index.db"
    names = "\0".join(sorted(path for paths in dirs.values() for path in paths))
    return f"{runtime.data_dir}/index-{zlib.crc32(names.encode('utf-8', 'surrogateescape')):08x}.db"


def list_recorded_files(dirs: AgentDirs, home: str) -> FileListing:
    """List every transcript: the agents' own below `dirs`, our copies below `home`."""
    files: list[SessionFile] = []
    damage: list[Damage] = []
    for name in dict.fromkeys((*dirs, *_list_recorded_agents(home))):
        listing = find_agent(name).find(dirs[name]) if name in dirs else FileListing(())
        files += listing.files
        damage += listing.damage
        files += _adopted_files(name, listing.files, home, damage) if home else ()
    return FileListing(tuple(files), tuple(damage))


def _list_recorded_agents(home: str) -> list[str]:
    """Return the agents of which we have copies."""
    return [name for name in agent_names() if home and os.path.isdir(f"{home}/sessions/{name}")]  # noqa: PTH112


def recording_name(transcript: SessionFile) -> str:
    """Return the name of a transcript inside our recording of its session."""
    if not transcript.subagent:
        return TRANSCRIPT
    return f"{SUBAGENTS}/{subagent_file_name(transcript)}"


def _adopted_files(
    agent: str, live: Iterable[SessionFile], home: str, damage: list[Damage]
) -> Iterator[SessionFile]:
    sessions, rewritten = list_recorded_sessions(home, agent)
    if not sessions:
        return
    present: dict[str, set[str]] = defaultdict(set)
    for transcript in live:
        present[transcript.session].add(recording_name(transcript))
    whole = {session for session, names in present.items() if TRANSCRIPT in names}
    for session in sorted(sessions - (whole - rewritten)):
        root = session_dir(home, agent, session)
        try:
            copies = list_recorded_transcripts(home, agent, session)
        except OSError as error:
            damage.append(Damage(str(root), 0, 0, error.strerror or "unreadable"))
            copies = {}
        if not copies and not present[session] and not _has_no_recording(root):
            # Listed although it has no files left, so that a lost session does not vanish silently.
            yield SessionFile(str(root / TRANSCRIPT), session, 0, 0, agent=agent)
        for name, numbers in sorted(copies.items()):
            # The newest generation is what the agent still has.
            missing = numbers[:-1] if name in present[session] else numbers
            for file in _iter_generations(root / name, session, missing, damage):
                yield replace(file, agent=agent)


def _has_no_recording(root: Path) -> bool:
    """Return whether only the hook wrote to a session's directory so far."""
    is_readable = root.is_dir() and os.access(root, os.R_OK | os.X_OK)
    return is_readable and not (root / "meta.json").exists()


def _iter_generations(
    path: Path, session: str, numbers: Iterable[int], damage: list[Damage]
) -> Iterator[SessionFile]:
    subagent = path.stem.removeprefix("agent-") if path.stem != Path(TRANSCRIPT).stem else ""
    for number in numbers:
        generation = generation_path(path, number)
        try:
            with Recording(generation) as recording:
                # Our copies only grow, so a change shows in the size. A restored copy may have the
                # same size: the count of its damaged predecessors serves as the inode.
                restored = sum(1 for _ in generation.parent.glob(f"{generation.name}*.damaged-*"))
                state = (recording.size, 0, subagent)
                yield SessionFile(str(generation), session, *state, inode=restored)
        except (OSError, Unavailable) as error:
            text = getattr(error, "strerror", "") or str(error)
            damage.append(Damage(str(generation), 0, 0, text))
