"""Finding Claude Code's transcripts below its configuration directory.

Three layouts for subagents: inside the session's own file (1.x), beside it as
`agent-<id>.jsonl` (2.0), and below `<session>/subagents/` (2.1). The project directory's name
is a lossy encoding of a path and is never decoded: records say their `cwd`. A file's name,
not its content, decides which session it belongs to, as it does for the client itself.
"""

import os
import stat
from collections.abc import Iterator

from msgspec.structs import replace

from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage, Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.model.session import SessionFile
from flightlog.sources.foreign_json import parse_object, text_field
from flightlog.sources.protocol import FileListing

AGENT_NAME = "claude-code"
_HEAD_LINES = 20
_HEAD_BYTES_MAX = 1 << 20


def find_config_dirs(runtime: Runtime) -> list[str]:
    """Return where Claude Code keeps its files: `CLAUDE_CONFIG_DIR` (a comma separates several), else home."""
    given = [part.strip() for part in runtime.environ.get("CLAUDE_CONFIG_DIR", "").split(",")]
    if any(given):
        return [absolute_path("CLAUDE_CONFIG_DIR", part) for part in given if part]
    usual = [f"{runtime.home}/{name}" for name in (".claude", ".config/claude")]
    return [path for path in usual if os.path.isdir(f"{path}/projects")] or usual[:1]  # noqa: PTH112 - plain text


def absolute_path(variable: str, given: str) -> str:
    """Return the directory a variable names, `~` expanded, or raise `Misconfigured`."""
    path = os.path.expanduser(given)  # noqa: PTH111 - plain text, as above
    if path.startswith("~"):
        raise Misconfigured(f"no such home directory: {given}", hint=f"export {variable}=/an/absolute/path")
    if not path.startswith("/"):
        hint = f'export {variable}="$PWD/{given}"'
        raise Misconfigured(f"{variable} is not an absolute path: {given}", hint=hint)
    return normalize_path(path)


def normalize_path(path: str) -> str:
    """Return an absolute path as pathlib writes it; two dots may lead through a link and stay."""
    return "/" + "/".join(part for part in path.split("/") if part not in {"", "."})


def find_transcripts(config_dir: str) -> FileListing:
    """List the transcripts below `config_dir`, in the order of their paths."""
    transcripts: list[SessionFile] = []
    damage: list[Damage] = []
    for folder in _list_folders(os.path.join(config_dir, "projects"), damage):  # noqa: PTH118 - hot: 10,000 sessions
        transcripts.extend(_list_project(folder, damage))
    return FileListing(tuple(sorted(transcripts, key=lambda item: item.path)), tuple(damage))


def session_files(folder: str, session: str) -> list[SessionFile]:
    """List the files of one session in its project's folder, as they are now."""
    damage: list[Damage] = []
    own = (f"{session}.jsonl", session)
    found: list[SessionFile] = []
    for entry in _list_entries(folder, damage):
        if entry.name == own[1] and entry.is_dir(follow_symlinks=False):
            found.extend(_list_subagents(entry, damage))
        elif entry.name == own[0] or (entry.name.startswith("agent-") and entry.name.endswith(".jsonl")):
            file = _find_transcript(entry, damage)
            if file is not None and file.session == session:
                found.append(file)
    return sorted(found, key=lambda file: (file.lane, file.path))


def spilled_output_path(transcript: SessionFile, said: str) -> str:
    """Return where a large tool result lies now: by name beside the transcript, wherever it was written."""
    from pathlib import Path  # noqa: PLC0415 - a usage report does not wait for it

    root = Path(transcript.path)
    if transcript.lane:
        home = root.parent.parent
    else:
        home = root.with_suffix("") if root.stem == transcript.session else root.parent
    return str(home / "tool-results" / Path(said).name)


def subagent_info_path(transcript: SessionFile) -> str:
    """Return the path of what the client notes beside a subagent's transcript."""
    return transcript.path.removesuffix(".jsonl") + ".meta.json"


def _list_project(folder: str, damage: list[Damage]) -> Iterator[SessionFile]:
    for entry in _list_entries(folder, damage):
        if entry.is_dir(follow_symlinks=False):
            yield from _list_subagents(entry, damage)
        elif entry.name.endswith(".jsonl"):
            found = _find_transcript(entry, damage)
            if found is not None:
                yield found


def _find_transcript(entry: os.DirEntry[str], damage: list[Damage]) -> SessionFile | None:
    stem = entry.name.removesuffix(".jsonl")
    if not is_safe(stem):
        damage.append(Damage(entry.path, 0, 0, "the file name is not a usable session id"))
        return None
    found = _make_transcript(entry, stem, "", damage)
    if found is None or not stem.startswith("agent-"):
        return found
    owner = _read_owner(entry.path)
    if not is_safe(owner):
        damage.append(Damage(entry.path, 0, 0, "a subagent's file that does not say its session"))
        return None
    return replace(found, session=owner, lane=stem.removeprefix("agent-"))


def _list_subagents(session: os.DirEntry[str], damage: list[Damage]) -> Iterator[SessionFile]:
    folder = os.path.join(session.path, "subagents")  # noqa: PTH118
    if not os.path.isdir(folder):  # noqa: PTH112
        return
    if not is_safe(session.name):
        damage.append(Damage(folder, 0, 0, "the directory's name is not a usable session id"))
        return
    for entry in _list_entries(folder, damage):
        stem = entry.name.removesuffix(".jsonl")
        if not entry.name.endswith(".jsonl"):
            continue
        if not is_safe(stem):
            damage.append(Damage(entry.path, 0, 0, "the file name is not a usable subagent id"))
        else:
            found = _make_transcript(entry, session.name, stem.removeprefix("agent-"), damage)
            if found is not None:
                yield found


def _make_transcript(entry: os.DirEntry[str], session: str, lane: str, damage: list[Damage]) -> SessionFile | None:
    try:
        told = entry.stat()
    except OSError as error:
        damage.append(Damage(entry.path, 0, 0, _error_text(error)))
        return None
    if not stat.S_ISREG(told.st_mode):
        # A pipe would keep us waiting for ever.
        damage.append(Damage(entry.path, 0, 0, "not a file"))
        return None
    return SessionFile(entry.path, session, told.st_size, told.st_mtime_ns, lane, told.st_dev, told.st_ino)


def _read_owner(path: str) -> str:
    """Read the session id off the first record of a 2.0 subagent file that says it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = [file.readline(_HEAD_BYTES_MAX) for _ in range(_HEAD_LINES)]
    except OSError:
        return ""
    return next((owner for line in head if (owner := text_field(parse_object(line) or {}, "sessionId"))), "")


def _list_folders(root: str, damage: list[Damage]) -> list[str]:
    return [entry.path for entry in _list_entries(root, damage) if os.path.isdir(entry.path)]  # noqa: PTH112


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
