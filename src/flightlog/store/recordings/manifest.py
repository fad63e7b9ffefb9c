"""Manifests: the files of an archived session and the hashes of their blocks.

`meta.json` of a session lists every file and generation with its size and a hash of each 256 KB,
and the state of the agent's own file. Sealing changes none of these, because the hashes are of
the bytes the agent wrote. A sealed segment is also listed by its own name, with hashes of its
packed bytes. `meta.json` is replaced as a whole, after the data is durable, and has a hash of
itself.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct, json

from flightlog.model.errors import UNREADABLE, NotFound, Unavailable, Unreadable
from flightlog.store.files import (
    commit_temporary,
    open_temporary,
    os_errors_as_unavailable,
    quarantine_file,
    replace_file,
    resolve_inside,
    set_aside,
    write_all,
)
from flightlog.store.jsonl import last_line_end
from flightlog.store.recordings.adoption import SourceState
from flightlog.store.recordings.recording import list_segments, open_recording

META = "meta.json"
HOOKS = "hooks.jsonl"
# The hashes of a 1 GB session take 140 KB, and the last block is hashed again at each adoption.
BLOCK_BYTES = 256 << 10
SEGMENT = re.compile(r"\.from-\d+(?:\.zst)?$")  # what a segment adds to the name of its recording
_ZEROS = b"0" * 32  # in place of the manifest's own hash while that is computed
_SET_ASIDE = re.compile(r"(?:^|/)\.|\.damaged-\d+$")  # temporary and quarantined files
_ADOPTED = ("transcript*", "subagents/**/*", "tool-results/*")

ReadAt = Callable[[int, int], bytes]


class FileHashes(Struct, frozen=True):
    """The size of a file and the hash of each of its blocks."""

    size_bytes: int
    blocks: tuple[str, ...]

    def is_sound(self, number: int, read: ReadAt) -> bool:
        """Return whether one block is as recorded; number -1 is the last block."""
        try:
            return (
                not self.blocks
                or _hash_block(read(*self.block_span(number))) == self.blocks[number]
            )
        except (OSError, Unreadable, Unavailable):
            return False

    def block_span(self, number: int) -> tuple[int, int]:
        """Return offset and length of a block."""
        at = (number % len(self.blocks)) * BLOCK_BYTES
        return at, min(BLOCK_BYTES, self.size_bytes - at)


class SessionMeta(Struct):
    """The content of a session's `meta.json`."""

    agent: str
    session: str
    files: dict[str, SourceState] = {}
    hashes: dict[str, FileHashes] = {}
    checksum: str = _ZEROS.decode()
    version: int = 1


def read_meta(root: Path) -> SessionMeta | None:
    """Return the manifest in `root`, None if there is none; raise `Unreadable` if damaged."""
    with suppress(FileNotFoundError), os_errors_as_unavailable(root / META):
        data = (root / META).read_bytes()
        with suppress(*UNREADABLE):
            meta = json.decode(data, type=SessionMeta)
            if _hash_block(data.replace(meta.checksum.encode(), _ZEROS, 1)) == meta.checksum:
                return meta
        raise Unreadable(f"manifest damaged: {root / META}", hint="flightlog doctor --verify")
    return None


def write_meta(root: Path, meta: SessionMeta) -> None:
    """Replace the manifest of the session in `root`."""
    meta.checksum = _ZEROS.decode()
    data = json.format(json.encode(meta)) + b"\n"
    meta.checksum = _hash_block(data)
    head, _, tail = data.rpartition(_ZEROS)
    replace_file(root / META, head + meta.checksum.encode() + tail)


def record_file(root: Path, meta: SessionMeta, name: str, start: int, end: int = -1) -> int:
    """Add the bytes `[start, end)` of a file to the manifest; return how many bytes were hashed.

    Without `end`, all bytes from `start` on are added.
    """
    recorded = meta.hashes.get(name, FileHashes(0, ()))
    with open_recording(root / name) as copy:
        end = copy.size if end < 0 else end
        unchanged = min(start, recorded.size_bytes) // BLOCK_BYTES
        if start == end == recorded.size_bytes and name in meta.hashes:
            return 0
        offsets = range(unchanged * BLOCK_BYTES, end, BLOCK_BYTES)
        new = (_hash_block(copy.read(at, min(BLOCK_BYTES, end - at))) for at in offsets)
        meta.hashes[name] = FileHashes(end, (*recorded.blocks[:unchanged], *new))
    return end - unchanged * BLOCK_BYTES


def record_all(root: Path, meta: SessionMeta) -> None:
    """Add every file of the session to the manifest, up to its present end."""
    for name in list_adopted_files(root):
        recorded = meta.hashes.get(name, FileHashes(-1, ()))
        with suppress(NotFound, Unreadable), open_recording(root / name) as copy:
            if recorded.size_bytes < copy.size:
                record_file(root, meta, name, max(recorded.size_bytes, 0))


def record_hooks(root: Path, meta: SessionMeta) -> int:
    """Add new whole lines of the hook's files to the manifest; return the bytes hashed."""
    hashed = 0
    with os_errors_as_unavailable(root):
        paths = [path for path in sorted(root.glob(f"{HOOKS}*")) if path.suffix == ".jsonl"]
    for path in paths:
        recorded = meta.hashes.get(path.name, FileHashes(0, ()))
        with suppress(NotFound), open_recording(path) as copy:
            end = last_line_end(copy.read, copy.size)
            if end > recorded.size_bytes and recorded.is_sound(-1, copy.read):
                hashed += record_file(root, meta, path.name, recorded.size_bytes, end)
    return hashed


def list_adopted_files(root: Path) -> list[str]:
    """Return the names of all adopted files and generations in `root`, sealed or not."""
    with os_errors_as_unavailable(root):
        paths = [path for pattern in _ADOPTED for path in root.glob(pattern) if path.is_file()]
    names = (str(path.relative_to(root)) for path in paths)
    return sorted({SEGMENT.sub("", name) for name in names if not _SET_ASIDE.search(name)})


def check_file(
    root: Path,
    meta: SessionMeta,
    name: str,
    first: int = 0,
    more: Callable[[int], bool] = lambda _: True,
) -> tuple[str, str, int]:
    """Check blocks from `first` on while `more(bytes)`; return problem, details, next block."""
    recorded = meta.hashes[name]
    try:
        with open_recording(resolve_inside(root, name)) as copy:
            extra = copy.size - recorded.size_bytes
            if extra < 0:
                return "truncated", f"{-extra:,} of {recorded.size_bytes:,} bytes are missing", 0
            if extra and not name.startswith(HOOKS):  # the hook appends between two settles
                return "longer", f"{extra:,} bytes are not in the manifest", 0
            for number in range(first, len(recorded.blocks)):
                at, length = recorded.block_span(number)
                if not recorded.is_sound(number, copy.read):
                    return "changed", f"{length:,} bytes at {at:,} differ from the manifest", 0
                if not more(length):
                    return "", "", number + 1
            problem = "", ""
    except NotFound:
        problem = "lost", f"{recorded.size_bytes:,} bytes"
    except Unavailable as error:
        problem = "unreadable", error.message
    return *problem, 0


def repair_file(root: Path, meta: SessionMeta, name: str, source: Path | None) -> str:
    """Restore a file from its sound blocks and the agent's file; return what was done.

    The damaged segments are set aside. After a crash they are still beside the restored file, and
    the next check finds them.
    """
    path, from_source = resolve_inside(root, name), 0
    if name not in meta.hashes or name.startswith(HOOKS):
        return ""
    with open_temporary(path) as (temp, file), os_errors_as_unavailable(path):
        for data, is_ours in _iter_sound_blocks(path, meta.hashes[name], source):
            if data is None:
                return ""
            write_all(file, data)
            from_source += not is_ours
        if path.exists():
            set_aside(path, path.parent)
        commit_temporary(temp, file, path)
    for segment in list_segments(path):
        if segment.path != path:
            quarantine_file(segment.path)
    for packed in [key for key in meta.hashes if key != name and SEGMENT.sub("", key) == name]:
        del meta.hashes[packed]
    return f"restored from {source}" if from_source else "restored from its own sound bytes"


def _iter_sound_blocks(
    path: Path, recorded: FileHashes, source: Path | None
) -> Iterator[tuple[bytes | None, bool]]:
    with ExitStack() as opened:
        readers: list[tuple[ReadAt, bool]] = []
        with suppress(NotFound):
            readers.append((opened.enter_context(open_recording(path)).read, True))
        with suppress(OSError):
            if source:
                file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                opened.callback(os.close, file)
                readers.append((lambda offset, length: os.pread(file, length, offset), False))
        for number in range(len(recorded.blocks)):
            span = recorded.block_span(number)
            sound = ((read(*span), own) for read, own in readers if recorded.is_sound(number, read))
            yield next(sound, (None, False))


def _hash_block(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
