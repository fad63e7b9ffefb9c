"""Content-addressed blobs and request bodies stored as shared chunks.

A blob is named by its SHA-256 and never changes; one that does not match its name is damaged,
and is set aside when the same content is stored again.

A JSON body is split into its members, and lists among them into their elements, at the bytes the
client sent: the chunks joined are the body. A body that cannot be split so is one chunk. Large
chunks are blobs, others are part of the list itself (a file each would cost more).
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.model.exchange import BodyRef
from flightlog.store.compression import zstd
from flightlog.store.files import os_errors_as_unavailable, quarantine_file, replace_file

BLOB_BYTES_MAX = 1 << 30  # bounds the memory that a hostile compressed blob can take
_COMPRESS_BYTES_MIN = 256  # shorter data hardly shrinks
_COMPRESSED_SHARE_MAX = 0.9  # with less gain, reading plain bytes is worth more than the space
_DIGEST = re.compile(r"[0-9a-f]{64}")  # SHA-256; also keeps paths out of file names
INLINE_BYTES_MAX = 4 << 10  # a smaller file would take a block of the disk all the same
_INLINE = "="
_LISTS = frozenset({"messages", "system"})
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def store_blob(root: Path, data: bytes, *, durable: bool = True) -> str:
    """Store `data` unless it is there and return its digest."""
    digest = hashlib.sha256(data).hexdigest()
    path = _existing_path(root, digest)
    if path is not None:
        if _read_blob(path) == data:
            return digest
        quarantine_file(path)
    packed = zstd.compress(data) if len(data) >= _COMPRESS_BYTES_MIN else data
    if len(packed) < len(data) * _COMPRESSED_SHARE_MAX:
        replace_file(_blob_path(root, digest, ".zst"), packed, durable=durable)
    else:
        replace_file(_blob_path(root, digest, ""), data, durable=durable)
    return digest


def load_blob(root: Path, digest: str) -> bytes:
    """Return the bytes with this digest; raise `Unreadable` if they do not match it."""
    path = _existing_path(root, digest)
    if path is None:
        raise NotFound(f"no such blob: {digest}", hint="restore the file from a backup")
    data = _read_blob(path)
    if data is None or hashlib.sha256(data).hexdigest() != digest:
        raise Unreadable(f"a blob is damaged: {path}", hint="restore the file from a backup")
    return data


def _existing_path(root: Path, digest: str) -> Path | None:
    if not _DIGEST.fullmatch(digest):
        raise Invalid(f"not a digest: {digest[:70]!r}", hint="a digest is 64 hexadecimal digits")
    paths = (_blob_path(root, digest, ending) for ending in (".zst", ""))
    return next((path for path in paths if path.is_file()), None)


def _blob_path(root: Path, digest: str, ending: str) -> Path:
    return root / digest[:2] / (digest[2:] + ending)


def _read_blob(path: Path) -> bytes | None:
    """Return the content of a blob, or None if it cannot be decompressed."""
    with os_errors_as_unavailable(path):
        packed = path.read_bytes()
    if path.suffix != ".zst":
        return packed
    unpacker = zstd.ZstdDecompressor()
    try:
        if (zstd.get_frame_info(packed).decompressed_size or 0) > BLOB_BYTES_MAX:
            return None
        data = unpacker.decompress(packed, BLOB_BYTES_MAX)
    except zstd.ZstdError:
        return None
    return data if unpacker.eof else None


class StoredBody(Struct, frozen=True):
    """A stored body: its chunks, their names, and how many it shares with the body before.

    `marker` is a number of chunks and the state of the hash after them: the next body has the same
    beginning.
    """

    parts: tuple[bytes, ...]
    names: tuple[str, ...]
    prefix_chunks: int
    suffix_chunks: int
    digest: str
    marker: tuple[int, Any]

    @property
    def own_chunks(self) -> tuple[str, ...]:
        """The names of the chunks that are not shared."""
        return self.names[self.prefix_chunks : len(self.names) - self.suffix_chunks]


NOTHING = StoredBody((), (), 0, 0, "", (0, hashlib.sha256()))


class BodyStore:
    """Bodies as chunks in the blobs below `root`; each chunk is written once per process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stored: set[str] = set()

    def store_body(self, data: bytes, before: StoredBody = NOTHING) -> StoredBody:
        """Store a body; only what differs from the body `before` is split and hashed."""
        keep, new, tail = split_changed_body(before.parts, data)
        end = len(before.parts) - tail
        names = before.names[:keep] + tuple(map(self._store_chunk, new)) + before.names[end:]
        parts = before.parts[:keep] + tuple(new) + before.parts[end:]
        at, hashed = before.marker if before.marker[0] <= keep else NOTHING.marker
        beginning = hashed.copy()
        beginning.update(b"".join(parts[at:keep]))
        whole = beginning.copy()
        whole.update(b"".join(parts[keep:]))
        return StoredBody(parts, names, keep, tail, whole.hexdigest(), (keep, beginning))

    def store_unsplit(self, data: bytes) -> BodyRef:
        """Store a body as one chunk."""
        return BodyRef(hashlib.sha256(data).hexdigest(), len(data), (self._store_chunk(data),))

    def load_body(self, body: BodyRef, chunks: Iterable[str]) -> bytes:
        """Return the bytes of a body; raise `Unreadable` if they do not match its digest."""
        data = b"".join(
            name[1:].encode() if name.startswith(_INLINE) else load_blob(self.root, name)
            for name in chunks
        )
        if hashlib.sha256(data).hexdigest() != body.digest:
            hint = "restore the file from a backup"
            raise Unreadable(f"a body is damaged: {body.digest}", hint=hint)
        return data

    def _store_chunk(self, chunk: bytes) -> str:
        if len(chunk) <= INLINE_BYTES_MAX:
            with suppress(UnicodeDecodeError):
                return _INLINE + chunk.decode()
        digest = hashlib.sha256(chunk).hexdigest()
        if digest not in self._stored:
            store_blob(self.root, chunk, durable=False)
            self._stored.add(digest)
        return digest


def split_body(data: bytes) -> list[bytes]:
    """Split a body into chunks that joined are the body."""
    try:
        chunks = list(_iter_chunks(data))
    except (msgspec.DecodeError, RecursionError):
        return [data]
    return chunks if b"".join(chunks) == data else [data]


def split_changed_body(before: tuple[bytes, ...], data: bytes) -> tuple[int, list[bytes], int]:
    """Split a body; return how many chunks of `before` it begins with, new ones, end ones."""
    keep, tail, start, end = 0, 0, 0, len(data)
    while keep < len(before) and data.startswith(before[keep], start):
        start += len(before[keep])
        keep += 1
    while keep + tail < len(before) and data.endswith(before[-1 - tail], start, end):
        tail += 1
        end -= len(before[-tail])
    new = _split_inserted(data[start:end]) if keep else None
    if new is not None:
        return keep, new, tail
    chunks = split_body(data)
    keep, tail = count_shared_chunks(before, tuple(chunks))
    return keep, chunks[keep : len(chunks) - tail], tail


def _split_inserted(data: bytes) -> list[bytes] | None:
    """Split what was inserted into a list; None if it is not whole elements."""
    comma = data[:1] if data.startswith(b",") else b""
    try:
        new = list(_iter_list_chunks(b"[" + data[len(comma) :] + b"]", comma))
    except (msgspec.DecodeError, RecursionError):
        return None
    return new if b"".join(new) == data else None


def _iter_chunks(data: bytes) -> Iterator[bytes]:
    before = b"{"
    for name, value in _members(data).items():
        head = before + msgspec.json.encode(name) + b":"
        raw = bytes(value)
        if name in _LISTS and raw.startswith(b"[") and raw != b"[]":
            yield head + b"["
            yield from _iter_list_chunks(raw)
            before = b"],"
        else:
            yield head + raw
            before = b","
    yield before.rstrip(b",") + b"}"


def _iter_list_chunks(raw: bytes, before: bytes = b"") -> Iterator[bytes]:
    for element in _elements(raw):
        yield before + bytes(element)
        before = b","


def count_shared_chunks(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> tuple[int, int]:
    """Return how many chunks two bodies share at their beginning, and after those at their end."""
    shorter = min(len(one), len(other))
    pairs = enumerate(zip(one, other, strict=False))
    keep = next((at for at, (a, b) in pairs if a != b), shorter)
    backwards = enumerate(zip(reversed(one), reversed(other), strict=False))
    tail = next((at for at, (a, b) in backwards if a != b), shorter)
    return keep, min(tail, shorter - keep)


def expand_chunks(body: BodyRef, base: tuple[str, ...]) -> tuple[str, ...]:
    """Return all chunks of a body, given those of the body it builds on."""
    return base[: body.prefix_chunks] + body.chunks + base[len(base) - body.suffix_chunks :]
