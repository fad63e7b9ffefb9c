"""Manifests: what an archived session holds, and whether it still does.

`meta.json` of a session lists every file and generation with its size and a hash of each 256 KB, next to what the
agent's own file looked like. Sealing changes none of these: they are taken of the bytes the agent wrote. A sealed
segment is listed once more by its own name, with hashes of its packed bytes. `meta.json` is replaced as a whole, after
the data is durable, and carries a hash of itself.
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
from flightlog.store.recordings.adoption import SourceState, last_line_end
from flightlog.store.recordings.recording import list_segments, open_recording

META = "meta.json"
HOOKS = "hooks.jsonl"
# Large enough that the hashes of a 1 GB session take 140 KB, small enough to hash the last block again each time.
BLOCK_BYTES = 256 << 10
SEGMENT = re.compile(r"\.from-\d+(?:\.zst)?$")
_ZEROS = b"0" * 32
_SET_ASIDE = re.compile(r"(?:^|/)\.|\.damaged-\d+$")
_ADOPTED = ("transcript*", "subagents/*", "tool-results/*")

ReadAt = Callable[[int, int], bytes]


class FileHashes(Struct, frozen=True):
    """The size of a file and the hash of each of its blocks."""

    size: int
    blocks: tuple[str, ...]

    def is_sound(self, number: int, read: ReadAt) -> bool:
        """Return whether one block is as recorded; number -1 is the last block."""
        try:
            return not self.blocks or _hash_block(read(*self.block_span(number))) == self.blocks[number]
        except (OSError, Unreadable, Unavailable):
            return False

    def block_span(self, number: int) -> tuple[int, int]:
        """Return offset and length of a block."""
        at = (number % len(self.blocks)) * BLOCK_BYTES
        return at, min(BLOCK_BYTES, self.size - at)


class SessionMeta(Struct):
    """What `meta.json` of a session says."""

    agent: str
    session: str
    files: dict[str, SourceState] = {}
    hashes: dict[str, FileHashes] = {}
    check: str = _ZEROS.decode()
    v: int = 1


def read_meta(root: Path) -> SessionMeta | None:
    """Return the manifest of the session in `root`, or None when there is none; raise `Unreadable` if it is damaged."""
    with suppress(FileNotFoundError), os_errors_as_unavailable(root / META):
        data = (root / META).read_bytes()
        with suppress(*UNREADABLE):
            meta = json.decode(data, type=SessionMeta)
            if _hash_block(data.replace(meta.check.encode(), _ZEROS, 1)) == meta.check:
                return meta
        raise Unreadable(f"manifest damaged: {root / META}", hint="flightlog doctor --verify")
    return None


def write_meta(root: Path, meta: SessionMeta) -> None:
    """Replace the manifest of the session in `root`."""
    meta.check = _ZEROS.decode()
    data = json.format(json.encode(meta)) + b"\n"
    meta.check = _hash_block(data)
    head, _, tail = data.rpartition(_ZEROS)
    replace_file(root / META, head + meta.check.encode() + tail)


def record_file(root: Path, meta: SessionMeta, name: str, start: int, end: int = -1) -> int:
    """Take the bytes `[start, end)` of a file into the manifest, by default to its end; return how many were hashed."""
    recorded = meta.hashes.get(name, FileHashes(0, ()))
    with open_recording(root / name) as copy:
        end = copy.size if end < 0 else end
        whole = min(start, recorded.size) // BLOCK_BYTES  # blocks before it keep their hashes
        if start == end == recorded.size and name in meta.hashes:
            return 0
        places = range(whole * BLOCK_BYTES, end, BLOCK_BYTES)
        fresh = (_hash_block(copy.read(at, min(BLOCK_BYTES, end - at))) for at in places)
        meta.hashes[name] = FileHashes(end, (*recorded.blocks[:whole], *fresh))
    return end - whole * BLOCK_BYTES


def record_all(root: Path, meta: SessionMeta) -> None:
    """Take every file of the session into the manifest as far as it reaches now."""
    for name in list_adopted_files(root):
        recorded = meta.hashes.get(name, FileHashes(-1, ()))
        with suppress(NotFound, Unreadable), open_recording(root / name) as copy:
            if recorded.size < copy.size:
                record_file(root, meta, name, max(recorded.size, 0))


def record_hooks(root: Path, meta: SessionMeta) -> int:
    """Take new whole lines of the hook's own files into the manifest; return how many bytes were hashed."""
    hashed = 0
    with os_errors_as_unavailable(root):
        paths = [path for path in sorted(root.glob(f"{HOOKS}*")) if re.search(r"\.jsonl$", path.name)]
    for path in paths:
        recorded = meta.hashes.get(path.name, FileHashes(0, ()))
        with suppress(NotFound), open_recording(path) as copy:
            end = last_line_end(path, copy.size)
            if end > recorded.size and recorded.is_sound(-1, copy.read):
                hashed += record_file(root, meta, path.name, recorded.size, end)
    return hashed


def list_adopted_files(root: Path) -> list[str]:
    """Name every adopted file and generation that the session in `root` has, sealed or not."""
    with os_errors_as_unavailable(root):
        found = [str(path.relative_to(root)) for pattern in _ADOPTED for path in root.glob(pattern) if path.is_file()]
    return sorted({SEGMENT.sub("", name) for name in found if not _SET_ASIDE.search(name)})


def check_file(
    root: Path, meta: SessionMeta, name: str, first: int = 0, more: Callable[[int], bool] = lambda _: True
) -> tuple[str, str, int]:
    """Check a file from block `first` on while `more(bytes read)`; return problem, details, and the next block or 0."""
    recorded = meta.hashes[name]
    try:
        with open_recording(resolve_inside(root, name)) as copy:
            extra = copy.size - recorded.size
            if extra < 0:
                return "truncated", f"{-extra:,} of {recorded.size:,} bytes are gone", 0
            if extra and not name.startswith(HOOKS):  # the hook adds lines between two settles
                return "longer", f"{extra:,} bytes are not in the manifest", 0
            for number in range(first, len(recorded.blocks)):
                at, length = recorded.block_span(number)
                if not recorded.is_sound(number, copy.read):
                    return "changed", f"{length:,} bytes at {at:,} differ from the manifest", 0
                if not more(length):
                    return "", "", number + 1
            problem = "", ""
    except NotFound:
        problem = "lost", f"{recorded.size:,} bytes"
    except Unavailable as error:
        problem = "unreadable", error.message
    return *problem, 0


def repair_file(root: Path, meta: SessionMeta, name: str, source: Path | None) -> str:
    """Write a file again from its sound blocks and the agent's own file; return what was done, or nothing.

    The damaged segments are set aside. A crash leaves them in place beside the restored file, to be checked again.
    """
    path, taken = resolve_inside(root, name), 0
    if name not in meta.hashes or name.startswith(HOOKS):
        return ""
    with open_temporary(path) as (temp, file), os_errors_as_unavailable(path):
        for data, is_ours in _iter_sound_blocks(path, meta.hashes[name], source):
            if data is None:
                return ""
            write_all(file, data)
            taken += not is_ours
        if path.exists():
            set_aside(path, path.parent)
        commit_temporary(temp, file, path)
    for segment in list_segments(path):
        if segment.path != path:
            quarantine_file(segment.path)
    for packed in [key for key in meta.hashes if key != name and SEGMENT.sub("", key) == name]:
        del meta.hashes[packed]
    return f"restored from {source}" if taken else "restored from its own sound bytes"


def _iter_sound_blocks(path: Path, recorded: FileHashes, source: Path | None) -> Iterator[tuple[bytes | None, bool]]:
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
            sound = ((read, is_ours) for read, is_ours in readers if recorded.is_sound(number, read))
            yield next(((read(*recorded.block_span(number)), is_ours) for read, is_ours in sound), (None, False))


def _hash_block(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
