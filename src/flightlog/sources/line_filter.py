"""Find the lines of a file that contain one of a few byte strings, without decoding the others.

Serves the reports: most lines of a session count no tokens, and searching bytes is a hundred times
as fast as decoding JSON.
"""

from collections.abc import Iterator, Sequence

import stringzilla as sz

from flightlog.store.recordings.reader import Reader

_NEWLINE = b"\n"
_BACK_BYTES = 1 << 18  # read at once when looking back for a line


def iter_lines_with(needle: bytes, block: memoryview, end: int) -> Iterator[memoryview]:
    """Yield the lines of `block[:end]` that contain `needle`, each once."""
    find, rfind = sz.find, sz.rfind
    floor = 0
    at = find(block, needle, 0, end)
    while at >= 0:
        first = rfind(block, _NEWLINE, floor, at) + 1 or floor
        last = find(block, _NEWLINE, at, end)
        if last < 0:
            last = end
        yield block[first:last]
        floor = last
        at = find(block, needle, last, end)


def iter_lines_with_any(
    needles: Sequence[bytes], block: memoryview, end: int
) -> Iterator[memoryview]:
    """Yield the lines of `block[:end]` that contain one of `needles`, in order, each once."""
    if len(needles) == 1:
        yield from iter_lines_with(needles[0], block, end)
        return
    find, rfind = sz.find, sz.rfind
    nearest = {needle: find(block, needle, 0, end) for needle in needles}
    floor = 0
    while found := [at for at in nearest.values() if at >= 0]:
        at = min(found)
        first = rfind(block, _NEWLINE, floor, at) + 1 or floor
        last = find(block, _NEWLINE, at, end)
        if last < 0:
            last = end
        yield block[first:last]
        floor = last
        for needle, place in nearest.items():
            if 0 <= place < last:
                nearest[needle] = find(block, needle, last, end)


def find_line_before(reader: Reader, needle: bytes, end: int) -> tuple[int, bytes] | None:
    """Return offset and content of the last whole line before `end` that contains `needle`."""
    rest = b""  # the beginning of the block after, up to its first newline
    while end > 0:
        # A line of many blocks is copied with each of them, so they grow with it.
        start = max(0, end - max(_BACK_BYTES, len(rest)))
        block = reader.read(start, end - start) + rest
        # A line that begins in front of this block is looked at with the block before.
        begin = block.find(_NEWLINE) + 1 if start else 0
        at = block.rfind(needle, begin)
        if at >= 0 and (begin or not start):
            first = block.rfind(_NEWLINE, 0, at) + 1
            last = block.find(_NEWLINE, at)
            return start + first, block[first : last if last >= 0 else len(block)]
        rest = block[:begin] if begin else block
        end = start
    return None
