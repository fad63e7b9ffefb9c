"""Pack usage rows into bytes, for the pipe between processes and for the index.

Rows are stored as columns. A session's rows repeat the session, project and model: a column of
equal values is stored as one value, which halves what is sent, written and read.
"""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from flightlog.model.usage import ClientTotals, UsageLine

_NO_ROWS = ((),) * len(UsageLine._fields)
_encode = msgspec.msgpack.Encoder().encode
_Text = list[str]
_Int = list[int]
_Columns = tuple[
    _Text,
    _Text,
    _Text,
    _Int,
    _Int,
    _Int,
    _Int,
    _Int,
    _Int,
    _Int,
    _Text,
    _Text,
    _Text,
    list[bool],
    _Int,
]
_decode = msgspec.msgpack.Decoder(tuple[_Columns, list[ClientTotals]]).decode


def pack_rows(rows: Sequence[UsageLine], totals: Sequence[ClientTotals]) -> bytes:
    """Return rows and totals as bytes."""
    if not rows:
        return _encode((_NO_ROWS, totals))
    ids, *others = zip(*rows, strict=True)
    columns = (column[:1] if _is_constant(column) else column for column in others)
    return _encode(((ids, *columns), totals))


def _is_constant(column: tuple[object, ...]) -> bool:
    return column[0] == column[-1] and column.count(column[0]) == len(column)


def unpack_rows(packed: bytes) -> tuple[list[UsageLine], list[ClientTotals]]:
    """Return the rows and totals that `pack_rows` packed."""
    columns, totals = _decode(packed)
    count = len(columns[0])
    full = [column if len(column) == count else column * count for column in columns]
    return [tuple.__new__(UsageLine, values) for values in zip(*full, strict=True)], totals


def response_keys(rows: Iterable[UsageLine]) -> bytes:
    """Return a 32-bit key for each response, to find the sessions that may share it."""
    keys = [zlib.crc32(row.message_id.encode("utf-8", "surrogatepass")) for row in rows]
    return array("I", keys).tobytes()


def unpack_keys(packed: bytes) -> "array[int]":
    """Return the keys that `response_keys` packed."""
    unpacked = array("I")
    unpacked.frombytes(packed)
    return unpacked


def has_key(key: int, packed: bytes) -> bool:
    """Return whether `key` is among the packed keys, without unpacking them."""
    needle = array("I", [key]).tobytes()
    at = packed.find(needle)
    while at % len(needle) and at >= 0:
        at = packed.find(needle, at + 1)
    return at >= 0


def merge_sorted(fresh: AbstractSet[int], stored: "array[int]") -> bytes:
    """Return the union of both, sorted and packed; `stored` is sorted already."""
    if not stored:
        return array("I", sorted(fresh)).tobytes()
    at, merged = 0, array("I")
    for key in sorted(fresh - intersect_sorted(fresh, stored)):
        cut = bisect_left(stored, key, at)
        merged += stored[at:cut]
        merged.append(key)
        at = cut
    return (merged + stored[at:]).tobytes()


def intersect_sorted(keys: Iterable[int], stored: "array[int]") -> set[int]:
    """Return the intersection of `keys` and `stored`, which is sorted."""
    end = len(stored)
    positions = ((key, bisect_left(stored, key)) for key in keys)
    return {key for key, at in positions if at < end and stored[at] == key}
