"""Rows of responses as bytes: how they travel between processes and lie in the index.

They lie as columns. A session's rows name the same session, project and model again and again: a column of
one value is kept as that value, which halves what has to be sent, written and read.
"""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from flightlog.model.usage import ClientTotals, Row

_NO_ROWS = ((),) * len(Row._fields)
_encode = msgspec.msgpack.Encoder().encode
_Columns = tuple[
    list[str],
    list[str],
    list[str],
    list[int],
    list[int],
    list[int],
    list[int],
    list[int],
    list[int],
    list[int],
    list[str],
    list[str],
    list[str],
    list[bool],
]
_decode = msgspec.msgpack.Decoder(tuple[_Columns, list[ClientTotals]]).decode


def pack(rows: Sequence[Row], totals: Sequence[ClientTotals]) -> bytes:
    """Return rows and totals as bytes."""
    if not rows:
        return _encode((_NO_ROWS, totals))
    names, *others = zip(*rows, strict=True)
    return _encode(((names, *(each[:1] if _is_one(each) else each for each in others)), totals))


def _is_one(column: tuple[object, ...]) -> bool:
    return column[0] == column[-1] and column.count(column[0]) == len(column)


def unpack(packed: bytes) -> tuple[list[Row], list[ClientTotals]]:
    """Return what was packed."""
    columns, totals = _decode(packed)
    count = len(columns[0])
    whole = [each if len(each) == count else each * count for each in columns]
    return [tuple.__new__(Row, values) for values in zip(*whole, strict=True)], totals


def keys(rows: Iterable[Row]) -> bytes:
    """Return a short number for each response, to find out who else may hold it."""
    return array("I", [zlib.crc32(row[0].encode("utf-8", "surrogatepass")) for row in rows]).tobytes()


def numbers(packed: bytes) -> "array[int]":
    """Return the numbers again."""
    found = array("I")
    found.frombytes(packed)
    return found


def is_in(number: int, packed: bytes) -> bool:
    """Whether a number is among those packed; few are asked for, so none of the others is unpacked."""
    needle = array("I", [number]).tobytes()
    at = packed.find(needle)
    while at % len(needle) and at >= 0:
        at = packed.find(needle, at + 1)
    return at >= 0


def in_order(fresh: AbstractSet[int], known: "array[int]") -> bytes:
    """Pack numbers in their order, each once, together with those that are known, which stand in theirs."""
    if not known:
        return array("I", sorted(fresh)).tobytes()
    at, found = 0, array("I")
    for number in sorted(fresh - held(fresh, known)):
        cut = bisect_left(known, number, at)
        found += known[at:cut]
        found.append(number)
        at = cut
    return (found + known[at:]).tobytes()


def held(asked: Iterable[int], known: "array[int]") -> set[int]:
    """Return those of the numbers asked for that are among the known, which stand in their order."""
    end = len(known)
    found = ((number, bisect_left(known, number)) for number in asked)
    return {number for number, at in found if at < end and known[at] == number}
