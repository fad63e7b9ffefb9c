"""The key that makes tags: one per person, kept outside every repository.

The same key on a second machine gives the same tags there; whoever lacks it learns nothing
from a tag. Made on first use.
"""

import hashlib
import secrets
from pathlib import Path

from flightlog.model.errors import Conflict, Invalid, Unreadable
from flightlog.store import files
from flightlog.store.migration import ensure_writable

_BYTES = 32
_LEAD = "flightlog-privacy-key-1"


def load_key(path: Path) -> bytes:
    """Return the key at `path`, making it on first use."""
    if not path.exists():
        ensure_writable(path.parent)
        files.create_file(path, secrets.token_bytes(_BYTES).hex().encode() + b"\n")
    return _read_key(path)


def key_fingerprint(key: bytes) -> str:
    """Return a short name of `key` that tells two keys apart and reveals neither."""
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:12]


def encode_key(key: bytes) -> str:
    """Return `key` as one line for another machine."""
    return f"{_LEAD}:{key.hex()}:{_key_checksum(key)}"


def import_key(path: Path, line: str, *, replace: bool = False) -> bytes:
    """Put the exported key of `line` at `path`; another key there stays unless `replace`."""
    lead, _, rest = line.strip().partition(":")
    digits, _, check = rest.partition(":")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if lead != _LEAD or len(key) != _BYTES or check != _key_checksum(key):
        raise Invalid("not an exported key, or cut short", hint="make one with: flightlog privacy key export")
    if path.exists() and not replace and _read_key(path) != key:
        raise Conflict(
            "another key is here; tags made with it would no longer match",
            hint="replace it with: flightlog privacy key import --yes",
        )
    ensure_writable(path.parent)
    files.replace_file(path, key.hex().encode() + b"\n")
    return key


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != _BYTES:
        raise Unreadable(
            f"the privacy key cannot be read: {path}", hint="restore it with: flightlog privacy key import"
        )
    return key


def _key_checksum(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]
