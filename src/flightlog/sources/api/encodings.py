"""Freeing a copy of its compression; the wire keeps it.

A stream that was cut gives what can be read of it. A compression this installation cannot read
leaves the bytes as they are, and is named.
"""

import zlib
from collections.abc import Callable

import zstandard

BYTES_MAX = 1 << 30


class _Unread(Exception):
    """Not what it says it is, or nobody here can read it."""


def decoded(data: bytes, encoding: str) -> tuple[bytes, str]:
    """Return `data` free of the compressions named, and the name of the first that stays."""
    names = [name.strip() for name in encoding.lower().split(",") if name.strip() not in {"", "identity"}]
    while names:
        decode = _DECODERS.get(names[-1])
        if decode is None or not data:
            return data, ",".join(names) if data else ""
        try:
            data = decode(data)
        except (zlib.error, zstandard.ZstdError, _Unread):
            return data, ",".join(names)
        names.pop()
    return data, ""


def _gzip(data: bytes) -> bytes:
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, BYTES_MAX)


def _deflate(data: bytes) -> bytes:
    # Some servers send it with the zlib header, some without.
    try:
        return zlib.decompressobj().decompress(data, BYTES_MAX)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, BYTES_MAX)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _brotli(data: bytes) -> bytes:
    try:
        import brotli  # noqa: PLC0415 - an extra: the pages and most runs do without
    except ImportError:
        raise _Unread from None
    try:
        return bytes(brotli.Decompressor().process(data))
    except brotli.error:
        raise _Unread from None


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "br": _brotli,
    "deflate": _deflate,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "zstd": _zstd,
}
