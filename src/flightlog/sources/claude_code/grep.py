"""Finding the records of a transcript that hold some words, without decoding the others.

Looks for the words as JSON would write them, ASCII letters in either case. A hit may lie in
a field nobody shows, so the caller looks again at the decoded record.
"""

import json
from collections.abc import Iterator
from contextlib import closing, suppress

from flightlog.store.reading import open_reader

_BLOCK_BYTES = 4 << 20


def find_lines(path: str, words: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each line that holds `words`, from the first on."""
    needle = json.dumps(words, ensure_ascii=False)[1:-1].encode("utf-8", "replace").lower()
    with suppress(OSError), closing(open_reader(path)) as file:
        at, rest = 0, b""
        while block := file.read(at + len(rest), _BLOCK_BYTES):
            block = rest + block
            end = block.rfind(b"\n") + 1
            yield from ((at + start, length) for start, length in _find_line_spans(block[:end], needle))
            at, rest = at + end, block[end:]
        yield from ((at + start, length) for start, length in _find_line_spans(rest, needle))


def _find_line_spans(block: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    lowered = block.lower()
    found = lowered.find(needle)
    while found >= 0:
        start = lowered.rfind(b"\n", 0, found) + 1
        end = lowered.find(b"\n", found)
        end = len(block) if end < 0 else end
        yield start, end - start
        found = lowered.find(needle, end)
