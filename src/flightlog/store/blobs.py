"""Content-addressed blobs and request bodies stored as shared chunks.

Knows bytes and their SHA-256, nothing else. A blob never changes; what no longer matches its
name is damaged, and is set aside when the same content is put again.

A JSON body is cut into its members, and lists among them into their elements, at the very bytes
the client sent: joined again they are the body. What cannot be cut that way is kept whole.
Large pieces are blobs, others stand in the list itself (a file each would cost more). Knows JSON's outer shape and
nothing of what is said in it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from msgspec import Struct

from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.model.exchange import BodyRef
from flightlog.store.files import os_errors_as_unavailable, quarantine_file, replace_file

BLOB_BYTES_MAX = 1 << 30
_COMPRESS_BYTES_MIN = 256
_PAYS_BELOW = 0.9
_DIGEST = re.compile(r"[0-9a-f]{64}")
INLINE_BYTES_MAX = 4 << 10
_INLINE = "="
_LISTS = frozenset({"messages", "system"})
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def store_blob(root: Path, data: bytes, *, durable: bool = True) -> str:
    """Keep `data` and return its digest; putting it again changes nothing."""
    digest = hashlib.sha256(data).hexdigest()
    held = _existing_path(root, digest)
    if held is not None:
        if _read_blob(held) == data:
            return digest
        quarantine_file(held)
    packed = zstandard.compress(data) if len(data) >= _COMPRESS_BYTES_MIN else data
    if len(packed) < len(data) * _PAYS_BELOW:
        replace_file(_blob_path(root, digest, ".zst"), packed, durable=durable)
    else:
        replace_file(_blob_path(root, digest, ""), data, durable=durable)
    return digest


def load_blob(root: Path, digest: str) -> bytes:
    """Return the bytes whose digest this is, checked."""
    held = _existing_path(root, digest)
    if held is None:
        raise NotFound(f"no such blob: {digest}", hint="flightlog doctor")
    data = _read_blob(held)
    if data is None or hashlib.sha256(data).hexdigest() != digest:
        raise Unreadable(f"a blob is damaged: {held}", hint="flightlog doctor")
    return data


def _existing_path(root: Path, digest: str) -> Path | None:
    if not _DIGEST.fullmatch(digest):
        raise Invalid(f"not a digest: {digest[:70]!r}", hint="a digest is 64 hexadecimal digits")
    found = (_blob_path(root, digest, ending) for ending in (".zst", ""))
    return next((path for path in found if path.is_file()), None)


def _blob_path(root: Path, digest: str, ending: str) -> Path:
    return root / digest[:2] / (digest[2:] + ending)


def _read_blob(path: Path) -> bytes | None:
    """Read a blob back, or None where it is no longer what was written."""
    with os_errors_as_unavailable(path):
        packed = path.read_bytes()
    if path.suffix != ".zst":
        return packed
    try:
        if zstandard.frame_content_size(packed) > BLOB_BYTES_MAX:
            return None
        return zstandard.decompress(packed, max_output_size=BLOB_BYTES_MAX)
    except zstandard.ZstdError:
        return None


class StoredBody(Struct, frozen=True):
    """A body that was kept: its pieces, their names, and how many it shares with the body it was held against.

    `mark` is the state of its hash after so many pieces: the next body has the same beginning.
    """

    parts: tuple[bytes, ...]
    names: tuple[str, ...]
    keep: int
    tail: int
    digest: str
    mark: tuple[int, Any]

    @property
    def own_chunks(self) -> tuple[str, ...]:
        """The names of the pieces that are not shared."""
        return self.names[self.keep : len(self.names) - self.tail]


NOTHING = StoredBody((), (), 0, 0, "", (0, hashlib.sha256()))


class BodyStore:
    """Where pieces are kept; what this process has put once it does not look at again."""

    def __init__(self, root: Path) -> None:
        """Keep blobs below `root`."""
        self.root = root
        self._known: set[str] = set()

    def store_body(self, data: bytes, before: StoredBody = NOTHING) -> StoredBody:
        """Keep a body; where it repeats the one before, only what is new is looked at."""
        keep, new, tail = split_changed_body(before.parts, data)
        end = len(before.parts) - tail
        names = before.names[:keep] + tuple(map(self._store_chunk, new)) + before.names[end:]
        parts = before.parts[:keep] + tuple(new) + before.parts[end:]
        at, hashed = before.mark if before.mark[0] <= keep else NOTHING.mark
        beginning = hashed.copy()
        beginning.update(b"".join(parts[at:keep]))
        whole = beginning.copy()
        whole.update(b"".join(parts[keep:]))
        return StoredBody(parts, names, keep, tail, whole.hexdigest(), (keep, beginning))

    def store_unsplit(self, data: bytes) -> BodyRef:
        """Keep a body as one piece."""
        return BodyRef(hashlib.sha256(data).hexdigest(), len(data), (self._store_chunk(data),))

    def load_body(self, body: BodyRef, pieces: Iterable[str]) -> bytes:
        """Return the bytes of a body, checked against its digest."""
        data = b"".join(
            each[1:].encode() if each.startswith(_INLINE) else load_blob(self.root, each) for each in pieces
        )
        if hashlib.sha256(data).hexdigest() != body.digest:
            raise Unreadable(f"a body is not what was kept: {body.digest}", hint="flightlog doctor")
        return data

    def _store_chunk(self, piece: bytes) -> str:
        if len(piece) <= INLINE_BYTES_MAX:
            try:
                return _INLINE + piece.decode()
            except UnicodeDecodeError:
                pass
        digest = hashlib.sha256(piece).hexdigest()
        if digest not in self._known:
            store_blob(self.root, piece, durable=False)
            self._known.add(digest)
        return digest


def split_body(data: bytes) -> list[bytes]:
    """Cut a body into pieces that joined are the body."""
    try:
        pieces = list(_split_points(data))
    except (msgspec.DecodeError, RecursionError):
        return [data]
    return pieces if b"".join(pieces) == data else [data]


def split_changed_body(before: tuple[bytes, ...], data: bytes) -> tuple[int, list[bytes], int]:
    """Cut a body: how many of the pieces before it begins with, its new pieces, how many it ends with."""
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
    pieces = split_body(data)
    keep, tail = count_shared_chunks(before, tuple(pieces))
    return keep, pieces[keep : len(pieces) - tail], tail


def _split_inserted(data: bytes) -> list[bytes] | None:
    """Cut what was put into a list, or give up."""
    comma = data[:1] if data.startswith(b",") else b""
    try:
        new = list(_iter_list_chunks(b"[" + data[len(comma) :] + b"]", comma))
    except (msgspec.DecodeError, RecursionError):
        return None
    return new if b"".join(new) == data else None


def _split_points(data: bytes) -> Iterator[bytes]:
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
    for each in _elements(raw):
        yield before + bytes(each)
        before = b","


def count_shared_chunks(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> tuple[int, int]:
    """Count the pieces two bodies share at their beginning, and after those at their end."""
    shorter = min(len(one), len(other))
    pairs = enumerate(zip(one, other, strict=False))
    keep = next((at for at, (a, b) in pairs if a != b), shorter)
    backwards = enumerate(zip(reversed(one), reversed(other), strict=False))
    tail = next((at for at, (a, b) in backwards if a != b), shorter)
    return keep, min(tail, shorter - keep)


def expand_chunks(body: BodyRef, base: tuple[str, ...]) -> tuple[str, ...]:
    """Return all pieces of a body, given those of the body it builds on."""
    return base[: body.keep] + body.pieces + base[len(base) - body.tail :]
