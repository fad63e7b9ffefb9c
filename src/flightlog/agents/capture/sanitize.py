"""Decompress copies, scrub credentials.

A stream that was cut gives what can be read of it. A compression this installation cannot read
leaves the bytes as they are, and is named.

The key a request carries is known, so wherever it stands (an agent that ran `env` puts it into
its next request) it is replaced in the copy; the wire is not touched. Knows values and bytes,
not headers' meaning: names of headers are kept by an allow-list (`wire`).
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import zstandard

from flightlog.privacy.detect.known_values import KnownSecrets

BYTES_MAX = 1 << 30
MARK = b"[scrubbed]"
_CREDENTIALS = ("x-api-key", "authorization", "proxy-authorization", "cookie", "x-goog-api-key", "api-key")
_METADATA = msgspec.Raw(b'{"user_id":"[scrubbed]"}')
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Undecodable(Exception):
    """Not what it says it is, or nobody here can read it."""


def decompress_body(data: bytes, encoding: str) -> tuple[bytes, str]:
    """Return `data` free of the compressions named, and the name of the first that stays."""
    names = [name.strip() for name in encoding.lower().split(",") if name.strip() not in {"", "identity"}]
    while names:
        decode = _DECODERS.get(names[-1])
        if decode is None or not data:
            return data, ",".join(names) if data else ""
        try:
            data = decode(data)
        except (zlib.error, zstandard.ZstdError, _Undecodable):
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


def _decompress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _decompress_brotli(data: bytes) -> bytes:
    try:
        import brotli  # noqa: PLC0415 - an extra: the pages and most runs do without
    except ImportError:
        raise _Undecodable from None
    try:
        return bytes(brotli.Decompressor().process(data))
    except brotli.error:
        raise _Undecodable from None


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "br": _decompress_brotli,
    "deflate": _decompress_deflate,
    "gzip": _decompress_gzip,
    "x-gzip": _decompress_gzip,
    "zstd": _decompress_zstd,
}


class Scrubber:
    """The secret values of one capture, learned as they pass."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Begin with the values that are known beforehand."""
        self._values = frozenset(values)
        self._known = KnownSecrets(self._values)
        self.longest = self._longest_spelling()

    def learn_credentials(self, headers: Mapping[str, str]) -> None:
        """Remember the credentials a request carries."""
        found = {
            part
            for name, value in headers.items()
            if name.lower() in _CREDENTIALS
            for part in (value, value.partition(" ")[2])
            if part
        }
        if not found <= self._values:
            self._values |= found
            self._known = KnownSecrets(self._values)
            self.longest = self._longest_spelling()

    def clean_bytes(self, data: bytes) -> bytes:
        """Return `data` with every known value replaced."""
        return self._known.hide_values(data, MARK)

    def clean_text(self, text: str) -> str:
        """Return `text` with every known value replaced."""
        return self.clean_bytes(text.encode("utf-8", "replace")).decode()

    def clean_texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the texts with every known value replaced; where there is none they are looked at once, together."""
        joined = "\n".join(texts.values())
        if joined.isascii() and not self._known.is_in(joined.encode()):
            return dict(texts)
        return {name: self.clean_text(text) for name, text in texts.items()}

    def _longest_spelling(self) -> int:
        # Base64 is a third longer, an escaped address three times as long.
        return max((3 * len(value.encode("utf-8", "replace")) for value in self._values), default=0)


def clean_request(scrubber: Scrubber, data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a request body as it may be kept, and what was taken out of it."""
    cleaned = scrubber.clean_bytes(data)
    taken = ["a credential"] if cleaned != data else []
    try:
        members: dict[str, Any] = _members(cleaned)
    except (msgspec.DecodeError, RecursionError):
        return cleaned, tuple(taken)
    if "metadata" in members and bytes(members["metadata"]) != bytes(_METADATA):
        old = bytes(members["metadata"])
        written = b'"metadata":' + old
        # Replaced in place, so that all other bytes stay as the client wrote them.
        if cleaned.count(written) == 1:
            cleaned = cleaned.replace(written, b'"metadata":' + bytes(_METADATA))
        else:
            cleaned = msgspec.json.encode({**members, "metadata": _METADATA})
        taken.append("metadata")
    return cleaned, tuple(taken)
