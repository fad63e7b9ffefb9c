"""Find Gemini CLI's sessions: `tmp/<project>/chats/session-<time>-<id8>.jsonl` below `~/.gemini`.

A subagent's file is `chats/<session>/<subagent>.jsonl`. Older versions wrote a session as one JSON
document, `session-….json`; its path is followed by `/messages`, and it is read as the lines that a
newer version writes. The session's id is in the first record; a name has only its beginning.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from flightlog.agents.session_files import describe_file, list_entries
from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE, Damage
from flightlog.model.session import SessionFile
from flightlog.sources.foreign_json import list_field, parse_object
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.reader import register_virtual_files

AGENT_NAME = "gemini"
_PROJECT_ROOT = ".project_root"  # names the project's directory, beside `chats`
_OWN_COPY = "project-root"  # that file in our recording
_HEADER_BYTES = 1 << 10  # it has 250; that of a subagent names directories after its id
_OPENING_BYTES = 1 << 16  # the context before the first message lists up to 200 files
_PATH_BYTES_MAX = 1 << 12  # the longest path of Linux
_MESSAGES = "/messages"
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([\w.-]{1,200})"')


def find_sessions(dirs: Sequence[str]) -> FileListing:
    """List the sessions below directories such as `~/.gemini`, in the order of their paths."""
    damage: list[Damage] = []
    files = [
        file
        for folder in dirs
        for project in list_entries(f"{folder}/tmp", damage)  # noqa: S108 - the agent's own
        for file in _list_project(f"{project.path}/chats", damage)
    ]
    return FileListing(tuple(sorted(files, key=lambda file: file.path)), tuple(damage))


def session_files(file: SessionFile) -> tuple[SessionFile, ...]:
    """List the current files of a session, given one of them."""
    chats = file.path.removesuffix(_MESSAGES).rsplit("/", 2 if file.subagent else 1)[0]
    found = (near for near in _list_project(chats, []) if near.session == file.session)
    return tuple(sorted(found, key=lambda near: (near.subagent, near.path)))


def read_project_root(file: SessionFile) -> str:
    """Return the directory of the project that a session belongs to, or "" if it is not recorded."""
    for path in find_project_root(file).values():
        try:
            with open(path, "rb") as root:  # noqa: PTH123 - hot: once for each session
                return root.read(_PATH_BYTES_MAX).decode("utf-8", "replace").strip()
        except OSError:
            break
    return ""


def find_project_root(file: SessionFile) -> dict[str, str]:
    """Return the file that names the project, above `chats`, by its name in our recording."""
    folder = file.path.removesuffix(_MESSAGES)
    for _ in range(3):  # the file of a subagent is two directories below it
        folder = folder.rpartition("/")[0]
        for name in (_PROJECT_ROOT, _OWN_COPY):
            if os.path.isfile(path := f"{folder}/{name}"):  # noqa: PTH113 - as above
                return {_OWN_COPY: path}
    return {}


def _list_project(chats: str, damage: list[Damage]) -> Iterator[SessionFile]:
    """Yield the files of sessions; resuming one may make a second file without a message."""
    files = list(_list_chats(chats, damage))
    counts = Counter(file.session for file in files if not file.subagent)
    for file in files:
        is_only = bool(file.subagent) or counts[file.session] == 1
        if is_only or b'\n{"id":' in _read_head(file.path, _OPENING_BYTES):
            yield file


def _list_chats(chats: str, damage: list[Damage]) -> Iterator[SessionFile]:
    entries = list_entries(chats, damage)
    names = {entry.name for entry in entries}
    for entry in entries:
        stem, _, ending = entry.name.rpartition(".")
        if entry.is_dir(follow_symlinks=False):
            for inner in list_entries(entry.path, damage):
                subagent = inner.name.removesuffix(".jsonl")
                if not is_safe(subagent):
                    damage.append(Damage(inner.path, 0, 0, "not a usable subagent id"))
                elif subagent != inner.name and (
                    file := describe_file(AGENT_NAME, inner.path, entry.name, damage)
                ):
                    yield replace(file, subagent=subagent)
        elif f"{stem}.jsonl" in names and ending == "json":
            continue  # a newer version resumed it, and wrote all of it to the other file
        elif stem.startswith("session-") and ending in {"json", "jsonl"}:
            session = _read_session_id(entry.path) or stem
            file = describe_file(AGENT_NAME, entry.path, session, damage)
            if file is not None:
                yield replace(file, path=entry.path + _MESSAGES * (ending == "json"))


def _read_session_id(path: str) -> str:
    """Return the session id in the first record, or nothing."""
    head = _read_head(path, _HEADER_BYTES)
    found = _SESSION_ID.search(head if path.endswith(".json") else head.partition(b"\n")[0])
    return found[1].decode() if found else ""


def _read_head(path: str, size: int) -> bytes:
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        return b""  # opening a named pipe would block until a writer comes
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.pread(file, size, 0)  # of a named pipe, it fails instead of waiting
        finally:
            os.close(file)
    except OSError:
        return b""


def _read_document(path: str) -> bytes:
    """Return a whole-file session as lines: a header, then each message.

    The header is followed by spaces so that the lines are as long as the document, which has an
    indentation: a listing knows their length without reading it.
    """
    with open(path.removesuffix(_MESSAGES), "rb") as file:  # noqa: PTH123 - as above
        document = file.read()
    record = parse_object(document) or {}
    header = {name: value for name, value in record.items() if name != "messages"}
    try:
        first, *others = map(msgspec.json.encode, (header, *list_field(record, "messages")))
    except UNREADABLE:
        header = {}
    if not header:
        raise OSError(errno.EINVAL, "not a session as a JSON document", path)
    rest = b"".join(line + b"\n" for line in others)
    return first.ljust(len(document) - len(rest) - 1) + b"\n" + rest


register_virtual_files(re.compile(r".*/session-[^/]*\.json/messages", re.DOTALL), _read_document)
