"""List and adopt transcripts: the agent's own files, and our copies of what it deleted or rewrote.

A file that still exists is read in place. Of a deleted file every generation of our copy is read;
of a rewritten file the older generations, which contain what the agent removed.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flightlog.agents import SAMPLES
from flightlog.agents.claude_code.files import (
    AGENT_NAME,
    SUBAGENTS,
    find_config_dirs,
    find_transcripts,
    spilled_output_path,
    subagent_file_name,
    subagent_info_path,
)
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.adoption import (
    TRANSCRIPT,
    list_recorded_sessions,
    list_recorded_transcripts,
    session_dir,
)
from flightlog.store.recordings.recording import Recording, generation_path

if TYPE_CHECKING:
    from flightlog.store.recordings.sessions import SessionAdoption


def reads_samples(runtime: Runtime) -> bool:
    """Return whether the recordings are the samples that ship with the package."""
    return find_config_dirs(runtime) == [str(SAMPLES)]


def list_recorded_files(config_dirs: Sequence[str], home: str) -> FileListing:
    """List every transcript: the agent's below `config_dirs`, our copies below `home`."""
    listings = [find_transcripts(config_dir) for config_dir in config_dirs]
    transcripts = [transcript for listing in listings for transcript in listing.files]
    damage = [item for listing in listings for item in listing.damage]
    copies = tuple(_adopted_files(transcripts, home, damage)) if home else ()
    return FileListing((*transcripts, *copies), tuple(damage))


def adopt_session_files(home: str, session: str, files: Iterable[SessionFile]) -> "SessionAdoption":
    """Copy the new bytes of a session's files into our own recording."""
    from flightlog.store.recordings.sessions import adopt_session  # noqa: PLC0415 - a report adopts nothing

    return adopt_session(Path(home), AGENT_NAME, session, agent_files(home, files))


def agent_files(home: str, files: Iterable[SessionFile]) -> dict[str, Path]:
    """Return the agent's own files of a session by their names in our recording."""
    sources: dict[str, Path] = {}
    for file in sorted(files, key=lambda file: file.size):
        path = Path(file.path)
        if path.is_symlink():
            path = path.resolve()  # sessions listed through links are archived through them
        if path.is_relative_to(home):
            continue
        sources[recording_name(file)] = path
        info = Path(subagent_info_path(file))
        if file.subagent and info.is_file():
            sources[subagent_info_path(replace(file, path=recording_name(file)))] = info
        with suppress(OSError):
            outputs = sorted(Path(spilled_output_path(file, "x")).parent.iterdir())
            sources |= {
                f"tool-results/{path.name}": path
                for path in outputs
                if path.is_file() and is_safe(path.name)
            }
    return sources


def recording_name(transcript: SessionFile) -> str:
    """Return the name of a transcript inside our recording of its session."""
    if not transcript.subagent:
        return TRANSCRIPT
    return f"{SUBAGENTS}/{subagent_file_name(transcript)}"


def _adopted_files(
    live: Iterable[SessionFile], home: str, damage: list[Damage]
) -> Iterator[SessionFile]:
    sessions, rewritten = list_recorded_sessions(home, AGENT_NAME)
    if not sessions:
        return
    present: dict[str, set[str]] = defaultdict(set)
    for transcript in live:
        present[transcript.session].add(recording_name(transcript))
    whole = {session for session, names in present.items() if TRANSCRIPT in names}
    for session in sorted(sessions - (whole - rewritten)):
        root = session_dir(home, AGENT_NAME, session)
        try:
            copies = list_recorded_transcripts(home, AGENT_NAME, session)
        except OSError as error:
            damage.append(Damage(str(root), 0, 0, error.strerror or "unreadable"))
            copies = {}
        if not copies and not present[session] and not _has_no_recording(root):
            # Listed although it has no files left, so that a lost session does not vanish silently.
            yield SessionFile(str(root / TRANSCRIPT), session, 0, 0)
        for name, numbers in sorted(copies.items()):
            # The newest generation is what the agent still has.
            missing = numbers[:-1] if name in present[session] else numbers
            yield from _iter_generations(root / name, session, missing, damage)


def _has_no_recording(root: Path) -> bool:
    """Return whether only the hook wrote to a session's directory so far."""
    return (
        root.is_dir() and os.access(root, os.R_OK | os.X_OK) and not (root / "meta.json").exists()
    )


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
                yield SessionFile(
                    str(generation), session, recording.size, 0, subagent, inode=restored
                )
        except (OSError, Unavailable) as error:
            damage.append(
                Damage(str(generation), 0, 0, getattr(error, "strerror", "") or str(error))
            )
