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


def key(message_id: str) -> int:
    """Return a short number for a response, to find out who else may hold it."""
    return zlib.crc32(message_id.encode("utf-8", "surrogatepass"))


def keys(rows: Iterable[Row]) -> bytes:
    """Return the numbers of all these responses."""
    return array("I", [key(row[0]) for row in rows]).tobytes()


def numbers(packed: bytes) -> "array[int]":
    """Return the numbers again."""
    found = array("I")
    found.frombytes(packed)
    return found
