"""Transcripts wherever they are: the agent's own files first, our copies of what it deleted or rewrote.

A file the agent still has is read in place. Of a file it deleted, every generation of our
copy is read; of one it rewrote, the older generations, which hold what is no longer there.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from flightlog.agents.claude_code.files import AGENT_NAME, find_transcripts, spilled_output_path, subagent_info_path
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage, Unavailable
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.adoption import (
    TRANSCRIPT,
    list_recorded_sessions,
    list_recorded_transcripts,
    session_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

    from flightlog.store.recordings.sessions import SessionAdoption


def list_recorded_files(config_dirs: Sequence[str], home: str) -> FileListing:
    """List every transcript there is: live below `config_dirs`, kept below `home`."""
    live = [find_transcripts(folder) for folder in config_dirs]
    transcripts = [transcript for found in live for transcript in found.files]
    damage = [each for found in live for each in found.damage]
    kept = tuple(_adopted_files(transcripts, home, damage)) if home else ()
    return FileListing((*transcripts, *kept), tuple(damage))


def adopt_session_files(home: str, session: str, files: Iterable[SessionFile]) -> "SessionAdoption":
    """Take everything a session's files hold into our own copy; only what is new is read."""
    from pathlib import Path  # noqa: PLC0415 - a report adopts nothing

    from flightlog.store.recordings.sessions import adopt_session  # noqa: PLC0415

    return adopt_session(Path(home), AGENT_NAME, session, agent_files(home, files))


def agent_files(home: str, files: Iterable[SessionFile]) -> "dict[str, Path]":
    """Return the agent's own files of a session by the names our copies have."""
    from pathlib import Path  # noqa: PLC0415 - as above

    sources: dict[str, Path] = {}
    for file in sorted(files, key=lambda file: file.size):
        path = Path(file.path)
        if path.is_symlink():
            path = path.resolve()  # a session is listed through a link, so it is archived through it
        if path.is_relative_to(home):
            continue
        sources[recording_name(file)] = path
        facts = Path(subagent_info_path(file))
        if file.lane and facts.is_file():
            sources[f"subagents/{facts.name}"] = facts
        sources.update((f"tool-results/{spilled.name}", spilled) for spilled in _list_spilled_files(file))
    return sources


def recording_name(transcript: SessionFile) -> str:
    """Name a transcript inside our copy of its session."""
    return f"subagents/agent-{transcript.lane}.jsonl" if transcript.lane else TRANSCRIPT


def _list_spilled_files(file: SessionFile) -> "list[Path]":
    from pathlib import Path  # noqa: PLC0415 - as above

    folder = Path(spilled_output_path(file, "x")).parent
    try:
        return sorted(path for path in folder.iterdir() if path.is_file() and is_safe(path.name))
    except OSError:
        return []


def _adopted_files(live: Iterable[SessionFile], home: str, damage: list[Damage]) -> Iterator[SessionFile]:
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
            kept = list_recorded_transcripts(home, AGENT_NAME, session)
        except OSError as error:
            damage.append(Damage(str(root), 0, 0, error.strerror or "unreadable"))
            kept = {}
        if not kept and not present[session] and not _has_no_recording(root):
            # Named all the same: a session that was lost is missed where it is listed.
            yield SessionFile(str(root / TRANSCRIPT), session, 0, 0)
        for name, numbers in sorted(kept.items()):
            # The newest generation is what the agent still has.
            wanted = numbers[:-1] if name in present[session] else numbers
            yield from _iter_generations(root / name, session, wanted, damage)


def _has_no_recording(root: "Path") -> bool:
    """Return whether only the hook wrote to a session's directory so far."""
    return root.is_dir() and os.access(root, os.R_OK | os.X_OK) and not (root / "meta.json").exists()


def _iter_generations(
    path: "Path", session: str, numbers: Iterable[int], damage: list[Damage]
) -> Iterator[SessionFile]:
    from pathlib import Path  # noqa: PLC0415 - only where something was deleted or rewritten

    from flightlog.store.recordings.recording import Recording, generation_path  # noqa: PLC0415

    lane = path.stem.removeprefix("agent-") if path.stem != Path(TRANSCRIPT).stem else ""
    for number in numbers:
        each = generation_path(path, number)
        try:
            with Recording(each) as recording:
                # Our copies only grow, so their size says whether they changed; one that was restored is read again.
                restored = sum(1 for _ in each.parent.glob(f"{each.name}*.damaged-*"))
                yield SessionFile(str(each), session, recording.size, 0, lane, inode=restored)
        except (OSError, Unavailable) as error:
            damage.append(Damage(str(each), 0, 0, getattr(error, "strerror", "") or str(error)))
