"""Rows of responses as bytes: how they travel between processes and lie in the index."""

import zlib
from array import array
from collections.abc import Iterable

import msgspec

from flightlog.model.usage import ClientTotals, Row

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[Row], list[ClientTotals]]).decode


def pack(rows: list[Row], totals: list[ClientTotals]) -> bytes:
    """Return rows and totals as bytes."""
    return _encode((rows, totals))


def unpack(packed: bytes) -> tuple[list[Row], list[ClientTotals]]:
    """Return what was packed."""
    return _decode(packed)


def keys(rows: Iterable[Row]) -> bytes:
    """Return a short number for each response, to find out who else may hold it."""
    return array("I", [zlib.crc32(row[0].encode("utf-8", "surrogatepass")) for row in rows]).tobytes()


def numbers(packed: bytes) -> "array[int]":
    """Return the numbers again."""
    found = array("I")
    found.frombytes(packed)
    return found
