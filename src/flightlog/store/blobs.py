"""Large content, kept once under the hash of its bytes.

Knows bytes and their SHA-256, nothing else. A blob never changes; what no longer matches its
name is damaged, and is set aside when the same content is put again.
"""

import hashlib
import re
from pathlib import Path

import zstandard

from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.store.files import os_errors_as_unavailable, quarantine_file, replace_file

BLOB_BYTES_MAX = 1 << 30
_COMPRESS_BYTES_MIN = 256
_PAYS_BELOW = 0.9
_DIGEST = re.compile(r"[0-9a-f]{64}")


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
