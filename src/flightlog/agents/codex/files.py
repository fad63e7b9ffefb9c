"""Find Codex's rollouts: below `sessions/YYYY/MM/DD`, and flat in `archived_sessions`.

A rollout is the file of one thread, named `rollout-TIME-ID.jsonl`; one that was not used for a week
may be compressed (`.jsonl.zst`). A subagent has a rollout of its own, whose first line names the
thread that started it. It belongs to the session of the thread that no other one started.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from flightlog.model.addresses import is_safe
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.sources.protocol import FileListing
from flightlog.store.recordings.reader import register_virtual_files
from flightlog.store.recordings.recording import import_zstd

AGENT_NAME = "codex"
_NAME = re.compile(r"(rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(.+)\.jsonl)(\.zst)?")
_COMPRESSED = re.compile(r"(/.+/rollout-[^/]+\.jsonl\.zst)/lines")
_FOLDERS = ("sessions", "archived_sessions")
_IN_HOME = re.compile(r"(.*)/(?:sessions/.+|archived_sessions)/rollout-[^/]+(?:/lines)?", re.DOTALL)
TITLES = "session_index.jsonl"
# The first line of 0.140 to 0.166 names the parent before the system prompt, which fills 20 KB.
_HEAD_BYTES = 4096
_LINE_BYTES_MAX = 1 << 20
# A few kilobytes may unpack to any length; the longest rollouts that were seen have 100 MB.
_UNPACKED_BYTES_MAX = 512 << 20
# A text cannot hold these: its quotes are escaped.
_PARENT = re.compile(rb'"parent_thread_id"\s*:\s*"([^"\\]*)"')
_SOURCE = b'"source"'


class _Rollout(NamedTuple):
    file: SessionFile
    parent: str


def find_rollouts(homes: Sequence[str]) -> FileListing:
    """List the rollouts below `homes`; of a thread that has several files, one is listed.

    The plain file in `sessions` is the one that the client writes to, the others are left over.
    """
    damage: list[Damage] = []
    rollouts: dict[str, _Rollout] = {}
    for home in homes:
        for folder in _FOLDERS:
            found = list(_walk_rollouts(f"{home}/{folder}", damage))
            for rollout in sorted(found, key=lambda rollout: rollout.file.path):
                rollouts.setdefault(rollout.file.session, rollout)
    parents = {thread: rollout.parent for thread, rollout in rollouts.items()}
    files = (_place_in_session(rollout.file, parents) for rollout in rollouts.values())
    return FileListing(tuple(sorted(files, key=lambda file: file.path)), tuple(damage))


def find_home(file: SessionFile) -> str:
    """Return the home that a rollout is below; "" for our own copy of one."""
    found = _IN_HOME.fullmatch(file.path)
    return found[1] if found else ""


def find_session_files(file: SessionFile) -> tuple[SessionFile, ...]:
    """List the rollouts of a session, given one of them, as they are now."""
    files = find_rollouts([find_home(file)]).files
    return tuple(known for known in files if known.session == file.session)


def _place_in_session(file: SessionFile, parents: dict[str, str]) -> SessionFile:
    """Return the file of a subagent under the session of the thread at the top."""
    root, seen = file.session, {file.session}
    while (parent := parents.get(root, "")) and parent not in seen:
        seen.add(parent)
        root = parent
    return file if root == file.session else replace(file, session=root, subagent=file.session)


def _walk_rollouts(folder: str, damage: list[Damage]) -> Iterator[_Rollout]:
    """Yield the rollouts at any depth; links to directories are not followed."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.name.startswith("rollout-"):
                        yield from _find_rollout(entry, damage)
        except FileNotFoundError:
            continue
        except OSError as error:
            damage.append(Damage(error.filename or folder, 0, 0, error.strerror or "unreadable"))


def _find_rollout(entry: os.DirEntry[str], damage: list[Damage]) -> Iterator[_Rollout]:
    name = _NAME.fullmatch(entry.name)
    if name is None or not is_safe(name[2]):
        if not entry.name.endswith(".tmp"):  # of a compression that is under way
            damage.append(Damage(entry.path, 0, 0, "the file name is not that of a rollout"))
        return
    try:
        status = entry.stat()
        if not stat.S_ISREG(status.st_mode):
            # Opening a named pipe would block until a writer comes.
            damage.append(Damage(entry.path, 0, 0, "not a file"))
            return
        size, path = status.st_size, entry.path
        head_of = (entry.path, status.st_ino, status.st_mtime_ns if name[3] else 0)
        if name[3]:
            size, path = _measure_compressed(path, status.st_mtime_ns, size), f"{path}/lines"
        parent = _read_parent(*head_of, min(size, _HEAD_BYTES))
    except OSError as error:
        damage.append(Damage(entry.path, 0, 0, error.strerror or "unreadable"))
        return
    state = (size, status.st_mtime_ns, "", status.st_dev, status.st_ino, AGENT_NAME)
    yield _Rollout(SessionFile(path, name[2], *state), parent)


@lru_cache(maxsize=1 << 16)
def _read_parent(path: str, _inode: int, _changed_ns: int, _head_bytes: int) -> str:
    """Return the thread that started this one, "" if a person did."""
    if path.endswith(".zst"):
        head = read_compressed(f"{path}/lines").partition(b"\n")[0]
    else:
        with open(path, "rb") as file:  # noqa: PTH123 - hot: every rollout of a machine
            head = file.read(_HEAD_BYTES)
            if b"\n" not in head and (_SOURCE not in head or len(head) < _HEAD_BYTES):
                head += file.readline(_LINE_BYTES_MAX)
                if b"\n" not in head and len(head) < _LINE_BYTES_MAX:
                    # Only the whole line says whether this is a session or a subagent of one.
                    raise OSError(errno.ENODATA, "its first line is not finished", path)
    found = _PARENT.search(head.partition(b"\n")[0])
    parent = found[1].decode("utf-8", "replace") if found else ""
    return parent if is_safe(parent) else ""


@lru_cache(maxsize=1 << 16)
def _measure_compressed(path: str, _changed_ns: int, _packed_bytes: int) -> int:
    """Return the length of a compressed rollout, which its header does not state."""
    return len(read_compressed(f"{path}/lines"))


def read_compressed(path: str, bytes_max: int = _UNPACKED_BYTES_MAX) -> bytes:
    """Return the lines of a compressed rollout; raise `OSError` if it is damaged or too long."""
    zstd = import_zstd()
    found = _COMPRESSED.fullmatch(path)
    assert found is not None
    try:
        with zstd.open(found[1]) as file:
            content: bytes = file.read(bytes_max + 1)
    except (zstd.ZstdError, EOFError) as error:
        raise OSError(0, f"damaged compression: {error}", path) from error
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"unpacks to more than {bytes_max >> 20:,} MB", path)
    return content


register_virtual_files(_COMPRESSED, read_compressed)
