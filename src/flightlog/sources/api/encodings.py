"""Freeing a copy of its compression; the wire keeps it.

A stream that was cut gives what can be read of it. A compression this installation cannot read
leaves the bytes as they are, and is named.
"""

import zlib
from collections.abc import Callable

import zstandard

BYTES_MAX = 1 << 30


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
