"""Copy an agent's session files into our own recording.

A session that is no file of its own is copied as lines: our copy has every version of each line, and
a reader takes the last.
"""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from flightlog.agents import source_of
from flightlog.agents.recordings import recording_name
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.store.files import replace_file
from flightlog.store.recordings.adoption import session_dir
from flightlog.store.recordings.reader import is_virtual, raw_lines
from flightlog.store.recordings.sessions import SessionAdoption, adopt_session


def adopt_session_files(home: str, session: str, files: Iterable[SessionFile]) -> SessionAdoption:
    """Copy the new bytes of a session's files into our own recording."""
    own = list(files)
    agent = own[0].agent if own else DEFAULT_AGENT
    with TemporaryDirectory(prefix="flightlog-") as folder:
        return adopt_session(Path(home), agent, session, agent_files(home, own, Path(folder)))


def agent_files(home: str, files: Iterable[SessionFile], folder: Path) -> dict[str, Path]:
    """Return the agent's own files of a session by their names in our recording.

    What is no file of its own is written to `folder`.
    """
    sources: dict[str, Path] = {}
    for file in sorted(files, key=lambda file: file.size):
        path = Path(file.path)
        if path.is_symlink():
            path = path.resolve()  # sessions listed through links are archived through them
        if path.is_relative_to(home):
            continue
        name = recording_name(file)
        sources[name] = _write_lines(home, file, folder) if is_virtual(file.path) else path
        beside = source_of(file.agent).files_beside(file)
        sources |= {name: Path(path) for name, path in beside.items()}
    return sources


def _write_lines(home: str, file: SessionFile, folder: Path) -> Path:
    """Write what our copy has, then the lines that are new or changed: our copies only grow."""
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    copy = session_dir(home, file.agent, file.session) / recording_name(file)
    known = [line for line in raw_lines(str(copy), 0) if line.endswith(b"\n")]
    seen = set(known)
    new = (line for line in raw_lines(file.path, 0) if line not in seen)
    replace_file(path, b"".join((*known, *new)), durable=False)
    return path
