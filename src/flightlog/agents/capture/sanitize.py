"""Decompress captured bodies and scrub credentials from them; the traffic itself is not changed.

A cut stream gives its readable part. If a compression is unknown, the bytes stay compressed
and its name is returned.

Requests carry the key, so its value is known and is replaced wherever it occurs: an agent that
ran `env` sends it in the body of its next request.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import brotli
import msgspec

from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.store.compression import zstd

BYTES_MAX = 1 << 30  # bounds what a decompression bomb can fill
MARK = b"[scrubbed]"
_CREDENTIALS = tuple(
    "x-api-key authorization proxy-authorization cookie x-goog-api-key api-key".split()
)
_METADATA = msgspec.Raw(b'{"user_id":"[scrubbed]"}')
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decompress_body(data: bytes, encoding: str) -> tuple[bytes, str]:
    """Return `data` decompressed, and the names of the compressions that could not be removed."""
    names = [name.strip() for name in encoding.lower().split(",")]
    names = [name for name in names if name not in {"", "identity"}]
    while names:
        decode = _DECODERS.get(names[-1])
        if decode is None or not data:
            return data, ",".join(names) if data else ""
        try:
            data = decode(data)
        except (zlib.error, zstd.ZstdError, brotli.error):
            return data, ",".join(names)
        names.pop()
    return data, ""


def _decompress_gzip(data: bytes) -> bytes:
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, BYTES_MAX)


def _decompress_deflate(data: bytes) -> bytes:
    # Some servers send it with the zlib header, some without.
    try:
        return zlib.decompressobj().decompress(data, BYTES_MAX)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, BYTES_MAX)


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "br": lambda data: bytes(brotli.Decompressor().process(data)),
    "deflate": _decompress_deflate,
    "gzip": _decompress_gzip,
    "x-gzip": _decompress_gzip,
    "zstd": lambda data: zstd.ZstdDecompressor().decompress(data, BYTES_MAX),
}


class Scrubber:
    """The secret values of one capture; each request may add some."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Start with the values that are known in advance."""
        self._values: frozenset[str] = frozenset()
        self._add_values(frozenset(values))

    def learn_credentials(self, headers: Mapping[str, str]) -> None:
        """Add the credentials in a request's headers."""
        secret = [value for name, value in headers.items() if name.lower() in _CREDENTIALS]
        credentials = {
            part for value in secret for part in (value, value.partition(" ")[2]) if part
        }
        if not credentials <= self._values:
            self._add_values(credentials)

    def clean_bytes(self, data: bytes) -> bytes:
        """Return `data` with every secret replaced."""
        return self._secrets.hide_values(data, MARK)

    def clean_text(self, text: str) -> str:
        """Return `text` with every secret replaced."""
        return self.clean_bytes(text.encode("utf-8", "replace")).decode()

    def clean_texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the texts with every secret replaced; one search covers texts without secrets."""
        joined = "\n".join(texts.values())
        if joined.isascii() and not self._secrets.is_in(joined.encode()):
            return dict(texts)
        return {name: self.clean_text(text) for name, text in texts.items()}

    def _add_values(self, values: set[str] | frozenset[str]) -> None:
        self._values |= values
        self._secrets = KnownSecrets(self._values)
        # The longest spelling: base64 is a third longer, percent-encoding three times as long.
        sizes = (3 * len(value.encode("utf-8", "replace")) for value in self._values)
        self.longest = max(sizes, default=0)


def clean_request(scrubber: Scrubber, data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a request body as it may be stored, and the kinds of what was removed."""
    cleaned = scrubber.clean_bytes(data)
    removed = ["a credential"] if cleaned != data else []
    try:
        members: dict[str, Any] = _members(cleaned)
    except (msgspec.DecodeError, RecursionError):
        return cleaned, tuple(removed)
    if "metadata" in members and bytes(members["metadata"]) != bytes(_METADATA):
        old = b'"metadata":' + bytes(members["metadata"])
        # Replaced in place, so that all other bytes stay as the client wrote them.
        if cleaned.count(old) == 1:
            cleaned = cleaned.replace(old, b'"metadata":' + bytes(_METADATA))
        else:
            cleaned = msgspec.json.encode({**members, "metadata": _METADATA})
        removed.append("metadata")
    return cleaned, tuple(removed)
