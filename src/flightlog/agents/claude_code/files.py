"""Find Claude Code's transcripts below its configuration directories.

Four layouts for subagents: inside the session's own file (1.x), beside it as
`agent-<id>.jsonl` (2.0), in `<session>/subagents/` (2.1), and below it, as
`workflows/<run>/agent-<id>.jsonl` (agents of a workflow). The project directory's name
is a lossy encoding of a path and is never decoded: records carry their `cwd`. A file's name,
not its content, decides which session it belongs to, as it does for the client itself.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage, Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.sources.foreign_json import parse_object, text_field
from flightlog.sources.protocol import FileListing

AGENT_NAME = DEFAULT_AGENT
# A 2.0 subagent file names its session in one of the first records; a line of them may be long.
_HEAD_LINES = 20
_HEAD_BYTES_MAX = 1 << 20
SUBAGENTS = "subagents"
_WORKFLOWS = f"/{SUBAGENTS}/workflows/"
JOURNAL = "journal.jsonl"  # of a workflow: which agents started and what they returned


def find_config_dirs(runtime: Runtime) -> list[str]:
    """Return the directories in `CLAUDE_CONFIG_DIR` (comma-separated), else those below home."""
    given = [part.strip() for part in runtime.environ.get("CLAUDE_CONFIG_DIR", "").split(",")]
    if any(given):
        return [absolute_path("CLAUDE_CONFIG_DIR", part) for part in given if part]
    usual = [f"{runtime.home}/{name}" for name in (".claude", ".config/claude")]
    return [path for path in usual if has_sessions(path)] or usual[:1]


def projects_dir(config_dir: str | os.PathLike[str]) -> str:
    """Return the directory below which the client writes its transcripts."""
    return os.path.join(config_dir, "projects")  # noqa: PTH118 - plain text, as paths are here


def has_sessions(config_dir: str | os.PathLike[str]) -> bool:
    """Return whether the client ever wrote a transcript below `config_dir`."""
    return os.path.isdir(projects_dir(config_dir))  # noqa: PTH112 - as above


def config_dir_of(path: str) -> str:
    """Return the configuration directory, given it or its directory of transcripts."""
    parent, name = os.path.split(path)
    return parent if name == "projects" else path


def absolute_path(variable: str, given: str) -> str:
    """Return the directory a variable names, `~` expanded, or raise `Misconfigured`."""
    path = os.path.expanduser(given)  # noqa: PTH111 - plain text, as above
    if path.startswith("~"):
        hint = f"export {variable}=/an/absolute/path"
        raise Misconfigured(f"no such home directory: {given}", hint=hint)
    if not path.startswith("/"):
        hint = f'export {variable}="$PWD/{given}"'
        raise Misconfigured(f"{variable} is not an absolute path: {given}", hint=hint)
    return normalize_path(path)


def normalize_path(path: str) -> str:
    """Return an absolute path as pathlib writes it; `..` stays, as it may follow a link."""
    return "/" + "/".join(part for part in path.split("/") if part not in {"", "."})


def find_transcripts(config_dir: str) -> FileListing:
    """List the transcripts below `config_dir`, in the order of their paths."""
    transcripts: list[SessionFile] = []
    damage: list[Damage] = []
    for project in _list_entries(projects_dir(config_dir), damage):
        if os.path.isdir(project.path):  # noqa: PTH112 - hot: 10,000 sessions
            transcripts.extend(_list_project(project.path, damage))
    return FileListing(tuple(sorted(transcripts, key=lambda file: file.path)), tuple(damage))


def find_all_transcripts(dirs: Sequence[str]) -> FileListing:
    """List the transcripts below several configuration directories."""
    listings = [find_transcripts(config_dir) for config_dir in dirs]
    return FileListing(
        tuple(file for listing in listings for file in listing.files),
        tuple(damage for listing in listings for damage in listing.damage),
    )


def session_files(folder: str, session: str) -> list[SessionFile]:
    """List the files of one session in its project's directory, as they are now."""
    damage: list[Damage] = []
    files: list[SessionFile] = []
    for entry in _list_entries(folder, damage):
        if entry.name == session and entry.is_dir(follow_symlinks=False):
            files.extend(_list_subagents(entry, damage))
        elif entry.name == f"{session}.jsonl" or (
            entry.name.startswith("agent-") and entry.name.endswith(".jsonl")
        ):
            file = _find_transcript(entry, damage)
            if file is not None and file.session == session:
                files.append(file)
    return sorted(files, key=lambda file: (file.subagent, file.path))


def spilled_output_path(transcript: SessionFile, written_path: str) -> str:
    """Return the path of a large tool result, which has its original name beside the transcript."""
    root = Path(transcript.path)
    if transcript.subagent:
        inside = transcript.path.rpartition(f"/{SUBAGENTS}/")[0]
        home = Path(inside) if inside else root.parent.parent
    else:
        home = root.with_suffix("") if root.stem == transcript.session else root.parent
    return str(home / "tool-results" / Path(written_path).name)


def subagent_info_path(transcript: SessionFile) -> str:
    """Return the path of the client's notes beside a subagent's transcript."""
    return transcript.path.removesuffix(".jsonl") + ".meta.json"


def subagent_file_name(transcript: SessionFile) -> str:
    """Return the path of a subagent's transcript below the `subagents` of its session."""
    home, _, inside = transcript.path.rpartition(f"/{SUBAGENTS}/")
    folder = inside.rpartition("/")[0] if home.endswith(f"/{transcript.session}") else ""
    is_below = folder and all(map(is_safe, folder.split("/")))
    return f"{folder}/" * bool(is_below) + f"agent-{transcript.subagent}.jsonl"


def workflow_run(transcript: SessionFile) -> str:
    """Return the workflow run that a subagent belongs to, the name of its directory."""
    return transcript.path.partition(_WORKFLOWS)[2].partition("/")[0]


def find_unread_files(config_dir: str) -> list[str]:
    """Return the files below `config_dir` that look like transcripts and that no report reads.

    This walks every directory of every session, which a report does not do.
    """
    listing = find_transcripts(config_dir)
    known = {file.path for file in listing.files} | {span.path for span in listing.damage}
    unread = []
    for folder, _, names in os.walk(projects_dir(config_dir)):
        paths = (os.path.join(folder, name) for name in names if name.endswith(".jsonl"))  # noqa: PTH118
        unread += [path for path in paths if path not in known and not path.endswith(JOURNAL)]
    return sorted(unread)


def _list_project(folder: str, damage: list[Damage]) -> Iterator[SessionFile]:
    for entry in _list_entries(folder, damage):
        if entry.is_dir(follow_symlinks=False):
            yield from _list_subagents(entry, damage)
        elif entry.name.endswith(".jsonl") and (file := _find_transcript(entry, damage)):
            yield file


def _find_transcript(entry: os.DirEntry[str], damage: list[Damage]) -> SessionFile | None:
    stem = entry.name.removesuffix(".jsonl")
    if not is_safe(stem):
        damage.append(Damage(entry.path, 0, 0, "the file name is not a usable session id"))
        return None
    file = _make_transcript(entry, stem, "", damage)
    if file is None or not stem.startswith("agent-"):
        return file
    owner = _read_owner(entry.path)
    if not is_safe(owner):
        damage.append(Damage(entry.path, 0, 0, "a subagent's file that does not name its session"))
        return None
    return replace(file, session=owner, subagent=stem.removeprefix("agent-"))


def _list_subagents(session: os.DirEntry[str], damage: list[Damage]) -> Iterator[SessionFile]:
    folder = os.path.join(session.path, SUBAGENTS)  # noqa: PTH118
    if not os.path.isdir(folder):  # noqa: PTH112
        return
    if not is_safe(session.name):
        damage.append(Damage(folder, 0, 0, "the directory's name is not a usable session id"))
        return
    for entry in _walk_entries(folder, damage):
        stem = entry.name.removesuffix(".jsonl")
        if not entry.name.endswith(".jsonl") or entry.name == JOURNAL:
            continue
        if not is_safe(stem):
            damage.append(Damage(entry.path, 0, 0, "the file name is not a usable subagent id"))
        elif file := _make_transcript(entry, session.name, stem.removeprefix("agent-"), damage):
            yield file


def _make_transcript(
    entry: os.DirEntry[str], session: str, subagent: str, damage: list[Damage]
) -> SessionFile | None:
    try:
        status = entry.stat()
    except OSError as error:
        damage.append(Damage(entry.path, 0, 0, _error_text(error)))
        return None
    if not stat.S_ISREG(status.st_mode):
        # Opening a named pipe would block until a writer comes.
        damage.append(Damage(entry.path, 0, 0, "not a file"))
        return None
    state = (status.st_size, status.st_mtime_ns, subagent, status.st_dev, status.st_ino)
    return SessionFile(entry.path, session, *state)


def _read_owner(path: str) -> str:
    """Return the session id in the first records of a 2.0 subagent file, or nothing."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = [file.readline(_HEAD_BYTES_MAX) for _ in range(_HEAD_LINES)]
    except OSError:
        return ""
    owners = (text_field(parse_object(line) or {}, "sessionId") for line in head)
    return next(filter(None, owners), "")


def _walk_entries(folder: str, damage: list[Damage]) -> Iterator[os.DirEntry[str]]:
    """Yield what is below `folder`, at any depth; links to directories are not followed."""
    folders = [folder]
    while folders:
        for entry in _list_entries(folders.pop(), damage):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                yield entry


def _list_entries(folder: str, damage: list[Damage]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        damage.append(Damage(folder, 0, 0, _error_text(error)))
        return []


def _error_text(error: OSError) -> str:
    return error.strerror or type(error).__name__
